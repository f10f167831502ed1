"""What queues may lose: the exact rule, and the linear caps that bounds and prices work with.

A set of units is legal at a queue when, in some resource that the queue exceeds, the units without
the largest sum to less than the excess. Since all but the largest are multiples of a step u (their
greatest common divisor), they sum to at most u * (ceil(excess / u) - 1), and the set to at most
that plus the largest unit of the queue: its *cap* in that resource. For equal units the cap is
exact. A queue *binds* when it has more to lose than its cap allows, in every resource it exceeds.
"""

from typing import Final

import numpy as np

from carrel_scheduler.core.preemption.search.claims import Bools, Budgets, Ints

RESOURCES: Final = 3


class Purse:
    """The budgets of all queues, seen by the units of one set of victims.

    Attributes:
        queue: (U,) leaf queue of a unit.
        amounts: three (U,) columns, what a unit's going takes from its queue.
        live: (U,) units that may go at all.
        relevant: resources that a queue exceeds which may not lose any amount.
        alike: per resource the amount of every unit where all have the same, else 0.
    """

    __slots__ = ("_caps", "alike", "amounts", "budgets", "live", "queue", "relevant", "tree")

    def __init__(self, budgets: Budgets, queue: Ints, amounts: tuple[Ints, Ints, Ints]) -> None:
        self.budgets, self.queue, self.amounts = budgets, queue, amounts
        self.tree = budgets.tree
        self.alike = [
            int(column[0]) if len(column) and bool((column == column[0]).all()) else 0
            for column in amounts
        ]
        exceeds = budgets.excess > 0
        asked = np.any(exceeds & ~budgets.open[:, None], axis=0).tolist()
        self.relevant = [r for r in range(RESOURCES) if asked[r]]
        shut = (~(exceeds.any(axis=1) | budgets.open)).astype(np.int64)
        self.live: Bools = (self.tree.along_paths(shut) == 0).take(queue)
        self._caps: Caps | None = None

    @property
    def caps(self) -> "Caps":
        """Linear caps of the queues, computed when first asked for."""
        if self._caps is None:
            self._caps = Caps(self)
        return self._caps

    def narrow(self, units: Bools) -> None:
        """Only these may go, (U,)."""
        live = self.live & units
        if (live != self.live).any():
            self.live, self._caps = live, None

    def held(self, units: Ints | None, resource: int) -> tuple[Ints, Ints]:
        """Sums and largest unit per queue, (Q,) each, of ``units`` (``None``: all live ones)."""
        if units is None and self.live.all():
            queue, amount = self.queue, self.amounts[resource]
        else:
            chosen = np.flatnonzero(self.live) if units is None else units
            queue, amount = self.queue.take(chosen), self.amounts[resource].take(chosen)
        size = self.tree.size
        sums = np.bincount(queue, weights=amount, minlength=size).astype(np.int64)
        largest = np.zeros(size, np.int64)
        if self.alike[resource]:
            largest[sums > 0] = self.alike[resource]
        else:
            np.maximum.at(largest, queue, amount)
        return self.tree.sums(sums), self.tree.largest(largest)

    def legal(self, units: Ints) -> bool:
        """Whether the units may all go, by the exact rule; they must be live and all different."""
        fine = self.budgets.open | ~(self.budgets.excess > 0).any(axis=1)
        for resource in self.relevant:
            excess = self.budgets.excess[:, resource]
            sums, largest = self.held(units, resource)
            fine |= (excess > 0) & (sums - largest < excess)
        return bool(fine.all())

    def steps(self, sums: Ints, largest: Ints, resource: int) -> Ints:
        """(Q,) a divisor of every live unit of a queue, its descendants included."""
        amount, live = self.amounts[resource], self.live
        if self.alike[resource]:
            return np.full(self.tree.size, self.alike[resource])
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
        total: per relevant resource what a queue's live units hold, (Q,).
        most: (Q,) GPU thousandths that a queue can lose at most, its ancestors not considered.
        binds: (Q,) queues whose cap is less than what they hold.
        resource: (Q,) the resource in which a binding queue may lose the largest part.
        cap: (Q,) its cap there.
        sole: (Q,) binding queues that exceed one resource only: for them the cap is a law, for
            others it is one choice among several.
    """

    __slots__ = ("binds", "cap", "most", "resource", "sole", "total")

    def __init__(self, purse: Purse) -> None:
        size, excess = purse.tree.size, purse.budgets.excess
        best = np.full(size, -1.0)
        self.cap = np.zeros(size, np.int64)
        self.resource = np.zeros(size, np.int64)
        free = purse.budgets.open.copy()
        loss = np.zeros(size, np.int64)
        gpu_total, gpu_largest = purse.held(None, 0)
        self.total = {0: gpu_total}
        for r in purse.relevant:
            sums, largest = purse.held(None, r) if r else (gpu_total, gpu_largest)
            self.total[r] = sums
            over = excess[:, r] > 0
            step = np.maximum(purse.steps(sums, largest, r), 1)
            cap = step * (-(-excess[:, r] // step) - 1) + largest
            free |= over & (cap >= sums)
            part = np.where(over, cap / np.maximum(sums, 1), -1.0)
            wider = part > best
            best[wider], self.cap[wider], self.resource[wider] = part[wider], cap[wider], r
            loss = np.maximum(loss, np.where(over, self._gpus(purse, r, cap, gpu_total), 0))
        self.binds: Bools = ~free & (gpu_total + sum(self.total.values()) > 0)
        self.sole: Bools = self.binds & ((excess > 0).sum(axis=1) == 1)
        self.most: Ints = np.where(free, gpu_total, np.minimum(loss, gpu_total))

    @staticmethod
    def _gpus(purse: Purse, resource: int, cap: Ints, total: Ints) -> Ints:
        """(Q,) GPU thousandths that can go while ``cap`` of a resource goes; all, if unknown."""
        if resource == 0:
            return cap
        gpu, amount = purse.amounts[0], purse.amounts[resource]
        ratio = np.where(amount > 0, -(-gpu * 1024 // np.maximum(amount, 1)), 0)
        unbound = np.where((amount == 0) & (gpu > 0), 1, 0)
        densest, missing = np.zeros(len(total), np.int64), np.zeros(len(total), np.int64)
        np.maximum.at(densest, purse.queue[purse.live], ratio[purse.live])
        np.maximum.at(missing, purse.queue[purse.live], unbound[purse.live])
        densest, missing = purse.tree.largest(densest), purse.tree.largest(missing)
        return np.where(missing > 0, total, -(-densest * cap // 1024))


def reach(purse: Purse, caps: Caps) -> int:
    """GPU thousandths that the whole tree can lose at most (bound B1).

    A queue loses at most what its cap allows and at most what its children lose together; the
    units of inner queues are those of their leaves.
    """
    most = caps.most.copy()
    for level, parents in zip(purse.tree.below, purse.tree.above, strict=True):
        together = np.zeros(purse.tree.size, np.int64)
        np.add.at(together, parents, most[level])
        most[parents] = np.minimum(most[parents], together[parents])
    return int(most[purse.tree.parent < 0].sum())
