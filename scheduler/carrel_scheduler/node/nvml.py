"""Real NVIDIA GPUs through NVML. Read-only: no setting of a device is ever changed.

A device that does not answer is broken, with NVML's own words; the others go on.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import msgspec

from carrel_scheduler.node.contract import Device, DeviceUse, NodeFacts

MIB = 1024 * 1024
NO_GPUS = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED")
LOST = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_GPU_NOT_FOUND")
UNSUPPORTED = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_NO_PERMISSION")


class NvmlUnusable(Exception):  # noqa: N818 - an outcome of the search for devices
    """There is an NVIDIA driver, but it does not work; the message says what it answered."""


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
    """This machine's GPUs; see ``node.contract.DeviceProvider``.

    Args:
        node: facts of the machine itself, without devices.
        nvml: the ``pynvml`` module, its session open.
    """

    def __init__(self, node: NodeFacts, nvml: ModuleType) -> None:
        self._node, self._nvml = node, nvml
        self._known: dict[int, Device] = {}

    def facts(self) -> NodeFacts:
        """What is in the machine now."""
        nvml = self._nvml
        devices = tuple(self._device(index) for index in range(nvml.nvmlDeviceGetCount()))
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        return msgspec.structs.replace(self._node, devices=devices, driver=driver)

    def _device(self, index: int) -> Device:
        """A device; a broken one keeps the facts known of it from before."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            device = Device(
                index=index,
                uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
                name=_text(nvml.nvmlDeviceGetName(handle)).removeprefix("NVIDIA "),
                memory_mib=nvml.nvmlDeviceGetMemoryInfo(handle).total // MIB,
                simulated=False,
            )
        except nvml.NVMLError as error:
            blank = Device(index=index, uuid="", name="", memory_mib=0, simulated=False)
            known = self._known.get(index, blank)
            lost = error.value in [getattr(nvml, name, None) for name in LOST]
            return msgspec.structs.replace(known, broken=True, lost=lost, message=str(error))
        self._known[index] = device
        return device

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:  # noqa: ARG002 - real ones know their processes
        """Use of every device that answers; utilisation is NVML's, over its last window."""
        found = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                found.append(self._use(index))
            except self._nvml.NVMLError:
                # ``facts`` reports it as broken, with the error's words.
                found.append(
                    DeviceUse(index=index, utilization=0.0, memory_used_mib=0, known=False)
                )
        return found

    def _use(self, index: int) -> DeviceUse:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        rates = self._if_supported(nvml.nvmlDeviceGetUtilizationRates, handle)
        processes = self._if_supported(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return DeviceUse(
            index=index,
            utilization=rates.gpu / 100 if rates is not None else 0.0,
            known=rates is not None,
            memory_used_mib=nvml.nvmlDeviceGetMemoryInfo(handle).used // MIB,
            pids=tuple(process.pid for process in processes),
        )

    def _if_supported(self, ask: Any, handle: Any) -> Any:
        """An answer that not every device can give (a partitioned one reports no rates)."""
        try:
            return ask(handle)
        except self._nvml.NVMLError as error:
            if error.value in [getattr(self._nvml, name) for name in UNSUPPORTED]:
                return None
            raise


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
