"""Whose program listens on a port of the loopback: read from the kernel's tables.

Where accounts share a machine they share its loopback, so a port says nothing about whose it is.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_LISTENS: Final = "0A"


def foreign_listener(port: int, tables: tuple[Path, ...] = TABLES) -> bool:
    """Whether a program of another account listens on this port."""
    return any(uid != os.geteuid() for table in tables for uid in _listeners(table, port))


def _listeners(table: Path, port: int) -> Iterator[int]:
    """The accounts of sockets that listen on a port, by one of the kernel's tables."""
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:  # without IPv6 there is no such table
        return
    for line in lines:
        fields = line.split()
        if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            yield int(fields[7])
