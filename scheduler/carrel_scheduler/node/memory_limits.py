"""Limits of GPU memory that NVIDIA's driver keeps for the processes of a control group.

Drivers from release 615 on (CUDA 13.4) have them, for root, GPUs that are not divided, and control
groups of version 2. An allocation beyond the limit fails with ``CUDA_ERROR_OUT_OF_MEMORY``, however
the program reached the driver. The kernel forgets a limit with its group. No soft limit is set: it
would be a reservation in all groups above, and stay there when the group is removed.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pynvml

MIB: Final = 1024 * 1024
OLD_DRIVER: Final = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")
NO_LIMITS: Final = "the driver has none; NVIDIA's has from release 615 on"
OLD_BINDING: Final = "they need nvidia-ml-py 13.615 or later"
DIVIDED: Final = "all GPUs are divided into MIG instances"


class MemoryLimitError(Exception):
    """The driver sets no such limit; the message has the cause."""


class GroupMemoryLimits:
    """Sets limits through NVML. Methods may be called from any thread.

    Args:
        nvml: the ``pynvml`` module; a session begins with the first call and stays open.
    """

    def __init__(self, nvml: ModuleType = pynvml) -> None:
        self._nvml = nvml
        self._opening = threading.Lock()
        self._opened = False

    def try_with(self, group: Path) -> None:
        """Set a limit for an empty group, read it, and clear it: whether the driver has such.

        Raises ``MemoryLimitError``.
        """
        try:
            self._open()
            uuid, memory_mib = next(self._undivided(), ("", 0))
            if not uuid:
                raise MemoryLimitError(DIVIDED)
            self._set(group, uuid, memory_mib * MIB)
            if self.limit_of(group, uuid) != memory_mib:
                raise MemoryLimitError("the driver does not keep them")
            self._set(group, uuid, self._nvml.NVML_DEVICE_MEMORY_LIMIT_MAX)
        except self._nvml.NVMLError as error:
            raise MemoryLimitError(self._in_words(error)) from error

    def limit(self, group: Path, uuid: str, mib: int) -> None:
        """Let the processes of a group have so many MiB of a GPU. Raises ``MemoryLimitError``."""
        try:
            self._open()
            self._set(group, uuid, mib * MIB)
        except self._nvml.NVMLError as error:
            raise MemoryLimitError(self._in_words(error)) from error

    def limit_of(self, group: Path, uuid: str) -> int | None:
        """MiB that the processes of a group may have of a GPU; ``None``: no limit is known.

        Raises ``MemoryLimitError`` where there are no such limits at all.
        """
        nvml = self._nvml
        try:
            self._open()
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            found = nvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=str(group).encode())
            nvml.nvmlDeviceGetMemoryLimits_v1(handle, found)
        except nvml.NVMLError:  # a driver may answer so where none is set
            return None
        hard = int(found.hardLimit)
        return None if hard == nvml.NVML_DEVICE_MEMORY_LIMIT_MAX else hard // MIB

    def _set(self, group: Path, uuid: str, hard: int) -> None:
        handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        limits = self._nvml.c_nvmlSetMemoryLimits_v1_t(
            nameSpace=str(group).encode(), softLimit=0, hardLimit=hard
        )
        self._nvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)

    def _open(self) -> None:
        if not hasattr(self._nvml, "nvmlDeviceSetMemoryLimits_v1"):
            raise MemoryLimitError(OLD_BINDING)
        with self._opening:
            if not self._opened:
                self._nvml.nvmlInit()
                self._opened = True

    def _undivided(self) -> Iterator[tuple[str, int]]:
        """UUID and MiB of each GPU that answers and is not in MIG mode."""
        nvml = self._nvml
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid, memory = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
            except nvml.NVMLError:
                continue
            if not self._is_divided(handle):
                yield uuid, memory.total // MIB

    def _is_divided(self, handle: Any) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0])
        except self._nvml.NVMLError:  # its model has no MIG
            return False

    def _in_words(self, error: Any) -> str:
        if error.value in [getattr(self._nvml, name) for name in OLD_DRIVER]:
            return NO_LIMITS
        return f"the driver answered {str(error)!r}"
