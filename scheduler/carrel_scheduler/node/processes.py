"""Process trees of this machine: what they use, and at which ports they are connected.

The kernel's tables of sockets are read as the process sees them (``/proc/<pid>/net``), because a
user's processes may have a network namespace of their own; ``psutil`` reads its caller's only.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import psutil

_TABLES: Final = ("tcp", "tcp6")
_ESTABLISHED, _LISTEN = "01", "0A"
_INODE: Final = 9
MIB: Final = 1024 * 1024


class TreeUse(msgspec.Struct, frozen=True):
    """The use of a process and its descendants: CPU seconds so far, MiB resident now."""

    cpu_seconds: float
    memory_mib: float


def measure_tree(pid: int) -> TreeUse | None:
    """The use of a process tree; ``None`` when it is gone."""
    family = _family(pid)
    seconds, memory = 0.0, 0
    for process in family:
        try:
            times, resident = process.cpu_times(), process.memory_info().rss
        except psutil.Error:
            continue  # it ended while we looked
        seconds += times.user + times.system
        seconds += times.children_user + times.children_system
        memory += resident
    return TreeUse(seconds, memory / MIB) if family else None


def met_at(pids: Mapping[int, int], port: int) -> frozenset[int]:
    """The keys of processes that listen or are connected at a TCP port, their trees included."""
    return frozenset(
        key
        for key, pid in pids.items()
        if any(port in ports for ports in connections(pid, (_LISTEN, _ESTABLISHED)))
    )


def listening(pid: int) -> set[int]:
    """The TCP ports at which a process tree listens."""
    return {local for local, _ in connections(pid, (_LISTEN,))}


def connections(pid: int, states: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """(local port, remote port) of each socket of a process tree in these states."""
    for process in _family(pid):
        folder = Path("/proc", str(process.pid))
        try:
            own = _sockets(folder / "fd")
            for table in _TABLES:
                for line in (folder / "net" / table).read_text().splitlines()[1:]:
                    words = line.split()
                    if words[3] in states and words[_INODE] in own:
                        yield _port(words[1]), _port(words[2])
        except OSError:  # it has ended
            continue


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _sockets(folder: Path) -> set[str]:
    """Inodes of a process's open sockets."""
    targets = []
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed
            targets.append(str(entry.readlink()))
    return {one[len("socket:[") : -1] for one in targets if one.startswith("socket:[")}


def _family(pid: int) -> list[psutil.Process]:
    """A process and its descendants; empty when it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []
