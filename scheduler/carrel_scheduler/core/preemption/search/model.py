"""Question and answer of the search over arrays.

A preemptor asks for capacity for identical tasks. Candidates are the placed tasks that may be
evicted; they go in units that cannot be divided (a whole job, or one surplus member), as far as the
budgets of their queues allow. The answer is a set of units with the nodes on which they free
capacity, a proof that no set exists, or the admission that none was found within the limits of the
search.

The layout puts a set of candidates on their nodes, once. ``devices`` and ``host`` are the capacity
of every node with all of them evicted: the most that any legal set can free. Two bounds follow,
proofs of "no" before anything is tried:

B0, nodes: identical tasks only need a count, so fewer places than tasks is a proof, and where no
budget binds the count is reached. B1, budgets: the devices that are free now and those that the
tree of queues can lose at most, together.

Units of measure: thousandths of a device, millicores, MiB; costs are integers, larger is worse.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.search.budgets import UnitBudgets, most_gpus
from carrel_scheduler.core.resources import MILLI

FreeDevices = NDArray[np.integer]
"""(D, N) free thousandths of every device of every node, of any integer type."""

MANY: Final = 1 << 30
"""A number of tasks that no node holds."""


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
    host: Counts
    rank: Counts


@dataclass(frozen=True, slots=True)
class Candidates:
    """Placed tasks that may be evicted, and the units in which they go.

    Attributes:
        node: (V,) where a task lies.
        mask: (V,) uint64, the devices it holds, bit d for device d; 0 for none.
        share: (V,) thousandths it holds on each of them.
        cpu_milli: (V,) millicores.
        memory_mib: (V,) MiB.
        unit: (V,) its unit, 0..U-1; a unit may lie on several nodes.
        cost: (U,) work lost by evicting the unit, at least 0.
        order: (U,) place in the order of victims, no two alike: the smallest goes first.
        alone: every unit is one task, in the order of the tasks.
    """

    node: Counts
    mask: NDArray[np.uint64]
    share: Counts
    cpu_milli: Counts
    memory_mib: Counts
    unit: Counts
    cost: Counts
    order: Counts
    alone: bool


@dataclass(frozen=True, slots=True)
class Cleared:
    """Units whose eviction frees enough; ``nodes`` (m,) has a node for every task."""

    units: Counts
    nodes: Counts
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


def fitting(request: GangRequest, devices: FreeDevices, host: Counts) -> Counts:
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


def _by_devices(request: GangRequest, devices: FreeDevices) -> Counts:
    """(M,) tasks for which the devices alone suffice; a task's devices are distinct."""
    if request.size * 2 > MILLI:
        suits = np.count_nonzero(devices >= request.size, axis=0)
        return np.asarray(suits // request.width if request.width > 1 else suits)
    slots = devices.astype(np.int64) // request.size
    best: Counts = slots.sum(axis=0) // request.width
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


@dataclass(slots=True)
class Layout:
    """A set of candidates on their nodes.

    Attributes:
        free: the nodes before any eviction.
        candidates: the set as given.
        budgets: seen by its units.
        rows: (R,) indices into the candidates' columns, by node: tasks of units that may go, on
            eligible nodes.
        start: (N + 1,) where a node's rows begin.
        devices: (D, N) int16, capacity per device with all candidates evicted.
        host: (2, N) millicores and MiB with all candidates evicted.
        later: gives the candidates with their costs, which no bound needs; see ``weigh``.
    """

    free: EligibleNodes
    candidates: Candidates
    budgets: UnitBudgets
    rows: Counts
    start: Counts
    devices: FreeDevices
    host: Counts
    later: Callable[[], Candidates] | None = None

    def weigh(self) -> None:
        """Compute the candidates' costs; called before the first use of them."""
        if self.later is not None:
            self.candidates, self.later = self.later(), None

    def rows_of(self, units: Bools) -> Counts:
        """The entries of ``rows`` that belong to the flagged units, (U,)."""
        return self.rows[units.take(self.units_of(self.rows))]

    def units_of(self, rows: Counts) -> Counts:
        """The units of tasks."""
        return rows if self.candidates.alone else self.candidates.unit.take(rows)

    def free_without(self, rows: Counts) -> tuple[FreeDevices, Counts]:
        """(D, N) and (2, N) capacity with the tasks ``rows`` evicted."""
        devices, host = self.free.devices.astype(np.int16), self.free.host.copy()
        _give(self.candidates, rows, devices, host)
        return devices, host

    def refuses(self, request: GangRequest, fits: Counts) -> bool:
        """B1; ``fits`` (N,) are the tasks that fit on a node with all candidates evicted."""
        suits = (self.devices >= request.size) & (fits > 0)
        free = int(np.where(suits, self.free.devices, 0).sum(dtype=np.int64))
        return _beyond(request, free, self.budgets)


def refused_by_sums(request: GangRequest, free: EligibleNodes, budgets: UnitBudgets) -> bool:
    """B1 before the candidates are laid out: as if all free capacity could be used."""
    there = int((free.devices * free.eligible).sum(dtype=np.int64)) if request.width else 0
    return _beyond(request, there, budgets)


def _beyond(request: GangRequest, free: int, budgets: UnitBudgets) -> bool:
    need = request.tasks * request.width * request.size
    return need > 0 and free + most_gpus(budgets) < need


def lay_out(free: EligibleNodes, candidates: Candidates, budgets: UnitBudgets) -> Layout:
    """Sort the candidates by node and sum the capacity that they would leave.

    Units that lie on no eligible node are taken out of ``budgets``.
    """
    units, tasks = len(candidates.cost), len(candidates.node)
    rows = _rows(free, candidates, budgets.live, units)
    node = candidates.node.take(rows)
    if (node[1:] < node[:-1]).any():
        by_node = np.argsort(
            node.astype(np.uint16 if len(free.rank) < 65536 else np.int64), kind="stable"
        )
        rows, node = rows.take(by_node), node.take(by_node)
    start = np.zeros(len(free.rank) + 1, np.int64)
    np.cumsum(np.bincount(node, minlength=len(free.rank)), out=start[1:])
    devices, host = free.devices.astype(np.int16), free.host.copy()
    _give(candidates, rows, devices, host)
    if len(rows) < tasks:
        touched = np.zeros(units, np.bool_)
        touched[candidates.unit.take(rows)] = True
        budgets.narrow(touched)
    return Layout(free, candidates, budgets, rows, start, devices, host)


def _rows(free: EligibleNodes, candidates: Candidates, live: Bools, units: int) -> Counts:
    """Tasks of live units on eligible nodes, in the order given."""
    wanted = free.eligible.take(candidates.node)
    if not live.all():
        wanted &= live.take(candidates.unit)
    if units and wanted.all():
        return np.arange(len(candidates.node))
    return np.flatnonzero(wanted)


def _give(candidates: Candidates, rows: Counts, devices: FreeDevices, host: Counts) -> None:
    """Add what the tasks ``rows`` hold to the capacity of their nodes, in place."""
    if not len(rows):
        return
    width, size = len(devices), len(host[0])
    row, device = cells(candidates, rows)
    node = candidates.node.take(rows)
    spot = device * size + node.take(row)
    given = candidates.share.take(rows).take(row)
    devices += (
        np.bincount(spot, weights=given, minlength=width * size)
        .astype(np.int16)
        .reshape(width, size)
    )
    for line, column in enumerate((candidates.cpu_milli, candidates.memory_mib)):
        held = np.bincount(node, weights=column.take(rows), minlength=size)
        host[line] += held.astype(np.int64)


def cells(candidates: Candidates, rows: Counts) -> tuple[Counts, Counts]:
    """Pairs (index into ``rows``, device), one for each device of a task."""
    mask = candidates.mask.take(rows)
    held = np.bitwise_count(mask)
    if len(rows) and (held == 1).all():
        exponent = (mask.astype(np.float64).view(np.int64) >> 52) - 1023
        return np.arange(len(rows)), exponent
    bits = np.unpackbits(
        mask.astype("<u8").view(np.uint8).reshape(-1, 8), axis=1, bitorder="little"
    )
    row, device = np.nonzero(bits)
    return row, device
