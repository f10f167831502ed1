"""Question and answer of the search over arrays.

A preemptor asks for capacity for identical tasks. Candidates are the placed tasks that may be
evicted; they go in units that cannot be divided (a whole job, or one surplus member), as far as the
budgets of their queues allow. The answer is a set of units with the nodes on which they free
capacity, a proof that no set exists, or the admission that none was found within the limits of the
search.

Units of measure: thousandths of a device, millicores, MiB; costs are integers, larger is worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from carrel_scheduler.core.resources import MILLI

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
FreeDevices = NDArray[np.integer]
"""(D, N) free thousandths of every device of every node, of any integer type."""

MANY: Final = 1 << 30
"""More tasks than any node holds."""


@dataclass(frozen=True, slots=True)
class GangRequest:
    """Capacity for ``tasks`` identical tasks.

    Attributes:
        tasks: how many.
        width: devices that one task needs; 0 for a task without.
        size: thousandths that it needs on each of them; 1000 for whole devices.
        cpu_milli: millicores of one task.
        memory_mib: MiB of one task.
        most_per_node: so many tasks at most on one node; 0 for any number.
    """

    tasks: int
    width: int = 0
    size: int = MILLI
    cpu_milli: int = 0
    memory_mib: int = 0
    most_per_node: int = 0


@dataclass(frozen=True, slots=True)
class EligibleNodes:
    """The nodes before any eviction.

    Attributes:
        eligible: (N,) nodes that the tasks may use.
        devices: (D, N) free thousandths per device.
        host: (2, N) free millicores and MiB.
        rank: (N,) place of the node among equals, no two alike.
    """

    eligible: Bools
    devices: FreeDevices
    host: Ints
    rank: Ints


@dataclass(frozen=True, slots=True)
class Candidates:
    """Placed tasks that may be evicted, and the units in which they go.

    Attributes:
        node: (V,) where a task lies.
        mask: (V,) uint64, the devices it holds, bit d for device d; 0 for none.
        share: (V,) thousandths it holds on each of them.
        cpu_milli: (V,) millicores.
        memory_mib: (V,) MiB.
        queue: (V,) slot of its leaf queue; the same for all tasks of a unit.
        unit: (V,) its unit, 0..U-1; a unit may lie on several nodes.
        cost: (U,) work lost by evicting the unit, at least 0.
        order: (U,) place in the order of victims, no two alike: the smallest goes first.
        counted: (V,) thousandths of GPUs that it holds beside the devices, for its queue alone.
    """

    node: Ints
    mask: NDArray[np.uint64]
    share: Ints
    cpu_milli: Ints
    memory_mib: Ints
    queue: Ints
    unit: Ints
    cost: Ints
    order: Ints
    counted: Ints


@dataclass(frozen=True, slots=True)
class Cleared:
    """Units whose eviction frees enough; ``nodes`` (m,) has a node for every task."""

    units: Ints
    nodes: Ints
    cost: int


@dataclass(frozen=True, slots=True)
class Impossible:
    """A proof that no legal set of victims suffices.

    ``bound``: ``nodes`` (evicting everybody would not do), ``budgets`` (all queues together may not
    lose enough) or ``search`` (every combination was looked at).
    """

    bound: str


@dataclass(frozen=True, slots=True)
class SearchLimitReached:
    """Neither a set nor a proof within the limits of the search."""


Answer = Cleared | Impossible | SearchLimitReached


def fitting(request: GangRequest, devices: FreeDevices, host: Ints) -> Ints:
    """(M,) tasks that fit on every node, at most ``MANY``.

    Args:
        request: what one task needs.
        devices: (D, M) capacity per device.
        host: (2, M) millicores and MiB.
    """
    fits = np.full(host.shape[1], request.most_per_node or MANY, np.int64)
    if request.width:
        np.minimum(fits, _by_devices(request, devices), out=fits)
    if request.cpu_milli:
        np.minimum(fits, host[0] // request.cpu_milli, out=fits)
    if request.memory_mib:
        np.minimum(fits, host[1] // request.memory_mib, out=fits)
    return np.maximum(fits, 0, out=fits)


def _by_devices(request: GangRequest, devices: FreeDevices) -> Ints:
    """(M,) tasks for which the devices alone suffice; a task's devices are distinct."""
    if request.size * 2 > MILLI:
        suits = np.count_nonzero(devices >= request.size, axis=0)
        return np.asarray(suits // request.width if request.width > 1 else suits)
    slots = devices.astype(np.int64) // request.size
    best: Ints = slots.sum(axis=0) // request.width
    while request.width > 1:
        usable = np.minimum(slots, best).sum(axis=0) // request.width
        if (usable >= best).all():
            break
        best = np.minimum(best, usable)
    return best


def fitting_one(
    request: GangRequest, devices: Sequence[int], cpu_milli: int, memory_mib: int
) -> int:
    """Tasks that fit on one node: ``fitting`` for plain integers."""
    fits = request.most_per_node or MANY
    if request.cpu_milli:
        fits = min(fits, cpu_milli // request.cpu_milli)
    if request.memory_mib:
        fits = min(fits, memory_mib // request.memory_mib)
    if request.width and fits > 0:
        slots = [free // request.size for free in devices]
        best = sum(slots) // request.width
        while (usable := sum(min(s, best) for s in slots) // request.width) < best:
            best = usable
        fits = min(fits, best)
    return max(fits, 0)
