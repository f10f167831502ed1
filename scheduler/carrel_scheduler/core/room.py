"""The room of one cycle: an overlay of the node columns on which moves are tried and undone.

Three gross layers (free, being released, promised) are copied from the state; what follows from
them is kept beside them per node. What is promised takes from what is being released first:

    soon = free + releasing - promised      room for new work, once what stops has stopped
    idle = min(free, soon)                  room for new work at once

All amounts are integers, so undoing a move restores the room exactly.
"""

from collections.abc import Iterable

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.nodes import NodeColumns
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.tasks import TaskColumns
from carrel_scheduler.core.workloads import Shape

PLENTY = np.int64(1 << 40)


class Room:
    """What is free, coming and promised on every node.

    Attributes:
        idle_devices, soon_devices: (N,) whole devices free for new work, now and soon.
        idle_host, soon_host: (2, N) millicores and MiB, now and soon.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self.free = nodes.free.copy()
        self.releasing = nodes.releasing.copy()
        self.promised = nodes.promised.copy()
        self._open: Bools = nodes.usable & nodes.schedulable
        soon = self._soon_of(slice(None))
        idle = np.minimum(self.free.devices, soon)
        self.idle_devices: Counts = (idle >= MILLI).sum(axis=0, dtype=np.int64)
        self.soon_devices: Counts = (soon >= MILLI).sum(axis=0, dtype=np.int64)
        host = self.free.host + self.releasing.host - self.promised.host
        self.soon_host: Counts = np.where(nodes.schedulable, np.maximum(host, 0), 0)
        self.idle_host: Counts = np.minimum(np.maximum(self.free.host, 0), self.soon_host)

    # Moves

    def bind(self, place: Footprint) -> None:
        """A task takes free room."""
        self.free.subtract(place)
        self._derive(place.node)

    def evict(self, place: Footprint) -> None:
        """A running task is told to stop: its room is coming."""
        self.releasing.add(place)
        self._derive(place.node)

    def keep(self, place: Footprint) -> None:
        """The opposite of ``evict``."""
        self.releasing.subtract(place)
        self._derive(place.node)

    def promise(self, places: Iterable[Footprint]) -> None:
        """Hold room, free or coming, for waiting work."""
        for place in places:
            self.promised.add(place)
            self._derive(place.node)

    def lift(self, places: Iterable[Footprint]) -> None:
        """The opposite of ``promise``."""
        for place in places:
            self.promised.subtract(place)
            self._derive(place.node)

    # Questions

    def counts(self, shape: Shape, eligible: Bools, *, soon: bool) -> Counts:
        """(N,) how many tasks of this shape each node has room for."""
        devices = self.soon_devices if soon else self.idle_devices
        host = self.soon_host if soon else self.idle_host
        return fitting(shape, eligible, devices, host)

    def coming(self, node: int) -> list[int]:
        """Whole devices, millicores and MiB of a node soon; below zero where it lost capacity."""
        free, releasing, promised = self.free.host, self.releasing.host, self.promised.host
        host = (free[:, node] + releasing[:, node] - promised[:, node]).tolist()
        return [int(self.soon_devices[node]), *host]

    def usable(self, place: Footprint) -> int:
        """How many devices of a place may be used again when it is free."""
        return sum(self._open.item(device, place.node) for device in place.devices)

    def devices_of(self, node: int) -> tuple[list[int], list[int]]:
        """The whole devices of a node with room for new work: at once, and only soon."""
        soon = self._soon_of(node)
        idle = np.minimum(self.free.devices[:, node], soon)
        now = [int(d) for d in np.flatnonzero(idle >= MILLI)]
        later = [int(d) for d in np.flatnonzero((soon >= MILLI) & (idle < MILLI))]
        return now, later

    def has_now(self, places: Iterable[Footprint]) -> bool:
        """Whether all these places are idle at the same time."""
        return self._has(places, soon=False)

    def has_soon(self, places: Iterable[Footprint]) -> bool:
        """Whether all these places are idle or coming, at the same time."""
        return self._has(places, soon=True)

    def _has(self, places: Iterable[Footprint], *, soon: bool) -> bool:
        wanted: dict[int, list[int]] = {}
        for place in places:
            here = wanted.setdefault(place.node, [0, 0])
            here[0] += place.cpu
            here[1] += place.memory
            room = self._soon_of(place.node)
            if not soon:
                room = np.minimum(self.free.devices[:, place.node], room)
            if any(int(room[device]) < place.share for device in place.devices):
                return False
        host = self.soon_host if soon else self.idle_host
        return all(
            bool(self.nodes.schedulable[node])
            and cpu <= int(host[0, node])
            and memory <= int(host[1, node])
            for node, (cpu, memory) in wanted.items()
        )

    def cleared(self, tasks: TaskColumns, rows: Counts, nodes: Counts) -> tuple[Counts, Counts]:
        """Room of these nodes if these running tasks, all of them there, were gone too.

        Returns:
            Whole devices (n,) and millicores and MiB (2, n), in the order of ``nodes``, which are
            sorted.
        """
        soon = self._soon_of(nodes)
        host = self.free.host[:, nodes] + self.releasing.host[:, nodes]
        host -= self.promised.host[:, nodes]
        there = np.searchsorted(nodes, tasks.node[rows])
        masks, shares = tasks.mask[rows], tasks.share[rows]
        for device in range(len(soon)):
            here = ((masks >> np.uint64(device)) & np.uint64(1)).astype(np.bool_)
            np.add.at(soon[device], there[here], shares[here])
        devices = ((soon >= MILLI) & self._open[:, nodes]).sum(axis=0, dtype=np.int64)
        for row in (0, 1):
            np.add.at(host[row], there, tasks.host[row, rows])
        return devices, np.maximum(host, 0)

    # Derived columns

    def _soon_of(
        self, node: int | slice | Counts
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int16]]:
        soon = self.free.devices[:, node] + self.releasing.devices[:, node]
        soon -= self.promised.devices[:, node]
        return np.where(self._open[:, node], soon, np.int16(0))

    def _derive(self, node: int) -> None:
        soon = self._soon_of(node)
        idle = np.minimum(self.free.devices[:, node], soon)
        self.soon_devices[node] = np.count_nonzero(soon >= MILLI)
        self.idle_devices[node] = np.count_nonzero(idle >= MILLI)
        for row in (0, 1):
            free = int(self.free.host[row, node])
            host = free + int(self.releasing.host[row, node] - self.promised.host[row, node])
            host = max(0, host) if self.nodes.schedulable[node] else 0
            self.soon_host[row, node] = host
            self.idle_host[row, node] = min(max(0, free), host)


def fitting(shape: Shape, eligible: Bools, devices: Counts, host: Counts) -> Counts:
    """(N,) how many tasks of a shape fit into so many devices, millicores and MiB, per node."""
    most = np.where(eligible, np.int64(shape[3]), np.int64(0))
    if shape[0]:
        most = np.minimum(most, devices // (shape[0] // MILLI))
    if shape[1]:
        most = np.minimum(most, host[0] // shape[1])
    if shape[2]:
        most = np.minimum(most, host[1] // shape[2])
    return most


def tasks_in(room: list[int], shape: Shape) -> int:
    """How many tasks of a shape fit into so many devices, millicores and MiB."""
    most = shape[3]
    if shape[0]:
        most = min(most, room[0] // (shape[0] // MILLI))
    if shape[1]:
        most = min(most, max(0, room[1]) // shape[1])
    if shape[2]:
        most = min(most, max(0, room[2]) // shape[2])
    return most
