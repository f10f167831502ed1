"""CPU and memory limits by control groups, where the machine lets us make them.

Version 1 (a hierarchy per resource) as root; version 2 as root below the top, or in a group that
was delegated to us. Elsewhere limits are not enforced, and ``summary`` says so.
"""

import contextlib
import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from carrel_scheduler.engines.contract import EngineError

PERIOD_US: Final = 100_000
MIB: Final = 1024 * 1024
TRIES: Final = 20
SYSTEM: Final = Path("/sys/fs/cgroup")


class Groups(msgspec.Struct, frozen=True):
    """Control groups of one task: folders to join, and where the kernel counts memory kills."""

    folders: list[str] = []
    oom_files: list[str] = []


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a task may take; 0 means not bounded.

    Attributes:
        cpu_milli: its share of the processors while others want them, too.
        cpu_limit_milli: never more than this, also of idle processors.
        memory_mib: never more than this.
        processes: never more than this many, threads counted.
    """

    cpu_milli: int = 0
    cpu_limit_milli: int = 0
    memory_mib: int = 0
    processes: int = 0

    @property
    def shares(self) -> int:
        """The share in the unit of version 1: 1024 for one processor, at least 2."""
        return max(2, self.cpu_milli * 1024 // 1000)

    @property
    def weight(self) -> int:
        """The share in the unit of version 2, 1 to 10,000, mapped as Kubernetes does."""
        return 1 + (min(self.shares, 262_144) - 2) * 9999 // 262_142


class Limiter(Protocol):
    """Makes the groups of tasks."""

    summary: str
    enforces: bool
    counts_processes: bool

    def make(self, task: str, bounds: Bounds) -> Groups:
        """Groups with these bounds. Raises ``EngineError``."""
        ...

    def find(self, task: str) -> Groups:
        """Groups that the task has now."""
        ...

    def close(self) -> None:
        """Remove what is empty."""
        ...


class NoLimiter:
    """Where control groups are not ours to make."""

    enforces = False
    counts_processes = False

    def __init__(self, why: str) -> None:
        self.summary = f"CPU and memory limits are not enforced: {why}."

    def make(self, task: str, bounds: Bounds) -> Groups:  # noqa: ARG002 - contract
        """No groups."""
        return Groups()

    def find(self, task: str) -> Groups:  # noqa: ARG002 - contract
        """No groups."""
        return Groups()

    def close(self) -> None:
        """Nothing to remove."""


class FolderLimiter:
    """Limits by writing into group folders.

    Args:
        bases: folder below which the groups of a controller are made, by controller.
        version: 1 or 2 of control groups.
        counts_processes: whether the number of processes can be limited, too.
    """

    summary = "CPU and memory limits are enforced."
    enforces = True

    def __init__(self, bases: dict[str, Path], version: int, *, counts_processes: bool) -> None:
        self._bases, self._version = bases, version
        self.counts_processes = counts_processes

    def make(self, task: str, bounds: Bounds) -> Groups:
        """Groups with these bounds."""
        settings = self._settings(bounds)
        try:
            for name, base in self._bases.items():
                folder = self._make_group(base, task)
                for file, value in settings[name]:
                    (folder / file).write_text(value)
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}"
            raise EngineError(f"the limits of task {task} cannot be set: {reason}") from error
        return self.find(task)

    def _make_group(self, base: Path, task: str) -> Path:
        for _ in range(TRIES):
            _make_base(base, self._version)
            with contextlib.suppress(FileNotFoundError):  # the last task took the base along
                _make_folder(base / task)
                return base / task
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(base / task))

    def _settings(self, bounds: Bounds) -> dict[str, list[tuple[str, str]]]:
        quota = str(max(1000, bounds.cpu_limit_milli * PERIOD_US // 1000))
        cpu: list[tuple[str, str]] = []
        memory: list[tuple[str, str]] = []
        first = self._version == 1
        if bounds.cpu_milli:
            cpu.append(
                ("cpu.shares", str(bounds.shares)) if first else ("cpu.weight", str(bounds.weight))
            )
        if bounds.cpu_limit_milli and first:
            cpu += [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", quota)]
        elif bounds.cpu_limit_milli:
            cpu.append(("cpu.max", f"{quota} {PERIOD_US}"))
        if bounds.memory_mib:
            most = str(bounds.memory_mib * MIB)
            second = [("memory.max", most), ("memory.oom.group", "1")]
            memory = [("memory.limit_in_bytes", most)] if first else second
        pids: list[tuple[str, str]] = []
        if bounds.processes and self.counts_processes:
            pids.append(("pids.max", str(bounds.processes)))
        return {"cpu": cpu, "memory": memory, "pids": pids, "unified": cpu + memory + pids}

    def find(self, task: str) -> Groups:
        """Groups that exist for the task."""
        folders = {name: base / task for name, base in self._bases.items()}
        there = [str(folder) for folder in folders.values() if folder.is_dir()]
        file = "memory.oom_control" if self._version == 1 else "memory.events"
        memory = folders["memory" if self._version == 1 else "unified"]
        return Groups(there, [str(memory / file)] if memory.is_dir() else [])

    def close(self) -> None:
        """Remove our own folders unless tasks are in them."""
        for base in self._bases.values():
            with contextlib.suppress(OSError):  # busy: a task goes on; gone: nothing to do
                base.rmdir()


def base_name(root: Path) -> str:
    """Name of the group that holds the groups of an engine's tasks."""
    return "carrel-" + hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:12]


def find_limiter(root: Path, *, system: Path = SYSTEM, own: str | None = None) -> Limiter:
    """What this machine allows; ``root`` keeps the groups of two engines apart.

    Args:
        root: the engine's state folder.
        system: where control groups are mounted.
        own: text of ``/proc/self/cgroup``.
    """
    name = base_name(root)
    if (system / "memory" / "memory.limit_in_bytes").exists():
        return _version_1(system, name)
    if (system / "cgroup.controllers").exists():
        text = Path("/proc/self/cgroup").read_text() if own is None else own
        return _version_2(system, name, text)
    return NoLimiter("this machine mounts no control groups at /sys/fs/cgroup")


def _version_1(system: Path, name: str) -> Limiter:
    bases = {controller: system / controller for controller in ("cpu", "memory")}
    closed = [str(base) for base in bases.values() if not _writable(base)]
    if closed:
        return NoLimiter(f"{closed[0]} is not writable (run as root to enforce them)")
    counts = _writable(system / "pids")
    if counts:
        bases["pids"] = system / "pids"
    found = {key: base / name for key, base in bases.items()}
    return FolderLimiter(found, version=1, counts_processes=counts)


def _version_2(system: Path, name: str, own: str) -> Limiter:
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::")), "/")
    delegated = system / path.strip("/")
    parents = [system] if _writable(system) else []
    if delegated != system and _writable(delegated):
        parents.append(delegated)
    why = f"{delegated} is not delegated to this account (systemd: Delegate=yes)"
    for parent in parents:
        try:
            _enable(parent, delegated=parent == delegated and parent != system)
            _make_base(parent / name, 2)
        except OSError as error:
            why = f"{error.filename}: {error.strerror}"
            continue
        counts = "pids" in _controllers(parent)
        return FolderLimiter({"unified": parent / name}, version=2, counts_processes=counts)
    return NoLimiter(why)


def _make_folder(group: Path) -> None:
    """Tasks read their own limits in it, whatever our mask is."""
    group.mkdir(exist_ok=True)
    group.chmod(0o755)


def _make_base(base: Path, version: int) -> None:
    if not base.is_dir():
        _make_folder(base)
        if version == 2:
            _enable(base, delegated=False)


def _enable(group: Path, *, delegated: bool) -> None:
    """Let subgroups have limits; processes of a delegated group step aside into a leaf first."""
    enabled = (group / "cgroup.subtree_control").read_text().split()
    wanted = ["cpu", "memory", *({"pids"} & _controllers(group))]
    if set(wanted) <= set(enabled):
        return
    if delegated:
        leaf = group / "carrel-service"
        leaf.mkdir(exist_ok=True)
        for pid in (group / "cgroup.procs").read_text().split():
            (leaf / "cgroup.procs").write_text(pid)
    (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))


def _controllers(group: Path) -> set[str]:
    """What the group could limit."""
    return set((group / "cgroup.controllers").read_text().split())


def _writable(folder: Path) -> bool:
    return (
        folder.is_dir()
        and os.access(folder, os.W_OK)
        and not os.statvfs(folder).f_flag & os.ST_RDONLY
    )
