"""Real NVIDIA GPUs through NVML. Read-only: no setting of a device is ever changed.

A device that does not answer is broken, with NVML's own words; the others go on. What a device
cannot tell (a divided one has no utilisation) is left out, and counts as unknown.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from carrel_scheduler.node.contract import Device, DeviceUse, MigInstance, NodeFacts, OwnerUse
from carrel_scheduler.node.health import HealthChecks, HealthFacts
from carrel_scheduler.node.links import DeviceLinks, links_of, numa_node
from carrel_scheduler.node.owners import ProcessOwners, TaskOwners

log = logging.getLogger(__name__)
MIB = 1024 * 1024
NO_GPUS = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED")
LOST = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_GPU_NOT_FOUND")
ABSENT: Final = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_FOUND",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
)
"""Answers of a device that has nothing to tell: not the kind of device, or no such part."""
NO_MIG_MODE: Final = "MIG mode was switched off: nvidia-smi -mig 1, or start again without --mig"
MIG_MODE: Final = "MIG mode is on: nvidia-smi -mig 0, or start with --mig, which divides GPUs"
MOST_LINKS: Final = 18
MOST_EVENTS: Final = 100
"""The most events at a time; the others follow."""


class NvmlUnusable(Exception):  # noqa: N818 - an outcome of the search for devices
    """The NVIDIA driver is there, but does not work; the message says what it answered."""


def open_nvml(nvml: ModuleType) -> bool:
    """Begin a session; false when the machine has no NVIDIA GPU.

    Raises ``NvmlUnusable`` when it has one that cannot be asked.
    """
    try:
        nvml.nvmlInit()
        return bool(nvml.nvmlDeviceGetCount() > 0)
    except nvml.NVMLError as error:
        if error.value in [getattr(nvml, name) for name in NO_GPUS]:
            return False
        raise NvmlUnusable(
            f"the NVIDIA driver does not answer ({error}); repair it,"
            " or choose simulated GPUs with --gpus N"
        ) from error


class NvmlProvider:
    """The device provider of this machine's GPUs; see ``node.contract.DeviceProvider``.

    Args:
        node: facts of the machine itself, without devices.
        nvml: the ``pynvml`` module, its session open.
        owners: whose processes those are that use them.
        clock: epoch seconds.
        sysfs: where the kernel tells of PCI devices.
        only_whole: GPUs in MIG mode cannot be used, since nobody here gives their instances out.
    """

    def __init__(
        self,
        node: NodeFacts,
        nvml: ModuleType,
        *,
        owners: ProcessOwners | None = None,
        clock: Callable[[], float] = time.time,
        sysfs: Path = Path("/sys"),
        only_whole: bool = False,
    ) -> None:
        self._node, self._nvml, self._clock, self._sysfs = node, nvml, clock, sysfs
        self._owners: ProcessOwners = owners or TaskOwners()
        self._only_whole = only_whole
        self._known: dict[int, Device] = {}
        self._near: dict[int, DeviceLinks] = {}
        self._checks: dict[str, HealthChecks] = {}
        self._sampled: dict[int, int] = {}
        self._events: Any = None
        self._registered: set[int] = set()

    def facts(self) -> NodeFacts:
        """The present facts of the machine."""
        count = self._nvml.nvmlDeviceGetCount()
        self._take_events(count)
        devices = tuple(self._device(index) for index in range(count))
        driver = _text(self._nvml.nvmlSystemGetDriverVersion())
        links = links_of(self._near)
        return msgspec.structs.replace(self._node, devices=devices, driver=driver, links=links)

    def _device(self, index: int) -> Device:
        """A device; a broken one keeps its last known facts."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            device = self._static(index, handle)
            checks = self._checks.setdefault(device.uuid, HealthChecks())
            device = msgspec.structs.replace(
                device,
                conditions=checks.check(self._health(handle), self._clock()),
                instances=tuple(self._instances(handle)),
            )
            device = self._in_mode(device, handle)
        except nvml.NVMLError as error:
            blank = Device(index=index, uuid="", name="", memory_mib=0, simulated=False)
            known = self._known.get(index, blank)
            lost = error.value in [getattr(nvml, name, None) for name in LOST]
            return msgspec.structs.replace(known, broken=True, lost=lost, message=str(error))
        self._known[index] = device
        return device

    def _in_mode(self, device: Device, handle: Any) -> Device:
        """A device with what its MIG mode means here: it may be of no use, or only as a whole."""
        mode, wrong = self._told(self._nvml.nvmlDeviceGetMigMode, handle), ""
        if self._node.mig_model:
            wrong = NO_MIG_MODE if mode and not mode[0] else ""
        elif self._only_whole and mode and mode[0]:
            wrong = MIG_MODE
        if wrong:
            return msgspec.structs.replace(device, broken=True, message=wrong)
        undivided = bool(self._node.mig_model) and not mode
        return msgspec.structs.replace(device, undivided=undivided)

    def _static(self, index: int, handle: Any) -> Device:
        """The facts that do not change while it is the same device."""
        nvml = self._nvml
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        known = self._known.get(index)
        if known is not None and known.uuid == uuid:
            return known
        bus_id = _text(nvml.nvmlDeviceGetPciInfo(handle).busId).upper()
        numa = numa_node(bus_id, self._sysfs)
        self._near[index] = self._neighbours(handle, bus_id, numa)
        memory = self._told(nvml.nvmlDeviceGetMemoryInfo, handle)
        return Device(
            index=index,
            uuid=uuid,
            name=_text(nvml.nvmlDeviceGetName(handle)).removeprefix("NVIDIA "),
            memory_mib=memory.total // MIB if memory else 0,
            simulated=False,
            numa_node=numa,
        )

    def _neighbours(self, handle: Any, bus_id: str, numa: int) -> DeviceLinks:
        nvml, peers, switched = self._nvml, set(), False
        for link in self._active_links(handle):
            kind = self._told(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switched = True
            remote = self._told(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            if remote is not None:
                peers.add(_text(remote.busId).upper())
        return DeviceLinks(bus_id, frozenset(peers), switched, numa)

    def _active_links(self, handle: Any) -> frozenset[int]:
        ask = self._nvml.nvmlDeviceGetNvLinkState
        return frozenset(link for link in range(MOST_LINKS) if self._told(ask, handle, link))

    def _health(self, handle: Any) -> HealthFacts:
        nvml = self._nvml
        rows = self._told(nvml.nvmlDeviceGetRemappedRows, handle)
        return HealthFacts(
            uncorrectable=self._told(
                nvml.nvmlDeviceGetTotalEccErrors,
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            remap_failed=bool(rows and rows[3]),
            throttle_reasons=self._told(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
            or 0,
            active_links=self._active_links(handle),
        )

    def _is_divided(self, handle: Any) -> bool:
        mode = self._told(self._nvml.nvmlDeviceGetMigMode, handle)
        return bool(mode and mode[0])

    def _instance_handles(self, handle: Any) -> Iterator[Any]:
        nvml = self._nvml
        if not self._is_divided(handle):
            return
        for place in range(self._told(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            one = self._told(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
            if one is not None:
                yield one

    def _instances(self, handle: Any) -> Iterator[MigInstance]:
        nvml = self._nvml
        for one in self._instance_handles(handle):
            memory = self._told(nvml.nvmlDeviceGetMemoryInfo, one)
            yield MigInstance(
                uuid=_text(nvml.nvmlDeviceGetUUID(one)),
                name=_text(nvml.nvmlDeviceGetName(one)).rpartition("MIG ")[2],
                memory_mib=memory.total // MIB if memory else 0,
                memory_used_mib=memory.used // MIB if memory else 0,
            )

    def _take_events(self, count: int) -> None:
        """Xids since the last look; devices that came meanwhile are listened to from now on."""
        nvml = self._nvml
        if self._events is None:
            self._events = nvml.nvmlEventSetCreate()
        for index in set(range(count)) - self._registered:
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(
                    handle, nvml.nvmlEventTypeXidCriticalError, self._events
                )
            except nvml.NVMLError as error:
                log.debug("GPU %d reports no Xids: %s", index, error)
                continue
            self._registered.add(index)
        for _ in range(MOST_EVENTS):
            try:
                event = nvml.nvmlEventSetWait(self._events, 0)
                uuid = _text(nvml.nvmlDeviceGetUUID(event.device))
            except nvml.NVMLError as error:
                if error.value == nvml.NVML_ERROR_TIMEOUT:
                    return
                log.debug("an event of the driver could not be read: %s", error)
                continue
            log.warning("GPU %s: Xid %d", uuid, event.eventData)
            self._checks.setdefault(uuid, HealthChecks()).report_xid(event.eventData, self._clock())

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:
        """Use of every device that responds; utilisation is NVML's, over its last window."""
        roots = {pid for pids in tasks_by_device.values() for pid in pids}
        found = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                found.append(self._use(index, roots))
            except self._nvml.NVMLError:
                # ``facts`` reports it as broken, with the error's words.
                found.append(
                    DeviceUse(index=index, utilization=0.0, memory_used_mib=0, known=False)
                )
        return found

    def _use(self, index: int, roots: set[int]) -> DeviceUse:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        rates = self._told(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory, complete = self._memory_by_process(handle)
        works = None if rates is None else self._work(index, handle)
        owners = self._owners.find(memory, roots)
        used = self._told(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._told(nvml.nvmlDeviceGetPowerUsage, handle)
        return DeviceUse(
            index=index,
            utilization=rates.gpu / 100 if rates is not None else 0.0,
            known=rates is not None,
            memory_used_mib=used.used // MIB if used else sum(memory.values()),
            pids=tuple(memory),
            power_watts=None if power is None else power / 1000,
            temperature_c=self._told(
                nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU
            ),
            owners=tuple(_by_owner(owners, memory, works)),
            attributed=complete and None not in owners.values(),
        )

    def _memory_by_process(self, handle: Any) -> tuple[dict[int, int], bool]:
        """MiB of a device that each process holds, and whether the driver told of all of them.

        It tells ordinary accounts of a divided device's processes only by instance.
        """
        ask = self._nvml.nvmlDeviceGetComputeRunningProcesses
        lists = [self._told(ask, handle)]
        if lists == [None] and self._is_divided(handle):
            lists = [self._told(ask, one) for one in self._instance_handles(handle)]
        memory: dict[int, int] = {}
        for one in chain.from_iterable(found or () for found in lists):
            memory[one.pid] = memory.get(one.pid, 0) + (one.usedGpuMemory or 0) // MIB
        return memory, bool(lists) and None not in lists

    def _work(self, index: int, handle: Any) -> dict[int, float] | None:
        """The part of the device that each process used since the last look, by process."""
        nvml = self._nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, self._sampled.get(index, 0))
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:
                return {}  # nobody has worked since
            if error.value in self._absent():
                return None
            raise
        works: dict[int, float] = {}
        for one in samples:
            works[one.pid] = max(works.get(one.pid, 0.0), min(100, one.smUtil) / 100)
        newest = max((one.timeStamp for one in samples), default=0)
        self._sampled[index] = max(newest, self._sampled.get(index, 0))
        return works

    def _told(self, ask: Any, *arguments: Any) -> Any:
        """A value that only some devices have; ``None`` where it is missing."""
        try:
            return ask(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in self._absent():
                return None
            raise

    def _absent(self) -> list[int]:
        return [getattr(self._nvml, name) for name in ABSENT]


def _by_owner(
    owners: Mapping[int, str | None], memory: Mapping[int, int], works: Mapping[int, float] | None
) -> Iterator[OwnerUse]:
    """The use of each owner's processes together."""
    pids: dict[str, list[int]] = {}
    for pid, owner in owners.items():
        if owner is not None:
            pids.setdefault(owner, []).append(pid)
    for owner, own in sorted(pids.items()):
        work = None if works is None else min(1.0, sum(works.get(pid, 0.0) for pid in own))
        yield OwnerUse(
            owner=owner, utilization=work, memory_used_mib=sum(memory[pid] for pid in own)
        )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
