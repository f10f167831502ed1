"""Limits of GPU memory that NVIDIA's driver keeps for the processes of a control group.

Drivers from release 615 on (CUDA 13.4) have them, for root, GPUs that are not divided, and control
groups of version 2. An allocation beyond the limit fails with ``CUDA_ERROR_OUT_OF_MEMORY``, however
the program reached the driver. The kernel forgets a limit with its group. No soft limit is set: it
would be a reservation in all groups above, and stay there when the group is removed.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pynvml

from carrel_scheduler.node.contract import MemoryLimit
from carrel_scheduler.node.owners import PodGroups

log = logging.getLogger("carrel_node")
SYSTEM: Final = Path("/sys/fs/cgroup")
LONGEST_REFUSAL: Final = 256
MIB: Final = 1024 * 1024
PAGE_MIB: Final = 2
OLD_DRIVER: Final = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")
NO_LIMITS: Final = "the driver has none; NVIDIA's has from release 615 on"
OLD_BINDING: Final = "they need nvidia-ml-py 13.615 or later"
NO_GROUPS: Final = "the node has no control groups of version 2"
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
            part = memory_mib // 2
            self._set(group, uuid, part * MIB)
            if not self.holds(group, uuid, part):
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

    def holds(self, group: Path, uuid: str, mib: int) -> bool:
        """Whether that limit is set, as far as the driver tells; it may be rounded to pages.

        Raises ``MemoryLimitError`` where there are no such limits at all.
        """
        found = self._limit_of(group, uuid)
        return found is not None and mib - PAGE_MIB < found <= mib

    def _limit_of(self, group: Path, uuid: str) -> int | None:
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


def enable_device_memory(group: Path) -> None:
    """Let subgroups have limits of GPU memory in the kernel (controller ``dmem``, Linux 6.14).

    Where the kernel has no such controller the driver counts by itself.
    """
    with contextlib.suppress(OSError):  # without it the driver refuses, which is told then
        enabled = (group / "cgroup.subtree_control").read_text().split()
        known = (group / "cgroup.controllers").read_text().split()
        if "dmem" in known and "dmem" not in enabled:
            (group / "cgroup.subtree_control").write_text("+dmem")


class PodLimits:
    """Limits the GPU memory of a node's pods, as the scheduler says.

    Args:
        system: where control groups of version 2 are mounted.
        driver: sets the limits.

    Attributes:
        refusal: why the driver last refused a limit; empty: it refused none.
    """

    def __init__(self, system: Path = SYSTEM, driver: GroupMemoryLimits | None = None) -> None:
        self._system, self._driver = system, driver or GroupMemoryLimits()
        self._groups = PodGroups(system)
        self._limited: set[MemoryLimit] = set()
        self.refusal = ""

    def try_driver(self) -> None:
        """Try whether the driver has such limits. Raises ``MemoryLimitError``."""
        if not (self._system / "cgroup.controllers").exists():
            raise MemoryLimitError(NO_GROUPS)
        enable_device_memory(self._system)
        group = self._system / f"carrel-node-trial-{os.getpid()}"
        try:
            group.mkdir()
            try:
                self._driver.try_with(group)
            finally:
                group.rmdir()
        except OSError as error:
            raise MemoryLimitError(f"{error.filename}: {error.strerror}") from error

    def apply(self, wanted: Sequence[MemoryLimit]) -> None:
        """Limit the pods that are there; a refusal is logged when it changes."""
        folders = self._groups.find({one.pod for one in wanted}) if wanted else {}
        self._limited &= set(wanted)
        refusal = ""
        for one in wanted:
            folder = folders.get(one.pod)
            if folder is None:
                continue  # the kubelet has not made it yet
            try:
                self._limit(folder, one)
            except MemoryLimitError as error:
                if folder.is_dir():
                    refusal = f"pod {one.pod}: {error}"[:LONGEST_REFUSAL]
        if refusal and refusal != self.refusal:
            log.warning("GPU memory is not limited by the driver: %s", refusal)
        self.refusal = refusal

    def _limit(self, folder: Path, wanted: MemoryLimit) -> None:
        if self._driver.holds(folder, wanted.device, wanted.memory_mib):
            return
        above = [one for one in folder.parents if one.is_relative_to(self._system)]
        for group in reversed(above):
            enable_device_memory(group)
        self._driver.limit(folder, wanted.device, wanted.memory_mib)
        if wanted not in self._limited:  # where the driver tells no limits, they are set each time
            log.info("pod %s has %d MiB of GPU %s", wanted.pod, wanted.memory_mib, wanted.device)
        self._limited.add(wanted)
