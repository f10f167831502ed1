"""Make a choice legal: take items in the order of their keys, leave those that break a budget.

The walk runs in vector rounds. An item is *safe* when it is legal even with every undecided item
before it taken; it is *refused* when a queue of its has been closed by what is safe. The first
undecided item is always one of the two, so the rounds end; where many are needed, what is not safe
is refused. A task is taken while its queue has lost less than its excess, so a queue's last victim
may overshoot, as the rule has it.
"""

import numpy as np

from carrel_scheduler.core.layers import LARGEST
from carrel_scheduler.core.preemption.search.claims import Bools, Ints
from carrel_scheduler.core.preemption.search.items import Items, cheapest, least
from carrel_scheduler.core.preemption.search.purse import Caps, Purse

_ROUNDS = 8


def _amounts(queue: Ints, items: Items, purse: Purse, caps: Caps) -> Ints:
    """What each loss takes from its queue on a line, in the resource of that queue's cap.

    One number, (1,), where every loss takes the same.
    """
    resources = set(caps.resource[caps.binds].tolist())
    first = resources.pop()
    if not resources and purse.alike[first]:
        return np.array([purse.alike[first]])
    amount = purse.amounts[first].take(items.unit)
    for r in resources:
        mine = caps.resource.take(queue, mode="clip") == r
        amount = np.where(mine, purse.amounts[r].take(items.unit), amount)
    return amount


class Walk:
    """The lines of budgets that items pass: one for every level of binding queues.

    Here queues are counted from 1, and 0 stands for what no queue guards.
    """

    def __init__(self, items: Items, purse: Purse, caps: Caps) -> None:
        self.items = items
        self.tree = purse.tree
        self.leaf = leaf = purse.queue.take(items.unit)
        index = np.arange(purse.tree.size)
        excess = np.where(caps.binds, purse.budgets.excess[index, caps.resource], LARGEST)
        self.excess = np.append(LARGEST, excess)
        self.lines: list[tuple[Ints, Ints]] = []
        above = index
        while (above >= 0).any():
            guarded = (above >= 0) & caps.binds.take(above, mode="clip")
            if guarded.any():
                queue = np.where(guarded, above, -1).take(leaf)
                self.lines.append((queue + 1, _amounts(queue, items, purse, caps)))
            above = np.where(above >= 0, purse.tree.parent.take(above, mode="clip"), -1)

    def take(self, key: Ints, need: int) -> Ints | None:
        """Items that gain ``need`` places, ascending; ``None`` if the walk ends before."""
        part = need + need // 4 + 64
        single = bool((self.items.gain == 1).all())
        if single and part < len(key):
            few = cheapest(key, self.items, part)
            if few is not None:
                return self._enough(self._by_key(few, key), need)
        worth = key if single else key / self.items.gain
        return self._enough(np.lexsort((self.items.tie, worth)), need)

    def mend(self, key: Ints, chosen: Ints, over: Ints, need: int, spare: int) -> Ints | None:
        """The choice with as little changed as makes it legal, or ``None``.

        What touches no queue in ``over`` stays; the rest, and ``spare`` others by their keys, take
        part in a walk on top of it.
        """
        bad = np.zeros(self.tree.size, np.int64)
        bad[over] = 1
        touched = self.items.sums(self.tree.along_paths(bad).take(self.leaf)).take(chosen) > 0
        stays, leaves = chosen[~touched], chosen[touched]
        outside = key.copy()
        outside[chosen] = LARGEST
        others = min(spare, len(key) - len(chosen))
        comers = least(outside, self.items.tie, others) if others else chosen[:0]
        spent = [np.zeros(len(self.excess), np.int64) for _ in self.lines]
        losses = self.items.losses(stays)
        self._spend(losses, np.ones(len(losses), np.bool_), spent)
        order = self._by_key(np.concatenate((leaves, comers)), key)
        more = order[self._rounds(order, spent)]
        missing = need - int(self.items.gain.take(stays).sum())
        enough = int(np.searchsorted(np.cumsum(self.items.gain.take(more)), missing))
        return np.sort(np.append(stays, more[: enough + 1])) if enough < len(more) else None

    def _by_key(self, chosen: Ints, key: Ints) -> Ints:
        return chosen[np.lexsort((self.items.tie.take(chosen), key.take(chosen)))]

    def _enough(self, order: Ints, need: int) -> Ints | None:
        taken = self._rounds(order, [np.zeros(len(self.excess), np.int64) for _ in self.lines])
        chosen = order[taken]
        gained = np.cumsum(self.items.gain.take(chosen))
        enough = int(np.searchsorted(gained, need))
        return np.sort(chosen[: enough + 1]) if enough < len(chosen) else None

    def _rounds(self, order: Ints, spent: list[Ints]) -> Bools:
        """(len(order),) which items the walk takes on top of what is ``spent``."""
        taken = np.zeros(len(order), np.bool_)
        open_ = np.arange(len(order))
        for _ in range(_ROUNDS):
            if not len(open_):
                break
            items = order[open_]
            losses = self.items.losses(items)
            owner = self.items.owners(items)
            safe = np.ones(len(items), np.bool_)
            refused = np.zeros(len(items), np.bool_)
            for line, (queues, amounts) in enumerate(self.lines):
                self._pass(
                    queues.take(losses), _of(amounts, losses), owner, spent[line], safe, refused
                )
            if not safe[0]:
                refused[0] = True
            taken[open_[safe]] = True
            self._spend(losses, safe.take(owner), spent)
            open_ = open_[~safe & ~refused]
        return taken

    def _pass(
        self, queue: Ints, amount: Ints, owner: Ints, spent: Ints, safe: Bools, refused: Bools
    ) -> None:
        """Mark items that are not safe on one line, and those that it refuses for good."""
        over = spent + self._sums(queue, amount) > self.excess
        if not over.any():
            return
        alike, risky = len(amount) != len(queue), over.take(queue).nonzero()[0]
        queue = queue.take(risky)
        small = len(self.excess) < 65536
        by_queue = np.argsort(queue.astype(np.uint16) if small else queue, kind="stable")
        risky, queue = risky.take(by_queue), queue.take(by_queue)
        starts = np.ones(len(queue), np.bool_)
        np.not_equal(queue[1:], queue[:-1], out=starts[1:])
        first = starts.nonzero()[0]
        owner, left = owner.take(risky), (self.excess - spent).take(queue.take(first))
        length = np.diff(first, append=len(queue))
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

    def _sums(self, queue: Ints, amount: Ints) -> Ints:
        """What losses take from every queue."""
        size = len(self.excess)
        if len(amount) != len(queue):
            return np.bincount(queue, minlength=size) * amount
        return np.bincount(queue, weights=amount, minlength=size).astype(np.int64)

    def _spend(self, losses: Ints, gone: Bools, spent: list[Ints]) -> None:
        losses = losses[gone]
        for line, (queues, amounts) in enumerate(self.lines):
            spent[line] += self._sums(queues.take(losses), _of(amounts, losses))


def _of(amounts: Ints, losses: Ints) -> Ints:
    """The amounts of some losses, as ``_amounts`` has them."""
    return amounts if len(amounts) == 1 else amounts.take(losses)
