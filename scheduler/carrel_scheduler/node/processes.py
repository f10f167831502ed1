"""Which processes of this machine have met at a port: they listen there or are connected to it.

The kernel's tables are read as the process sees them (``/proc/<pid>/net``), because a user's
processes may have a network of their own; ``psutil`` knows that of its caller only.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil

_TABLES: Final = ("tcp", "tcp6")
_ESTABLISHED, _LISTEN = "01", "0A"
_INODE: Final = 9


def met_at(pids: Mapping[int, int], port: int) -> frozenset[int]:
    """The keys of those whose process, or a child of it, has met others at a TCP port.

    Args:
        pids: main processes, by whatever key the caller knows them.
        port: at which they meet.
    """
    return frozenset(
        key
        for key, pid in pids.items()
        if any(port in ports for ports in connections(pid, (_LISTEN, _ESTABLISHED)))
    )


def listening(pid: int) -> set[int]:
    """The TCP ports at which a process or a child of it listens."""
    return {local for local, _ in connections(pid, (_LISTEN,))}


def connections(pid: int, states: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """(own port, other's port) of each socket of a process or its children in these states."""
    for process in _family(pid):
        folder = Path("/proc", str(process))
        try:
            own = _sockets(folder / "fd")
            for table in _TABLES:
                for line in (folder / "net" / table).read_text().splitlines()[1:]:
                    words = line.split()
                    if words[3] in states and words[_INODE] in own:
                        yield _port(words[1]), _port(words[2])
        except OSError:  # it has ended meanwhile
            continue


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _sockets(folder: Path) -> set[str]:
    """Numbers of the sockets that a process has open."""
    targets = []
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            targets.append(str(entry.readlink()))
    return {one[len("socket:[") : -1] for one in targets if one.startswith("socket:[")}


def _family(pid: int) -> list[int]:
    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.Error:
        return []
