"""How many tasks of a claim fit on a node: one node, or all nodes at once."""

from collections.abc import Sequence

import numpy as np

from carrel_scheduler.core.preemption.search.claims import MANY, Claim, Ints, Room


def fitting(claim: Claim, devices: Room, host: Ints) -> Ints:
    """Tasks that fit on every node.

    Args:
        claim: what one task needs.
        devices: (D, M) room per device.
        host: (2, M) millicores and MiB.

    Returns:
        (M,) counts, for tasks without any need as many as ``most_per_node`` or ``MANY``.
    """
    fits = np.full(host.shape[1], claim.most_per_node or MANY, np.int64)
    if claim.width:
        np.minimum(fits, by_devices(claim, devices), out=fits)
    if claim.cpu_milli:
        np.minimum(fits, host[0] // claim.cpu_milli, out=fits)
    if claim.memory_mib:
        np.minimum(fits, host[1] // claim.memory_mib, out=fits)
    return np.maximum(fits, 0, out=fits)


def by_devices(claim: Claim, devices: Room) -> Ints:
    """(M,) tasks for which the devices alone suffice; a task's devices are distinct."""
    if claim.size * 2 > 1000:
        suits = np.count_nonzero(devices >= claim.size, axis=0)
        return np.asarray(suits // claim.width if claim.width > 1 else suits)
    slots = devices.astype(np.int64) // claim.size
    if claim.width == 1:
        return np.asarray(slots.sum(axis=0))
    best: Ints = slots.sum(axis=0) // claim.width
    while True:
        usable = np.minimum(slots, best).sum(axis=0) // claim.width
        if (usable >= best).all():
            return best
        best = np.minimum(best, usable)


def fitting_one(claim: Claim, devices: Sequence[int], cpu_milli: int, memory_mib: int) -> int:
    """Tasks that fit on one node; the scalar twin of `fitting`."""
    fits = claim.most_per_node or MANY
    if claim.cpu_milli:
        fits = min(fits, cpu_milli // claim.cpu_milli)
    if claim.memory_mib:
        fits = min(fits, memory_mib // claim.memory_mib)
    if claim.width and fits > 0:
        fits = min(fits, _by_slots(claim.width, [room // claim.size for room in devices]))
    return max(fits, 0)


def _by_slots(width: int, slots: list[int]) -> int:
    best = sum(slots) // width
    while width > 1 and (usable := sum(min(slot, best) for slot in slots) // width) < best:
        best = usable
    return best
