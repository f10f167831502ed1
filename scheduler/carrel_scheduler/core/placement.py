"""Where tasks go: bin packing.

Used nodes are filled first: the node with the fewest free GPUs that still fits (for work without
GPUs: nodes without GPUs first, then the fewest free millicores), ties by name. Identical tasks of
a gang therefore fill node after node. On a node the lowest free devices are taken, those that are
free at once before those that are being released.
"""

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.room import Room
from carrel_scheduler.core.workloads import Shape

LAST = np.int64(1 << 62)
WITH_GPUS = np.int64(1 << 40)


def place(room: Room, shape: Shape, eligible: Bools, *, soon: bool) -> tuple[Footprint, ...] | None:
    """Places for all tasks of a shape, in index order, or ``None``; the room is not changed.

    Args:
        room: the room of this cycle.
        shape: request of a task, number of tasks.
        eligible: (N,) the nodes that may be used.
        soon: also use room that is being released; room that is free at once comes first.
    """
    now = room.counts(shape, eligible, soon=False)
    chosen = _choose(now, _crowdedness(room, shape, soon=False), shape[3])
    missing = shape[3] - sum(chosen.values())
    if missing and not soon:
        return None
    if missing:
        later = room.counts(shape, eligible, soon=True)
        for node, count in chosen.items():
            later[node] -= count
        for node, count in _choose(later, _crowdedness(room, shape, soon=True), missing).items():
            chosen[node] = chosen.get(node, 0) + count
        if sum(chosen.values()) < shape[3]:
            return None
    return tuple(
        footprint for node, count in chosen.items() for footprint in _on(room, shape, node, count)
    )


def _crowdedness(room: Room, shape: Shape, *, soon: bool) -> Counts:
    """(N,) sort key: smaller is filled first; ties are broken by name in the lowest digits."""
    devices = room.soon_devices if soon else room.idle_devices
    rank = room.nodes.rank
    if shape[0]:
        return devices * np.int64(len(rank) + 1) + rank
    cpu = room.soon_host[0] if soon else room.idle_host[0]
    with_gpus: Counts = np.where(room.nodes.devices > 0, WITH_GPUS, np.int64(0))
    key: Counts = (with_gpus + cpu) * np.int64(len(rank) + 1) + rank
    return key


def _choose(counts: Counts, key: Counts, tasks: int) -> dict[int, int]:
    """Fill nodes in the order of the key until all tasks have a place or nothing is left."""
    if tasks == 1:
        key = np.where(counts > 0, key, LAST)
        best = int(key.argmin()) if len(key) else 0
        return {best: 1} if len(key) and key[best] != LAST else {}
    fit = np.flatnonzero(counts > 0)
    chosen: dict[int, int] = {}
    for node in fit[np.argsort(key[fit], kind="stable")]:
        chosen[int(node)] = min(tasks, int(counts[node]))
        tasks -= chosen[int(node)]
        if not tasks:
            break
    return chosen


def _on(room: Room, shape: Shape, node: int, count: int) -> list[Footprint]:
    wanted = shape[0] // MILLI
    now, later = room.devices_of(node) if wanted else ([], [])
    devices = now + later
    return [
        Footprint(
            node,
            tuple(sorted(devices[task * wanted : (task + 1) * wanted])),
            MILLI,
            shape[1],
            shape[2],
        )
        for task in range(count)
    ]
