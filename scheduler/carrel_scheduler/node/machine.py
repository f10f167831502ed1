"""CPU, memory and devices of this machine, as far as this process may use them.

Affinity and control groups limit CPU and memory. Devices are its real GPUs or simulated ones, never
a mixture.
"""

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Final

import psutil
import pynvml

from carrel_scheduler.node.contract import DeviceProvider, NodeFacts
from carrel_scheduler.node.mig import MigDevices, NvmlMig, SimulatedMig
from carrel_scheduler.node.nvml import NvmlProvider, open_nvml
from carrel_scheduler.node.simulated import SimulatedProvider

MIB: Final = 1024 * 1024
_UNBOUNDED: Final = 1 << 60
DEFAULT_SIMULATED: Final = 4
MOST_SIMULATED: Final = 64
"""The most simulated GPUs of a node."""
_log = logging.getLogger(__name__)


def cpu_milli(system: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> int:
    """Millicores that this process may use.

    Args:
        system: where control groups are mounted.
        own: text of ``/proc/self/cgroup``.
    """
    bound = len(os.sched_getaffinity(0)) * 1000
    for folder in _groups(system, "cpu", own):
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        text = _text(folder / "cpu.max").split()
        if len(text) == 2 and text[0].isdigit():
            quota, period = int(text[0]), int(text[1])
        if quota and period and quota > 0:
            bound = min(bound, max(1, quota * 1000 // period))
    return bound


def memory_mib(system: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> int:
    """MiB of memory that this process may use; arguments as in ``cpu_milli``."""
    bound: int = psutil.virtual_memory().total
    for folder in _groups(system, "memory", own):
        for name in ("memory.limit_in_bytes", "memory.max"):
            limit = _read(folder / name)
            if limit is not None and 0 < limit < _UNBOUNDED:
                bound = min(bound, limit)
    return bound // MIB


def _groups(system: Path, controller: str, own: str | None) -> Iterator[Path]:
    """The own control group of a controller and all its parents, in both versions."""
    text = _text(Path("/proc/self/cgroup")) if own is None else own
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", controller) and controller not in controllers.split(","):
            continue
        base = system / controllers if controllers else system
        inside = PurePosixPath(path.strip("/"))
        yield base / inside
        yield from (base / above for above in inside.parents)


def _read(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _text(path: Path) -> str:
    """Content of a file, empty where there is none: most of them exist in one version only."""
    try:
        return path.read_text()
    except OSError:
        return ""


def detect(
    gpus: int | None,
    gpu_memory_mib: int,
    name: str,
    *,
    node_name: str = "",
    mig: MigDevices | None = None,
    nvml: ModuleType = pynvml,
) -> DeviceProvider:
    """Real devices if there are any and ``gpus`` is ``None``, else simulated ones.

    Args:
        gpus: how many simulated devices; ``None`` asks for the real ones first.
        gpu_memory_mib: of each simulated device.
        name: model that simulated devices pose as.
        node_name: of this machine; empty means its host name.
        mig: what ``find_mig`` found; simulated devices are then of its model.
        nvml: the ``pynvml`` module.

    Raises:
        ValueError: a number that makes no sense, naming field, value and what would be right.
        NvmlUnusable: there are real devices, but their driver does not work.
    """
    if gpus is not None and not 0 <= gpus <= MOST_SIMULATED:
        raise ValueError(f"gpus={gpus}: a number from 0 to {MOST_SIMULATED} is right")
    if gpu_memory_mib <= 0:
        raise ValueError(f"memory_mib={gpu_memory_mib}: a number above 0 is right")
    node = NodeFacts(
        name=node_name or socket.gethostname(),
        cpu_milli=cpu_milli(),
        memory_mib=memory_mib(),
        devices=(),
        simulated=False,
        mig_model=mig.model.name if mig else "",
    )
    if gpus is None and open_nvml(nvml):
        return NvmlProvider(node, nvml, only_whole=mig is None)
    count = DEFAULT_SIMULATED if gpus is None else gpus
    if isinstance(mig, SimulatedMig):
        name = mig.model.name
        gpu_memory_mib = max(one.memory_mib for one in mig.model.profiles.values())
    _log.info("%d simulated GPUs of %d MiB", count, gpu_memory_mib)
    return SimulatedProvider(
        node,
        count=count,
        memory_mib=gpu_memory_mib,
        name=name,
        mig=mig if isinstance(mig, SimulatedMig) else None,
    )


def find_mig(gpus: int | None, *, nvml: ModuleType = pynvml) -> MigDevices:
    """Find this machine's GPUs for MIG on demand; arguments as in ``detect``.

    MIG mode of real ones is on when it returns. Raises ``MigUnusable`` and ``NvmlUnusable``.
    """
    if gpus is None and open_nvml(nvml):
        found = NvmlMig(nvml)
        found.enable()
        return found
    return SimulatedMig()
