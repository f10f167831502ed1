"""MIG instances of this machine's GPUs: listed, created, removed.

Nothing here decides: the core chooses the place of an instance, the engine which idle ones go for
it (``engines.local.mig``). Places are memory slots as bits, as in ``core.mig``; profiles have
NVIDIA's names, by which those of the driver and those of the core are matched.

``NvmlMig`` changes real GPUs, where an admin asked for it. A GPU instance has exactly one compute
instance, over all of it; one without (a scheduler ended between the two calls) is listed without a
UUID and can only be removed.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref, c_uint
from types import ModuleType
from typing import Any, Final, Protocol
from uuid import uuid4

import msgspec

from carrel_scheduler.core.mig import MODELS, Model
from carrel_scheduler.node.contract import MigInstance

log = logging.getLogger(__name__)
SHARED_ENGINES: Final = 0
"""``NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED``, the only one there is."""
SIMULATED_MODEL: Final = "A100-80GB"
_PREFIX: Final = "MIG "


class MigUnusable(Exception):  # noqa: N818 - a reason not to start
    """The GPUs cannot be divided; the message says which one, why and what to do."""


class MigError(Exception):
    """An instance could not be made or removed; the message has the driver's words."""


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An existing instance of a device.

    Attributes:
        number: of the GPU instance; ``compute`` of its compute instance.
        profile: as ``2g.20gb``.
        bits: its memory slots.
        uuid: of the MIG device that programs see; empty: it has no compute instance.
        busy: processes use it.
    """

    number: int
    profile: str
    bits: int
    uuid: str = ""
    compute: int = 0
    busy: bool = False


class MigDevices(Protocol):
    """The divided GPUs of a machine; ``device`` is a UUID, or an index where GPUs are simulated.

    The methods block, up to seconds, and raise ``MigError``.
    """

    @property
    def model(self) -> Model:
        """The GPU model of the devices."""
        ...

    def instances(self, device: str) -> Sequence[Instance]:
        """The existing instances."""
        ...

    def create(self, device: str, profile: str, bits: int) -> Instance:
        """Make one at these slots, which are free; after an error there is none."""
        ...

    def remove(self, device: str, instance: Instance) -> None:
        """Remove an unused instance."""
        ...


def first_slot(bits: int) -> int:
    """The start slot of an instance with these slots."""
    return (bits & -bits).bit_length() - 1


def model_for(name: str, profiles: Mapping[str, int]) -> Model | None:
    """The model of a GPU by its name and the profiles (with memory slots) that its driver offers.

    Several models have equal profiles; they differ in memory only, and the name tells them apart.
    """
    words = re.split(r"[^A-Z0-9]+", name.upper())
    alike = [model for model in MODELS.values() if model.profiles.keys() <= profiles.keys()]
    named = [model for model in alike if model.name.partition("-")[0] in words]
    return next(iter((*named, *alike)), None)


class NvmlMig:
    """Real GPUs; see ``MigDevices``. ``nvml`` is the ``pynvml`` module, its session open."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml = nvml
        self.model = self._model()

    def enable(self) -> None:
        """Switch on MIG mode where it is off and there is one. Raises ``MigUnusable``."""
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                if not self._has_mode(handle):
                    continue
                if nvml.nvmlDeviceGetMigMode(handle)[0]:
                    continue
                nvml.nvmlDeviceSetMigMode(handle, nvml.NVML_DEVICE_MIG_ENABLE)
                on = nvml.nvmlDeviceGetMigMode(handle)[0]
            except nvml.NVMLError as error:
                raise MigUnusable(
                    f"GPU {index}: MIG mode cannot be switched on ({error}). It takes root and a"
                    " GPU that can be divided and that no program uses"
                ) from error
            if not on:
                raise MigUnusable(
                    f"GPU {index}: MIG mode begins with the next reset of the GPU. End all programs"
                    f" that use it, then: nvidia-smi --gpu-reset -i {index}"
                )
            log.info("GPU %d: MIG mode is on from now on", index)

    def _model(self) -> Model:
        """The common model of all GPUs of the machine that have MIG. Raises ``MigUnusable``."""
        nvml, found = self._nvml, {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            if not self._has_mode(handle):
                name = _text(nvml.nvmlDeviceGetName(handle))
                log.info("GPU %d (%s) has no MIG: it is given as a whole only", index, name)
                continue
            offered = {name: one.sliceCount for name, one in self._profiles(handle).items()}
            name = _text(nvml.nvmlDeviceGetName(handle))
            model = model_for(name, offered)
            if model is None:
                known = ", ".join(offered) or "none"
                raise MigUnusable(
                    f"GPU {index} ({name}) has no profiles of MIG that are known here ({known});"
                    f" known models: {', '.join(MODELS)}"
                )
            found[model.name] = model
        if not found:
            raise MigUnusable("no GPU of this machine has MIG; start without --mig")
        if len(found) != 1:
            raise MigUnusable(
                f"the GPUs of this machine are of different models ({', '.join(found)});"
                " only equal ones can be divided as work asks"
            )
        return next(iter(found.values()))

    def _has_mode(self, handle: Any) -> bool:
        """Whether a GPU can be divided at all."""
        nvml = self._nvml
        try:
            nvml.nvmlDeviceGetMigMode(handle)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_SUPPORTED:
                return False
            raise
        return True

    def _profiles(self, handle: Any) -> Mapping[str, Any]:
        """The profiles of GPU instances on a device, by name."""
        nvml = self._nvml
        numbers = range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
        ask = nvml.nvmlDeviceGetGpuInstanceProfileInfo
        offered = [info for number in numbers if (info := self._offered(ask, handle, number))]
        return {_text(info.name).removeprefix(_PREFIX): info for info in offered}

    def _compute_profiles(self, gpu_instance: Any) -> Iterator[Any]:
        """The profiles of compute instances within a GPU instance."""
        nvml = self._nvml
        ask = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo
        for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            info = self._offered(ask, gpu_instance, number, SHARED_ENGINES, 1)
            if info is not None:
                yield info

    def _offered(self, ask: Any, *arguments: Any) -> Any:
        """The driver's facts about a profile; ``None`` for an unsupported one."""
        nvml = self._nvml
        try:
            return ask(*arguments)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                return None
            raise

    def instances(self, device: str) -> Sequence[Instance]:
        """All GPU instances, including those without a compute instance."""
        with self._errors(f"the instances of GPU {device} cannot be listed"):
            handle = self._nvml.nvmlDeviceGetHandleByUUID(device)
            return [self._instance(profile, gi) for profile, gi in self._all(handle)]

    def _all(self, handle: Any) -> Iterator[tuple[str, Any]]:
        nvml = self._nvml
        for name, info in self._profiles(handle).items():
            if name not in self.model.profiles:
                continue
            found, count = (nvml.c_nvmlGpuInstance_t * max(1, info.instanceCount))(), c_uint()
            nvml.nvmlDeviceGetGpuInstances(handle, info.id, found, byref(count))
            yield from ((name, one) for one in found[: count.value])

    def _instance(self, profile: str, gpu_instance: Any) -> Instance:
        """The driver's description of a GPU instance; the compute instance names its MIG device.

        Looking through all MIG devices of a machine that is busy can take many seconds.
        """
        nvml = self._nvml
        info = nvml.nvmlGpuInstanceGetInfo(gpu_instance)
        found = Instance(
            number=info.id,
            profile=profile,
            bits=((1 << info.placement.size) - 1) << info.placement.start,
        )
        for compute_instance in self._compute_instances(gpu_instance):
            inside = nvml.nvmlComputeInstanceGetInfo_v2(compute_instance)
            return msgspec.structs.replace(
                found,
                uuid=_text(nvml.nvmlDeviceGetUUID(inside.device)),
                compute=inside.id,
                busy=bool(nvml.nvmlDeviceGetComputeRunningProcesses(inside.device)),
            )
        return found

    def _compute_instances(self, gpu_instance: Any) -> Iterator[Any]:
        nvml = self._nvml
        for info in self._compute_profiles(gpu_instance):
            found, count = (nvml.c_nvmlComputeInstance_t * max(1, info.instanceCount))(), c_uint()
            nvml.nvmlGpuInstanceGetComputeInstances(gpu_instance, info.id, found, byref(count))
            yield from found[: count.value]

    def create(self, device: str, profile: str, bits: int) -> Instance:
        """Create a GPU instance with its compute instance."""
        nvml = self._nvml
        with self._errors(f"an instance {profile} cannot be made on GPU {device}"):
            handle = nvml.nvmlDeviceGetHandleByUUID(device)
            offered = self._profiles(handle)
            if profile not in offered:
                right = ", ".join(offered) or "none"
                raise MigError(f"GPU {device} has no profile {profile}; it has: {right}")
            info = offered[profile]
            place = nvml.c_nvmlGpuInstancePlacement_t(first_slot(bits), bits.bit_count())
            made = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, info.id, byref(place))
            try:
                nvml.nvmlGpuInstanceCreateComputeInstance(made, self._whole(made, info.sliceCount))
                return self._instance(profile, made)
            except nvml.NVMLError:
                self._destroy(made)
                raise

    def _whole(self, gpu_instance: Any, slices: int) -> int:
        """The id of the compute profile that takes all slices of a GPU instance."""
        for info in self._compute_profiles(gpu_instance):
            if info.sliceCount == slices:
                return int(info.id)
        raise MigError(f"the driver has no compute instance of {slices} slices")

    def remove(self, device: str, instance: Instance) -> None:
        """Remove a GPU instance with its compute instance; the driver refuses what is in use."""
        with self._errors(f"instance {instance.profile} of GPU {device} cannot be removed"):
            handle = self._nvml.nvmlDeviceGetHandleByUUID(device)
            for _, gpu_instance in self._all(handle):
                if self._nvml.nvmlGpuInstanceGetInfo(gpu_instance).id == instance.number:
                    self._destroy(gpu_instance)
                    return

    def _destroy(self, gpu_instance: Any) -> None:
        for compute_instance in tuple(self._compute_instances(gpu_instance)):
            self._nvml.nvmlComputeInstanceDestroy(compute_instance)
        self._nvml.nvmlGpuInstanceDestroy(gpu_instance)

    @contextmanager
    def _errors(self, failure: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise MigError(f"{failure}: {error}") from error


class SimulatedMig:
    """Instances of simulated GPUs, forgotten when the process ends."""

    def __init__(self, model: str = SIMULATED_MODEL) -> None:
        self.model = MODELS[model]
        self._there: dict[str, list[Instance]] = {}
        self._made = 0

    def instances(self, device: str) -> Sequence[Instance]:
        """The instances that were created; whether processes use them is unknown."""
        return tuple(self._there.get(device, ()))

    def create(self, device: str, profile: str, bits: int) -> Instance:
        """Note one."""
        self._made += 1
        uuid = f"MIG-simulated-{uuid4()}"  # tasks of an earlier process have some, too
        made = Instance(number=self._made, profile=profile, bits=bits, uuid=uuid)
        self._there.setdefault(device, []).append(made)
        return made

    def remove(self, device: str, instance: Instance) -> None:
        """Forget one."""
        self._there[device].remove(instance)

    def shown(self, device: str) -> tuple[MigInstance, ...]:
        """A device's instances as facts of the node."""
        profiles = self.model.profiles
        return tuple(
            MigInstance(
                uuid=one.uuid,
                name=one.profile,
                memory_mib=profiles[one.profile].memory_mib,
                memory_used_mib=0,
            )
            for one in self.instances(device)
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
