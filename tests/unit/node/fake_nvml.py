"""An NVML that answers what a test wants, in place of the ``pynvml`` module."""

from types import ModuleType, SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """As in pynvml: ``value`` is the code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml(ModuleType):
    """Devices by number; ``broken`` maps a device to the code that it answers everything with."""

    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
    NVMLError = NVMLError

    def __init__(self, count: int = 2, *, init_error: int = 0, as_bytes: bool = False) -> None:
        super().__init__("fake_nvml")
        self.count, self.init_error, self.as_bytes = count, init_error, as_bytes
        self.broken: dict[int, int] = {}
        self.no_rates: dict[int, int] = {}

    def nvmlInit(self) -> None:  # noqa: N802 - names of NVML
        if self.init_error:
            raise NVMLError(self.init_error)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.count

    def _text(self, text: str) -> Any:
        return text.encode() if self.as_bytes else text

    def nvmlSystemGetDriverVersion(self) -> Any:  # noqa: N802
        return self._text("580.65.06")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self.broken:
            raise NVMLError(self.broken[index])
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> Any:  # noqa: N802
        return self._text(f"GPU-{handle}")

    def nvmlDeviceGetName(self, handle: int) -> Any:  # noqa: N802
        return self._text("NVIDIA H200")

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=143_771 << 20, used=(handle + 1) << 30)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if handle in self.no_rates:
            raise NVMLError(self.no_rates[handle])
        return SimpleNamespace(gpu=40 + handle, memory=1)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Any:  # noqa: N802
        return [SimpleNamespace(pid=100 + handle)]
