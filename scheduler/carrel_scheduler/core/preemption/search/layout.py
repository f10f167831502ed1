"""The candidates laid out on their nodes, and proofs of "no" before anything is tried.

The layout is computed once for a set of candidates. ``devices`` and ``host`` are the capacity of
every node with all of them evicted: the most that any legal set can free. Two bounds
follow:

B0, nodes: identical tasks only need a count, so fewer places than tasks is a proof, and where no
budget binds the count is reached. B1, budgets: the devices that are free now and those that the
tree of queues can lose at most, together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.preemption.legality import Budgets
from carrel_scheduler.core.preemption.search.budgets import UnitBudgets, most_gpus
from carrel_scheduler.core.preemption.search.model import (
    Bools,
    Candidates,
    EligibleNodes,
    FreeDevices,
    GangRequest,
    Ints,
)


@dataclass(slots=True)
class Layout:
    """One set of candidates on their nodes.

    Attributes:
        free: the nodes before any eviction.
        candidates: the set as given.
        budgets: seen by its units.
        rows: (R,) indices into the candidates' columns, by node: tasks of units that may go, on
            eligible nodes.
        start: (N + 1,) where a node's rows begin.
        alone: every unit is one task.
        devices: (D, N) int16, capacity per device with all candidates evicted.
        host: (2, N) millicores and MiB with all candidates evicted.
        later: gives the candidates with their costs, which no bound needs; see ``weigh``.
    """

    free: EligibleNodes
    candidates: Candidates
    budgets: UnitBudgets
    rows: Ints
    start: Ints
    alone: bool
    devices: FreeDevices
    host: Ints
    later: Callable[[], Candidates] | None = None

    def weigh(self) -> None:
        """Compute the candidates' costs; called before the first use of them."""
        if self.later is not None:
            self.candidates, self.later = self.later(), None

    def rows_of(self, units: Bools) -> Ints:
        """The entries of ``rows`` that belong to the flagged units, (U,)."""
        return self.rows[units.take(self.units_of(self.rows))]

    def units_of(self, rows: Ints) -> Ints:
        """The units of tasks."""
        return rows if self.alone else self.candidates.unit.take(rows)

    def free_without(self, rows: Ints) -> tuple[FreeDevices, Ints]:
        """(D, N) and (2, N) capacity with the tasks ``rows`` evicted."""
        devices, host = self.free.devices.astype(np.int16), self.free.host.copy()
        _give(self.candidates, rows, devices, host)
        return devices, host

    def refuses(self, request: GangRequest, fits: Ints) -> bool:
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


def unit_budgets(candidates: Candidates, budgets: Budgets) -> UnitBudgets:
    """The budgets by units of the candidates."""
    units = len(candidates.cost)
    gpu = candidates.share * np.bitwise_count(candidates.mask) + candidates.counted
    columns = (gpu, candidates.cpu_milli, candidates.memory_mib)
    if _alone(candidates):
        return UnitBudgets(budgets, candidates.queue, columns)
    queue = np.zeros(units, np.int64)
    queue[candidates.unit] = candidates.queue
    gpus, cpu, memory = (
        np.bincount(candidates.unit, weights=column, minlength=units).astype(np.int64)
        for column in columns
    )
    return UnitBudgets(budgets, queue, (gpus, cpu, memory))


def _alone(candidates: Candidates) -> bool:
    """Whether every unit is one task, in the order of the tasks."""
    units = len(candidates.cost)
    return units == len(candidates.node) and bool((candidates.unit == np.arange(units)).all())


def lay_out(free: EligibleNodes, candidates: Candidates, budgets: UnitBudgets) -> Layout:
    """Sort the candidates by node and sum the capacity that they would leave.

    Units that lie on no eligible node are taken out of ``budgets``, their ``unit_budgets``.
    """
    units, tasks, alone = len(candidates.cost), len(candidates.node), _alone(candidates)
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
    return Layout(free, candidates, budgets, rows, start, alone, devices, host)


def _rows(free: EligibleNodes, candidates: Candidates, live: Bools, units: int) -> Ints:
    """Tasks of live units on eligible nodes, in the order given."""
    wanted = free.eligible.take(candidates.node)
    if not live.all():
        wanted &= live.take(candidates.unit)
    if units and wanted.all():
        return np.arange(len(candidates.node))
    return np.flatnonzero(wanted)


def _give(candidates: Candidates, rows: Ints, devices: FreeDevices, host: Ints) -> None:
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


def cells(candidates: Candidates, rows: Ints) -> tuple[Ints, Ints]:
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
