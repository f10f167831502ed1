"""CPU and memory of this machine, as far as we may use them (affinity and control groups)."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import psutil

MIB: Final = 1024 * 1024
_UNBOUNDED: Final = 1 << 60


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
    """Our control group of a controller and all those around it, in both versions."""
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
