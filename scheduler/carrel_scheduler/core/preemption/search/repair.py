"""Repair where budgets bind: the cheapest legal choice of items that can be found.

Items are taken in the order of their keys; those that would break a budget are left out. A task is
taken while its queue has lost less than its excess, so a queue's last victim may overshoot, as the
rule has it. The first keys are costs. Where these lead to no choice, queues whose victims are in
demand get a price per thousandth that they lose (a Lagrange multiplier, which follows the violation
of the cap), places with their victims become dearer, and the items are taken anew.

Items whose units lie on several nodes are taken by their further cost, in batches: condemning a
unit once pays for all its nodes.
"""

from collections.abc import Callable

import numpy as np

from carrel_scheduler.core.layers import LARGEST, Bools, Counts
from carrel_scheduler.core.preemption.search.budgets import UnitBudgets, sums_by_queue
from carrel_scheduler.core.preemption.search.places import Places, cheapest

PRICED = 18
"""The number of rounds of prices."""
REPAIRED = 4
"""A choice that breaks budgets is repaired in one of so many rounds, as that takes most time."""
_SCALE = 1 << 44
"""Costs are scaled up to so much in sum: prices are integers."""
_DEAREST = 1 << 40
_ROUNDS = 8
_BATCHES = 24


def cheapest_legal(items: Places, need: int, budgets: UnitBudgets, order: Counts) -> Counts | None:
    """Items that gain ``need`` places and break no budget, ascending; ``None``: none found.

    ``order`` (U,) stands in for costs where all items cost the same.
    """
    worth = items.cost
    if int(worth.min()) == int(worth.max()):
        worth = items.sums(order.take(items.unit) - int(order.min()))
    worth = worth * max(_SCALE // max(int(worth.sum()), 1), 1)
    repair, prices = _Repair(items, budgets), _QueuePrices(items, budgets)
    for turn in range(1 + PRICED):
        key = worth + prices.charges()
        chosen = cheapest(key, items, need)
        if chosen is None:
            return None
        repaired = repair.take(key, need) if turn % REPAIRED == 0 else None
        for choice in (chosen, repaired):
            if choice is not None and budgets.legal(items.units(choice)):
                return choice
        prices.follow(chosen, key, need)
    return None


class _QueuePrices:
    """Prices for what binding queues lose, in scaled cost per thousandth (millicore, MiB)."""

    def __init__(self, items: Places, budgets: UnitBudgets) -> None:
        self._items, self._budgets = items, budgets
        self._queue = budgets.queue.take(items.unit)
        size, resource = budgets.tree.size, budgets.caps.resource
        self._price, self._weight = np.zeros(size, np.int64), np.ones(size)
        self._amounts = {
            r: budgets.amounts(r).take(items.unit)
            for r in set(resource[budgets.caps.binds].tolist())
        }
        for r, amount in self._amounts.items():
            squares = np.bincount(self._queue, weights=amount * amount, minlength=size)
            sums = budgets.tree.sums(squares.astype(np.int64))
            self._weight[resource == r] = np.maximum(sums[resource == r], 1)

    def charges(self) -> Counts:
        """(I,) what the prices add to the cost of each item."""
        charge = np.zeros(len(self._queue), np.int64)
        for r, amount in self._amounts.items():
            mine = np.where(self._budgets.caps.resource == r, self._price, 0)
            charge += self._budgets.tree.along_paths(mine).take(self._queue) * amount
        return self._items.sums(charge)

    def follow(self, chosen: Counts, key: Counts, need: int) -> None:
        """Move the prices along the violation of the caps by a choice.

        A price of 1 drives out about ``density`` times the squares of a queue's amounts, so the
        violation over that is a step that should end it (a diagonal Newton step).
        """
        caps, tree = self._budgets.caps, self._budgets.tree
        pick = self._items.picker(chosen)
        queue, over = pick(self._queue), np.zeros(tree.size)
        for r, amount in self._amounts.items():
            alike = self._budgets.alike(r)
            lost = sums_by_queue(queue, alike or pick(amount), tree.size)
            here = caps.binds & (caps.resource == r)
            over[here] = (tree.sums(lost) - caps.cap)[here]
        move = over / (self._weight * _density(key, need))
        move = np.clip(move, -_DEAREST, _DEAREST).astype(np.int64)
        self._price = np.clip(self._price + move, 0, _DEAREST)


def _density(key: Counts, need: int) -> float:
    """The part of the items that changes sides when the keys around the last one move by 1."""
    width, last = max(len(key) // 16, 2), min(need, len(key) - 1)
    low, high = max(last - width, 0), min(last + width, len(key) - 1)
    ends = np.partition(key, (low, high))[[low, high]]
    return (high - low) / len(key) / max(int(ends[1]) - int(ends[0]), 1) or 1.0


def _amounts(queue: Counts, items: Places, budgets: UnitBudgets) -> Counts:
    """The amount of its queue that each loss takes on a line, in the resource of that queue's cap.

    One number, (1,), where every loss takes the same.
    """
    caps = budgets.caps
    resources = set(caps.resource[caps.binds].tolist())
    first = resources.pop()
    if not resources and budgets.alike(first):
        return np.array([budgets.alike(first)])
    amount = budgets.amounts(first).take(items.unit)
    for r in resources:
        mine = caps.resource.take(queue, mode="clip") == r
        amount = np.where(mine, budgets.amounts(r).take(items.unit), amount)
    return amount


class _Repair:
    """The lines of budgets that items pass: one for every level of binding queues.

    Here queues are counted from 1, and 0 stands for what no queue guards.
    """

    def __init__(self, items: Places, budgets: UnitBudgets) -> None:
        self.items = items
        self.tree = budgets.tree
        self.leaf = leaf = budgets.queue.take(items.unit)
        index, caps = np.arange(budgets.tree.size), budgets.caps
        excess = np.where(caps.binds, budgets.budgets.excess[index, caps.resource], LARGEST)
        self.excess = np.append(LARGEST, excess)
        self.lines: list[tuple[Counts, Counts]] = []
        above = index
        while (above >= 0).any():
            guarded = (above >= 0) & caps.binds.take(above, mode="clip")
            if guarded.any():
                queue = np.where(guarded, above, -1).take(leaf)
                self.lines.append((queue + 1, _amounts(queue, items, budgets)))
            above = np.where(above >= 0, budgets.tree.parent.take(above, mode="clip"), -1)

    def take(self, key: Counts, need: int) -> Counts | None:
        """Items that gain ``need`` places, ascending; ``None`` if the repair ends before."""
        part = need + need // 4 + 64
        single = bool((self.items.gain == 1).all())
        if single and part < len(key):
            few = cheapest(key, self.items, part)
            if few is not None:
                return self._enough(self._by_key(few, key), need)
        worth = key if single else key / self.items.gain
        return self._enough(np.lexsort((self.items.tie, worth)), need)

    def _by_key(self, chosen: Counts, key: Counts) -> Counts:
        return chosen[np.lexsort((self.items.tie.take(chosen), key.take(chosen)))]

    def _enough(self, order: Counts, need: int) -> Counts | None:
        taken = self._rounds(order, [np.zeros(len(self.excess), np.int64) for _ in self.lines])
        chosen = order[taken]
        gained = np.cumsum(self.items.gain.take(chosen))
        enough = int(np.searchsorted(gained, need))
        return np.sort(chosen[: enough + 1]) if enough < len(chosen) else None

    def _rounds(self, order: Counts, spent: list[Counts]) -> Bools:
        """(len(order),) the items that the repair adds to what is ``spent``."""
        taken = np.zeros(len(order), np.bool_)
        open_ = np.arange(len(order))
        for _ in range(_ROUNDS):
            if not len(open_):
                break
            items = order[open_]
            pick = self.items.picker(items)
            owners = self.items.owners(items)
            safe = np.ones(len(items), np.bool_)
            refused = np.zeros(len(items), np.bool_)
            for line, (queues, amounts) in enumerate(self.lines):
                self._pass(pick(queues), _of(amounts, pick), owners, spent[line], safe, refused)
            if not safe[0]:
                refused[0] = True
            taken[open_[safe]] = True
            self._spend(self.items.picker(items[safe]), spent)
            open_ = open_[~safe & ~refused]
        return taken

    def _pass(
        self,
        queue: Counts,
        amount: Counts,
        owners: Callable[[Counts], Counts],
        spent: Counts,
        safe: Bools,
        refused: Bools,
    ) -> None:
        """Mark items that are not safe on one line, and those that it refuses for good."""
        over = spent + self._sums(queue, amount) > self.excess
        if not over.any():
            return
        alike, risky = len(amount) != len(queue), over.take(queue).nonzero()[0]
        if not len(risky):
            return  # a queue is over that none of these losses passes
        queue = queue.take(risky)
        small = len(self.excess) < 65536
        by_queue = np.argsort(queue.astype(np.uint16) if small else queue, kind="stable")
        risky, queue = risky.take(by_queue), queue.take(by_queue)
        starts = np.ones(len(queue), np.bool_)
        np.not_equal(queue[1:], queue[:-1], out=starts[1:])
        first = starts.nonzero()[0]
        owner, left = owners(risky), (self.excess - spent).take(queue.take(first))
        length = np.empty_like(first)
        np.subtract(first[1:], first[:-1], out=length[:-1])
        length[-1] = len(queue) - first[-1]
        if alike:
            fits = first - left // -amount
            before = np.arange(len(queue))
        else:
            loss = amount.take(risky)
            before = np.cumsum(loss) - loss
            fits = before.take(first) + left
        safe[owner.compress(before >= fits.repeat(length))] = False
        closed = left <= 0
        if closed.any():
            refused[owner.compress(closed.repeat(length))] = True

    def _sums(self, queue: Counts, amount: Counts) -> Counts:
        """The amounts that losses take from every queue."""
        alike = len(amount) != len(queue)
        return sums_by_queue(queue, amount.item(0) if alike else amount, len(self.excess))

    def _spend(self, pick: Callable[[Counts], Counts], spent: list[Counts]) -> None:
        for line, (queues, amounts) in enumerate(self.lines):
            spent[line] += self._sums(pick(queues), _of(amounts, pick))


def _of(amounts: Counts, pick: Callable[[Counts], Counts]) -> Counts:
    """The amounts of some losses, in the form of ``_amounts``."""
    return amounts if len(amounts) == 1 else pick(amounts)


def with_shared_units(items: Places, need: int, cost: Counts) -> Counts | None:
    """Items that gain ``need`` places, ascending, where units lie on several nodes.

    Two greedy choices are made: one charges a place all of a unit, ``cost`` (U,), one only the
    unit's share of it. ``None``: all items together are too few.
    """
    if int(items.gain.sum()) < need:
        return None
    times = np.maximum(np.bincount(items.unit, minlength=len(cost)), 1)
    choices = [_by_further_cost(items, need, worth) for worth in (cost, cost // times)]
    return min(choices, key=lambda choice: int(cost.take(items.units(choice)).sum()))


def _by_further_cost(items: Places, need: int, worth: Counts) -> Counts:
    """Items in ascending order of their cost beyond the chosen ones, in batches."""
    chosen, worth = np.zeros(len(items.node), np.bool_), worth.copy()
    missing, batch = need, max(need // _BATCHES, 1)
    while missing > 0:
        further = items.sums(worth.take(items.unit))
        ready = ~chosen
        ready[1:] &= ~items.later[1:] | chosen[:-1]
        candidates = np.flatnonzero(ready)
        key = further.take(candidates) / items.gain.take(candidates)
        order = candidates[np.lexsort((items.tie.take(candidates), key))][: min(batch, missing)]
        gained = np.cumsum(items.gain.take(order))
        order = order[: int(np.searchsorted(gained, missing)) + 1]
        chosen[order] = True
        worth[items.picker(np.sort(order))(items.unit)] = 0
        missing -= int(items.gain.take(order).sum())
    return np.flatnonzero(chosen)
