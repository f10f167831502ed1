"""Budgets of the search: the legal sets of units, and linear caps for bounds and repair.

Which sets are legal is defined in ``legality``: all but the largest unit of a queue sum to less
than its excess in some resource. Since all but the largest are multiples of a step u (their
greatest common divisor), they sum to at most u * (ceil(excess / u) - 1), and the set to at most
that plus the largest unit of the queue: its *cap* in that resource. For equal units the cap is
exact. A queue *binds* when it has more to lose than its cap allows, in every resource it exceeds.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.legality import Budgets, legal_losses, may_lose

RESOURCES: Final = 3


def sums_by_queue(queue: Counts, amounts: Counts | int, size: int) -> Counts:
    """(size,) the sums of amounts, one for each entry of ``queue`` or the same for all."""
    if isinstance(amounts, int):
        return np.bincount(queue, minlength=size) * amounts
    return np.bincount(queue, weights=amounts, minlength=size).astype(np.int64)


class UnitBudgets:
    """The budgets of all queues, seen by the units of one set of victims.

    Attributes:
        queue: (U,) leaf queue of a unit.
        live: (U,) units that may go at all.
        relevant: resources that a queue exceeds which may not lose any amount.
    """

    __slots__ = ("_alike", "_amounts", "_caps", "_held", "budgets", "live", "queue", "relevant",
                 "tree")  # fmt: skip

    def __init__(self, budgets: Budgets, queue: Counts, held: Callable[[int], Counts]) -> None:
        """``held``: gives the (U,) amounts of a resource that the units hold."""
        self.budgets, self.queue, self._held = budgets, queue, held
        self.tree = budgets.tree
        self._amounts: dict[int, Counts] = {}
        self._alike: dict[int, int] = {}
        exceeds = budgets.excess > 0
        asked = np.any(exceeds & ~budgets.open[:, None], axis=0).tolist()
        self.relevant = [r for r in range(RESOURCES) if asked[r]]
        shut = (~(exceeds.any(axis=1) | budgets.open)).astype(np.int64)
        self.live: Bools = (self.tree.along_paths(shut) == 0).take(queue)
        self._caps: Caps | None = None

    @property
    def caps(self) -> "Caps":
        """Linear caps of the queues, computed on first use."""
        if self._caps is None:
            self._caps = Caps(self)
        return self._caps

    def amounts(self, resource: int) -> Counts:
        """(U,) what a unit's going takes from its queue, computed on first use."""
        found = self._amounts.get(resource)
        if found is None:
            found = self._amounts[resource] = self._held(resource)
        return found

    def alike(self, resource: int) -> int:
        """The amount of every unit where all have the same, else 0."""
        found = self._alike.get(resource)
        if found is None:
            column = self.amounts(resource)
            same = len(column) and bool((column == column[0]).all())
            found = self._alike[resource] = int(column[0]) if same else 0
        return found

    def narrow(self, units: Bools) -> None:
        """Restrict the search to these units, (U,)."""
        live = self.live & units
        if (live != self.live).any():
            self.live, self._caps = live, None

    def held(self, units: Counts | None, resource: int) -> tuple[Counts, Counts]:
        """Sums and largest unit per queue, (Q,) each, of ``units`` (``None``: all live ones)."""
        if units is None and self.live.all():
            chosen = None
        else:
            chosen = np.flatnonzero(self.live) if units is None else units
        queue = self.queue if chosen is None else self.queue.take(chosen)
        size, alike = self.tree.size, self.alike(resource)
        if alike:
            sums = sums_by_queue(queue, alike, size)
            largest = np.minimum(sums, alike)
        else:
            column = self.amounts(resource)
            amount = column if chosen is None else column.take(chosen)
            sums, largest = sums_by_queue(queue, amount, size), np.zeros(size, np.int64)
            np.maximum.at(largest, queue, amount)
        return self.tree.sums(sums), self.tree.largest(largest)

    def legal(self, units: Counts) -> bool:
        """Whether the units may all go, by the exact rule; they must be live and all different."""
        excess = self.budgets.excess[:, self.relevant]
        held = [self.held(units, resource) for resource in self.relevant]
        if not held:
            return True
        sums, largest = (np.stack(columns, axis=1) for columns in zip(*held, strict=True))
        return bool(legal_losses(excess, sums, largest).all())

    def steps(self, sums: Counts, largest: Counts, resource: int) -> Counts:
        """(Q,) a divisor of the amounts of every live unit of a queue or of one below it."""
        if alike := self.alike(resource):
            return np.full(self.tree.size, alike)
        amount, live = self.amounts(resource), self.live
        counts = np.bincount(self.queue[live & (amount > 0)], minlength=self.tree.size)
        leaf = np.bincount(self.queue[live], weights=amount[live], minlength=self.tree.size)
        equal = largest * counts == leaf
        divisors = np.where(equal & (counts > 0), largest, 0)
        rows = np.flatnonzero(live & (amount > 0) & ~equal.take(self.queue))
        if len(rows):
            np.gcd.at(divisors, self.queue[rows], amount[rows])
        return np.where(sums > 0, self.tree.divisors(divisors), 1)


class Caps:
    """Linear caps of the queues that bind.

    Attributes:
        most: (Q,) GPU thousandths that a queue can lose at most, its ancestors not considered.
        binds: (Q,) queues whose cap is less than what they hold.
        resource: (Q,) the resource in which a binding queue may lose the largest part.
        cap: (Q,) its cap there.
    """

    __slots__ = ("binds", "cap", "most", "resource")

    def __init__(self, units: UnitBudgets) -> None:
        size, excess = units.tree.size, units.budgets.excess
        best = np.full(size, -1.0)
        self.cap = np.zeros(size, np.int64)
        self.resource = np.zeros(size, np.int64)
        free = units.budgets.open.copy()
        loss = np.zeros(size, np.int64)
        gpu_total, gpu_largest = units.held(None, 0)
        held = gpu_total > 0
        for r in units.relevant:
            sums, largest = units.held(None, r) if r else (gpu_total, gpu_largest)
            held |= sums > 0
            over = excess[:, r] > 0
            step = np.maximum(units.steps(sums, largest, r), 1)
            cap = step * (-(-excess[:, r] // step) - 1) + largest
            free |= over & (cap >= sums)
            part = np.where(over, cap / np.maximum(sums, 1), -1.0)
            wider = part > best
            best[wider], self.cap[wider], self.resource[wider] = part[wider], cap[wider], r
            loss = np.maximum(loss, np.where(over, self._gpus(units, r, cap, gpu_total), 0))
        self.binds: Bools = ~free & held
        self.most: Counts = np.where(free, gpu_total, np.minimum(loss, gpu_total))

    @staticmethod
    def _gpus(units: UnitBudgets, resource: int, cap: Counts, total: Counts) -> Counts:
        """(Q,) GPU thousandths that can go while ``cap`` of a resource goes; all, if unknown."""
        if resource == 0:
            return cap
        gpu, amount = units.amounts(0), units.amounts(resource)
        ratio = np.where(amount > 0, -(-gpu * 1024 // np.maximum(amount, 1)), 0)
        unbound = np.where((amount == 0) & (gpu > 0), 1, 0)
        densest, missing = np.zeros(len(total), np.int64), np.zeros(len(total), np.int64)
        np.maximum.at(densest, units.queue[units.live], ratio[units.live])
        np.maximum.at(missing, units.queue[units.live], unbound[units.live])
        densest, missing = units.tree.largest(densest), units.tree.largest(missing)
        return np.where(missing > 0, total, -(-densest * cap // 1024))


def most_gpus(units: UnitBudgets) -> int:
    """GPU thousandths that the whole tree of queues can lose at most.

    A queue loses at most what its cap allows and at most what its children lose together; the
    units of inner queues are those of their leaves.
    """
    most = units.caps.most.copy()
    for level, parents in zip(units.tree.below, units.tree.above, strict=True):
        together = np.zeros(units.tree.size, np.int64)
        np.add.at(together, parents, most[level])
        most[parents] = np.minimum(most[parents], together[parents])
    return int(most[units.tree.parent < 0].sum())


class RunningLosses:
    """The losses of queues so far: the exact rule for one unit at a time, with undo."""

    def __init__(self, units: UnitBudgets) -> None:
        self._parent = units.tree.parent.tolist()
        self._queue, self._amounts = units.queue, [units.amounts(r) for r in range(RESOURCES)]
        self._guarded = {
            queue: excess
            for queue, excess in enumerate(units.budgets.excess.tolist())
            if not units.budgets.open[queue]
        }
        self._lost: dict[int, list[tuple[int, ...]]] = {}
        self._known: dict[int, tuple[tuple[int, ...], list[int]]] = {}

    def allows(self, unit: int) -> bool:
        """Whether the unit may be evicted in addition to those already chosen."""
        amounts, path = self._of(unit)
        for queue in path:
            columns = tuple(zip(*self._lost.get(queue, ()), amounts, strict=True))
            largest = tuple(map(max, columns))
            before = [sum(column) - most for column, most in zip(columns, largest, strict=True)]
            if not may_lose(self._guarded[queue], before):
                return False
        return True

    def take(self, unit: int) -> None:
        """Record that the unit is evicted."""
        amounts, path = self._of(unit)
        for queue in path:
            self._lost.setdefault(queue, []).append(amounts)

    def give_back(self, unit: int) -> None:
        """Undo the latest `take`, which was of this unit."""
        for queue in self._of(unit)[1]:
            self._lost[queue].pop()

    def _of(self, unit: int) -> tuple[tuple[int, ...], list[int]]:
        """A unit's amounts, and the queues on its path whose budgets bind."""
        if unit not in self._known:
            path, queue = [], int(self._queue[unit])
            while queue >= 0:
                if queue in self._guarded:
                    path.append(queue)
                queue = self._parent[queue]
            self._known[unit] = (tuple(int(column[unit]) for column in self._amounts), path)
        return self._known[unit]
