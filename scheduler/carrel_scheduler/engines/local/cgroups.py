"""CPU, memory and process limits by control groups, where the machine lets us make them.

Version 1 (a hierarchy per controller) as root; version 2 as root below the top, or in a group that
was delegated to us. Elsewhere limits are not enforced, and ``Limiter.summary`` says why.
"""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import EngineError, TaskSpec
from carrel_scheduler.node.memory_limits import enable_device_memory

PERIOD_US: Final = 100_000
MIB: Final = 1024 * 1024
TRIES: Final = 20
SYSTEM: Final = Path("/sys/fs/cgroup")


class Groups(msgspec.Struct, frozen=True):
    """Control groups of one task: folders to join, and where the kernel counts memory kills."""

    folders: list[str] = []
    oom_files: list[str] = []


class Limiter:
    """Makes the control groups of tasks.

    Args:
        bases: folder below which the groups of a controller are made, by controller (``unified``
            in version 2); empty where limits are not enforced.
        version: 1 or 2 of control groups.
        counts_processes: whether the number of processes can be limited, too.
        refusal: why limits are not enforced; empty where they are.
    """

    def __init__(
        self,
        bases: Mapping[str, Path],
        version: int = 2,
        *,
        counts_processes: bool = False,
        refusal: str = "",
    ) -> None:
        self._bases, self._version = bases, version
        self.counts_processes, self.enforces = counts_processes, not refusal
        self.summary = (
            f"CPU and memory limits are not enforced: {refusal}."
            if refusal
            else "CPU and memory limits are enforced."
        )

    def make(self, task: TaskSpec, processes: int) -> Groups:
        """Create a task's control groups with its limits. Raises ``EngineError``."""
        name = str(task.id)
        try:
            for controller, base in self._bases.items():
                folder = self._make_group(base, name)
                for wanted, file, value in self._settings(task, processes):
                    if controller in (wanted, "unified"):
                        (folder / file).write_text(str(value))
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}"
            raise EngineError(f"the limits of task {name} cannot be set: {reason}") from error
        return self.find(name)

    def _make_group(self, base: Path, task: str) -> Path:
        for _ in range(TRIES):
            _make_base(base, self._version)
            with contextlib.suppress(FileNotFoundError):  # removed with the last task in it
                _make_folder(base / task)
                return base / task
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(base / task))

    def _settings(self, task: TaskSpec, processes: int) -> Iterator[tuple[str, str, int | str]]:
        """(controller, file, value) of each limit."""
        shares = max(2, task.cpu_milli * 1024 // 1000)
        weight = 1 + (min(shares, 262_144) - 2) * 9999 // 262_142  # mapped as Kubernetes does
        quota = max(1000, task.cpu_limit_milli * PERIOD_US // 1000)
        first = self._version == 1
        if task.cpu_milli:
            yield ("cpu", "cpu.shares", shares) if first else ("cpu", "cpu.weight", weight)
        if task.cpu_limit_milli and first:
            yield "cpu", "cpu.cfs_period_us", PERIOD_US
            yield "cpu", "cpu.cfs_quota_us", quota
        elif task.cpu_limit_milli:
            yield "cpu", "cpu.max", f"{quota} {PERIOD_US}"
        if task.memory_mib:
            file = "memory.limit_in_bytes" if first else "memory.max"
            yield "memory", file, task.memory_mib * MIB
            if not first:
                yield "memory", "memory.oom.group", 1
        if processes and self.counts_processes:
            yield "pids", "pids.max", processes

    def find(self, task: str) -> Groups:
        """The existing control groups of the task."""
        folders = {name: base / task for name, base in self._bases.items()}
        there = {name: folder for name, folder in folders.items() if folder.is_dir()}
        memory = there.get("memory" if self._version == 1 else "unified")
        file = "memory.oom_control" if self._version == 1 else "memory.events"
        return Groups(list(map(str, there.values())), [str(memory / file)] if memory else [])

    def unified(self, task: str) -> Path | None:
        """The task's control group of version 2, there or not; ``None`` where tasks have none."""
        base = self._bases.get("unified")
        return None if base is None else base / task

    @contextlib.contextmanager
    def trial_group(self) -> Iterator[Path | None]:
        """A control group of version 2 for a trial, removed at the end; see ``unified``.

        Raises ``OSError``.
        """
        base = self._bases.get("unified")
        if base is None:
            yield None
            return
        folder = self._make_group(base, f"trial-{os.getpid()}")
        try:
            yield folder
        finally:
            folder.rmdir()

    def close(self) -> None:
        """Remove the folders above the tasks' groups, unless they still have tasks."""
        for base in self._bases.values():
            with contextlib.suppress(OSError):  # busy: a task goes on; gone: nothing to do
                base.rmdir()


def base_name(root: Path) -> str:
    """The name of the group above the groups of an engine's tasks."""
    return "carrel-" + hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:12]


def find_limiter(root: Path, *, system: Path = SYSTEM, own: str | None = None) -> Limiter:
    """The limits that this machine allows; ``root`` keeps the groups of two engines apart.

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
    return Limiter({}, refusal="this machine mounts no control groups at /sys/fs/cgroup")


def _version_1(system: Path, name: str) -> Limiter:
    for controller in ("cpu", "memory"):
        if not _writable(system / controller):
            refusal = f"{system / controller} is not writable (run as root to enforce them)"
            return Limiter({}, refusal=refusal)
    counts = _writable(system / "pids")
    controllers = ("cpu", "memory", "pids") if counts else ("cpu", "memory")
    bases = {controller: system / controller / name for controller in controllers}
    return Limiter(bases, version=1, counts_processes=counts)


def _version_2(system: Path, name: str, own: str) -> Limiter:
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::")), "/")
    delegated = system / path.strip("/")
    parents = [parent for parent in dict.fromkeys((system, delegated)) if _writable(parent)]
    refusal = f"{delegated} is not delegated to this account (systemd: Delegate=yes)"
    for parent in parents:
        try:
            _enable(parent, delegated=parent == delegated and parent != system)
            _make_base(parent / name, 2)
            enable_device_memory(parent / name)  # of an earlier version it is without
        except OSError as error:
            refusal = f"{error.filename}: {error.strerror}"
            continue
        counts = "pids" in _controllers(parent)
        return Limiter({"unified": parent / name}, counts_processes=counts)
    return Limiter({}, refusal=refusal)


def _make_folder(group: Path) -> None:
    """Make a group that tasks can read their own limits in, whatever our umask is."""
    group.mkdir(exist_ok=True)
    group.chmod(0o755)


def _make_base(base: Path, version: int) -> None:
    if not base.is_dir():
        _make_folder(base)
        if version == 2:
            _enable(base, delegated=False)


def _enable(group: Path, *, delegated: bool) -> None:
    """Let subgroups have limits; processes of a delegated group move into a leaf first."""
    enabled = (group / "cgroup.subtree_control").read_text().split()
    wanted = ["cpu", "memory", *({"pids"} & _controllers(group))]
    if not set(wanted) <= set(enabled):
        if delegated:
            leaf = group / "carrel-service"
            leaf.mkdir(exist_ok=True)
            for pid in (group / "cgroup.procs").read_text().split():
                (leaf / "cgroup.procs").write_text(pid)
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in wanted))
    enable_device_memory(group)


def _controllers(group: Path) -> set[str]:
    """The controllers of the group."""
    return set((group / "cgroup.controllers").read_text().split())


def _writable(folder: Path) -> bool:
    return (
        folder.is_dir()
        and os.access(folder, os.W_OK)
        and not os.statvfs(folder).f_flag & os.ST_RDONLY
    )
