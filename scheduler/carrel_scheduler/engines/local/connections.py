"""Which processes of this machine have met at a port: they listen there or are connected to it."""

from collections.abc import Iterator, Mapping
from typing import Final

import psutil

_MET: Final = frozenset({psutil.CONN_LISTEN, psutil.CONN_ESTABLISHED})


def met_at(pids: Mapping[int, int], port: int) -> frozenset[int]:
    """The keys of those whose process, or a child of it, has met others at a TCP port.

    Args:
        pids: main processes, by whatever key the caller knows them.
        port: at which they meet.
    """
    return frozenset(key for key, pid in pids.items() if any(_met(pid, port)))


def _met(pid: int, port: int) -> Iterator[bool]:
    for process in _family(pid):
        try:
            connections = process.net_connections("tcp")
        except psutil.Error:  # it has ended meanwhile
            continue
        for one in connections:
            ports = {address.port for address in (one.laddr, one.raddr) if address}
            yield one.status in _MET and port in ports


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []
