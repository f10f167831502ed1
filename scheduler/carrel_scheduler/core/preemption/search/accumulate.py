"""Victims strictly in their order: where nobody loses more than another, or costs do not decide.

Units are taken in the order of victims, each while its queues still exceed what they keep, until
the claim fits; the shortest such beginning is found by halving. Then, from the latest on, each is
spared with which the claim still fits.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.preemption.search.board import Board, cells
from carrel_scheduler.core.preemption.search.bounds import per_domain
from carrel_scheduler.core.preemption.search.claims import Bools, Claim, Ints
from carrel_scheduler.core.preemption.search.fitting import fitting
from carrel_scheduler.core.preemption.search.purse import Purse
from carrel_scheduler.core.preemption.search.trial import Trial


def in_order(purse: Purse, order: Ints) -> Ints:
    """Live units by ``order`` (U,), without those that come when their queue may lose no more."""
    units = sorted_by(order)
    units = units[purse.live.take(units)]
    for level in [*purse.tree.below, np.flatnonzero(purse.tree.parent < 0)]:
        guarded = np.zeros(purse.tree.size, np.bool_)
        guarded[level] = ~purse.budgets.open[level]
        units = units[_while_over(purse, units, guarded)]
    return units


def sorted_by(order: Ints) -> Ints:
    """Indices by ``order``, no two alike; where these are near 0 without sorting."""
    count = len(order)
    if not count or int(order.min()) < 0 or int(order.max()) >= 4 * count:
        return np.argsort(order, kind="stable")
    slots = np.full(int(order.max()) + 1, -1)
    slots[order] = np.arange(count)
    return slots if len(slots) == count else slots[slots >= 0]


def _while_over(purse: Purse, units: Ints, guarded: Bools) -> Bools:
    """(len(units),) whether the sum before each unit is below the excess of its guarded queue."""
    index = np.where(guarded, np.arange(purse.tree.size), -1)
    above = purse.tree.parent
    while (above >= 0).any():
        here = (above >= 0) & guarded.take(above, mode="clip")
        index = np.where(here, above, index)
        above = np.where(above >= 0, purse.tree.parent.take(above, mode="clip"), -1)
    queue = index.take(purse.queue.take(units))
    fine = queue < 0
    if fine.all():
        return fine
    by_queue = np.argsort(queue.astype(np.int16) if len(index) < 32768 else queue, kind="stable")
    sorted_queue = queue.take(by_queue)
    if not len(units):
        return fine
    first = np.flatnonzero(np.append(True, sorted_queue[1:] != sorted_queue[:-1]))
    lengths = np.diff(np.append(first, len(units)))
    for r in purse.relevant:
        amount = purse.amounts[r].take(units).take(by_queue)
        sums = np.cumsum(amount) - amount
        before = sums - np.repeat(sums.take(first), lengths)
        excess = purse.budgets.excess[:, r].take(sorted_queue, mode="clip")
        fine[by_queue] |= before < excess
    return fine


@dataclass(slots=True)
class Order:
    """The room of nodes as more and more units go, in one order."""

    claim: Claim
    board: Board
    usable: Bools
    domain: Ints | None

    def accumulate(self, units: Ints, base: Ints) -> tuple[Ints, Bools] | None:
        """The units needed, in their order, and the nodes that count; ``None`` if all fail.

        Args:
            units: in their order.
            base: (N,) tasks that fit with nobody gone.
        """
        place = np.full(len(self.board.victims.cost), len(units), np.int64)
        place[units] = np.arange(len(units))
        rows = self.board.rows
        when = place.take(rows if self.board.alone else self.board.victims.unit.take(rows))
        low, high = 0, len(units)
        if not self._enough(self._fits(rows[when < high])):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._enough(self._fits(rows[when < middle])):
                high = middle
            else:
                low = middle + 1
        taken = units[:high]
        fits = self._fits(rows[when < high])
        usable = self._domain_of(fits)
        return self._spare(taken, np.where(usable, fits, 0), np.where(usable, base, 0)), usable

    def _fits(self, rows: Ints) -> Ints:
        return np.where(self.usable, fitting(self.claim, *self.room(rows)), 0)

    def room(self, rows: Ints) -> tuple[Ints, Ints]:
        """(D, N) and (2, N) room with the tasks ``rows`` gone."""
        board, victims = self.board, self.board.victims
        devices, host = board.ground.devices, board.ground.host
        width, nodes = len(devices), len(host[0])
        node = victims.node.take(rows)
        row, device = cells(victims, rows)
        share = victims.share.take(rows).take(row)
        spot = device * nodes + node.take(row)
        given = np.bincount(spot, weights=share, minlength=width * nodes)
        more = [
            np.bincount(node, weights=column.take(rows), minlength=nodes).astype(np.int64)
            for column in (victims.cpu_milli, victims.memory_mib)
        ]
        return devices + given.astype(np.int64).reshape(width, nodes), host + np.stack(more)

    def _sums(self, fits: Ints) -> Ints:
        if self.domain is None:
            return np.array([np.minimum(fits, self.claim.tasks).sum()])
        return per_domain(fits, self.domain, self.claim.tasks)

    def _enough(self, fits: Ints) -> bool:
        return int(self._sums(fits).max(initial=0)) >= self.claim.tasks

    def _domain_of(self, fits: Ints) -> Bools:
        """The nodes that count: those of the tightest domain in which the claim fits."""
        if self.domain is None:
            return self.usable
        sums = self._sums(fits)
        fitting_ones = np.flatnonzero(sums >= self.claim.tasks)
        chosen = fitting_ones[np.argmin(sums.take(fitting_ones))]
        return np.asarray(self.usable & (self.domain == chosen))

    def _spare(self, taken: Ints, fits: Ints, base: Ints) -> Ints:
        """``taken`` without the units that the claim does not need, the latest spared first."""
        board = self.board
        helps = (fits > base).take(board.victims.node)
        useful = np.zeros(len(board.victims.cost), np.bool_)
        useful[board.victims.unit[helps]] = True
        taken = taken[useful.take(taken)]
        trial = Trial(self.claim, board, base, fits > base)
        gone = _Gone(trial, taken, fits)
        kept = [unit for unit in reversed(taken.tolist()) if not gone.spared(unit)]
        return np.array(kept[::-1], np.int64)


class _Gone:
    """Spares units while the claim fits; knows those that no place can do without."""

    def __init__(self, trial: Trial, taken: Ints, fits: Ints) -> None:
        self._trial, self._fits = trial, fits
        self._slack = int(fits.sum()) - trial.claim.tasks
        self._critical = _critical(trial, taken, fits)
        self._primed = False
        self._taken = taken

    def spared(self, unit: int) -> bool:
        """Whether the unit can stay after all."""
        if self._critical[unit] and self._slack <= 0:
            return False
        if not self._primed:
            for gone in self._taken.tolist():
                self._trial.evict(gone)
            self._primed = True
        self._trial.spare(unit)
        if self._trial.enough:
            self._slack = self._trial.total - self._trial.claim.tasks
            return True
        self._trial.evict(unit)
        return False


def _critical(trial: Trial, taken: Ints, fits: Ints) -> Bools:
    """(U,) units whose sparing alone would cost a place; known for units of one task only."""
    board, victims = trial.board, trial.board.victims
    critical = np.zeros(len(victims.cost), np.bool_)
    if not board.alone:
        return critical
    node = victims.node.take(taken)
    gone = np.zeros(len(victims.cost), np.bool_)
    gone[taken] = True
    rows = np.flatnonzero(gone)
    order = Order(trial.claim, board, np.ones(len(fits), np.bool_), None)
    devices, host = order.room(rows)
    here, there = devices.take(node, axis=1), host.take(node, axis=1)
    row, device = cells(victims, taken)
    here[device, row] -= victims.share.take(taken).take(row)
    there -= np.stack([victims.cpu_milli.take(taken), victims.memory_mib.take(taken)])
    critical[taken] = fitting(trial.claim, here, there) < fits.take(node)
    return critical
