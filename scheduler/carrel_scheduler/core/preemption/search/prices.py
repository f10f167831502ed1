"""Which items to take when budgets bind: prices on what queues lose.

A price on a queue's loss makes places with its victims dearer. For any prices p >= 0, the cheapest
choice at these prices, less prices times caps, is a lower bound L on the cost of every legal choice
(Lagrange): L above the cost of the dearest choice is a proof of "no" (bound B3), otherwise L says
how far a found choice may be from the best. Prices follow the violation of the caps with step
(best cost - L) / |violation|^2 (Polyak). Where a choice is nearly legal, a walk makes it so.

Where all items cost the same, their places in the order of victims stand in for costs: any legal
choice is as good, and prices find none among equals.

Costs and prices are integers; ties are settled by the items' ``tie``.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.preemption.search.claims import Impossible, Ints, Limits
from carrel_scheduler.core.preemption.search.items import Items, cheapest
from carrel_scheduler.core.preemption.search.purse import Caps, Purse
from carrel_scheduler.core.preemption.search.walk import Walk

_SCALE = 1 << 44
_DAMPING = 0.7
_NEAR = 0.005
"""Distance from the bound at which a choice is good enough."""


@dataclass(slots=True)
class Best:
    """The best choice so far; ``cost`` -1 while there is none, ``bound`` what none can undercut."""

    items: Ints
    cost: int
    bound: float


class Prices:
    """One search: items to choose from, places that are needed, budgets that bind."""

    def __init__(
        self, items: Items, need: int, purse: Purse, caps: Caps, cost: Ints, order: Ints,
        limits: Limits,
    ) -> None:  # fmt: skip
        self.items, self.need, self.purse, self.caps = items, need, purse, caps
        self.cost, self.limits = cost, limits
        self.queue = purse.queue.take(items.unit)
        self.active = np.flatnonzero(caps.binds)
        self.resources = sorted({int(r) for r in caps.resource[self.active]})
        times = np.bincount(items.unit, minlength=len(cost))
        self.shared = bool(times.max(initial=0) > 1)
        self.amounts = {r: purse.amounts[r].take(items.unit) for r in self.resources}
        worth = items.cost
        if self.shared:
            part = np.maximum(times, 1)
            worth = items.sums((cost // part).take(items.unit))
            self.amounts = {r: (purse.amounts[r] // part).take(items.unit) for r in self.resources}
        self.level = len(worth) > 0 and int(worth.min()) == int(worth.max())
        if self.level:
            worth = items.sums(order.take(items.unit) - int(order.min()))
        total = max(int(worth.sum()), 1)
        self.up = max(_SCALE // total, 1)
        self.down = max(total.bit_length() - 50, 0)
        self.worth = (worth >> self.down) * self.up
        self.price = np.zeros(purse.tree.size, np.int64)
        self.provable = items.forced and not self.shared
        mean = [int(column.sum()) // max(len(column), 1) for column in self.amounts.values()]
        self.typical = max(min(mean, default=1), 1)
        self.weight = np.ones(purse.tree.size)
        for r in self.resources:
            amount = self.amounts[r]
            squares = np.bincount(self.queue, weights=amount * amount, minlength=purse.tree.size)
            here = caps.resource == r
            self.weight[here] = np.maximum(purse.tree.sums(squares.astype(np.int64))[here], 1)

    def search(self) -> Best | Impossible:
        """Prices up to the limit of rounds, with a walk where a choice is nearly legal."""
        best = Best(np.zeros(0, np.int64), -1, 0.0)
        walks, dearest = self.limits.walks, self._dearest()
        law = self.caps.sole[self.active].all()
        walk = Walk(self.items, self.purse, self.caps)
        for turn in range(self.limits.rounds):
            key = self._key()
            chosen = cheapest(key, self.items, self.need)
            if chosen is None:
                return best
            bound = int(key.take(chosen).sum()) - self._priced_caps()
            best.bound = max(best.bound, float(bound)) if law else best.bound
            if self.provable and law and bound > dearest:
                return Impossible("prices", len(chosen) - 1, self.need)
            over = self._violation(chosen)
            excess = int(np.maximum(over, 0).sum())
            if excess == 0:
                self._offer(best, chosen)
            last = turn == self.limits.rounds - 1
            if excess and walks and (last or turn % 5 == 4 or self._nearly(excess, turn)):
                walks -= 1
                spare = 64 + 8 * excess // self.typical
                legal = walk.mend(key, chosen, self.active[over > 0], self.need, spare)
                if legal is None and walks == 0:
                    legal = walk.take(key, self.need)
                if legal is not None:
                    self._offer(best, legal)
            if best.cost >= 0 and self.level:
                break
            if best.cost >= 0 and self._scaled(best.cost) - best.bound <= _NEAR * max(
                self._scaled(best.cost), 1
            ):
                break
            if not self._follow(over, bound, best, self._density(key)):
                break
        return best

    def gap(self, best: Best) -> float | None:
        """How far the best choice may be from what is possible, as a share of its cost."""
        if self.level and not self.shared and self.provable:
            return 0.0
        if not self.provable or not self.caps.sole[self.active].all():
            return None
        cost = max(self._scaled(best.cost), 1)
        return max(cost - best.bound, 0.0) / cost

    def _scaled(self, cost: int) -> int:
        return (cost >> self.down) * self.up

    def _dearest(self) -> int:
        kept = max(len(self.worth) - self.need, 0)
        return int(np.partition(self.worth, kept)[kept:].sum()) if kept else int(self.worth.sum())

    def _nearly(self, excess: int, turn: int) -> bool:
        """Whether so little is illegal that mending is worth its time; at first twice as much."""
        return excess * (200 if turn else 100) <= int(self.caps.cap[self.active].sum())

    def _key(self) -> Ints:
        key = self.worth
        if self.price.any():
            charge = np.zeros(len(self.queue), np.int64)
            for r in self.resources:
                mine = np.where(self.caps.resource == r, self.price, 0)
                path = self.purse.tree.along_paths(mine)
                alike = 0 if self.shared else self.purse.alike[r]
                if alike:
                    charge += (path * alike).take(self.queue)
                else:
                    charge += path.take(self.queue) * self.amounts[r]
            key = key + self.items.sums(charge)
        later = np.flatnonzero(self.items.later)
        if len(later):
            key = key.copy()
            for item in later.tolist():
                least = -(-int(key[item - 1]) * int(self.items.gain[item]))
                key[item] = max(int(key[item]), -(-least // int(self.items.gain[item - 1])))
        return key

    def _priced_caps(self) -> int:
        prices, caps = self.price[self.active], self.caps.cap[self.active]
        return sum(p * c for p, c in zip(prices.tolist(), caps.tolist(), strict=True) if p)

    def _violation(self, chosen: Ints) -> Ints:
        """(active queues,) what a choice takes beyond the cap, negative below it."""
        losses = self.items.losses(chosen)
        queue, size = self.queue.take(losses), self.purse.tree.size
        over = np.zeros(len(self.active), np.int64)
        for r in self.resources:
            alike = 0 if self.shared else self.purse.alike[r]
            if alike:
                taken = np.bincount(queue, minlength=size) * alike
            else:
                weights = self.amounts[r].take(losses)
                taken = np.bincount(queue, weights=weights, minlength=size).astype(np.int64)
            sums = self.purse.tree.sums(taken)[self.active]
            here = self.caps.resource[self.active] == r
            over[here] = (sums - self.caps.cap[self.active])[here]
        return over

    def _offer(self, best: Best, chosen: Ints) -> None:
        units = self.items.units(chosen)
        cost = int(self.cost.take(units).sum())
        if (best.cost < 0 or cost < best.cost) and self.purse.legal(units):
            best.items, best.cost = chosen, cost

    def _density(self, key: Ints) -> float:
        """Which part of the items changes sides when the keys around the last one move by 1."""
        width = max(len(key) // 16, 2)
        last = min(self.need, len(key) - 1)
        low, high = max(last - width, 0), min(last + width, len(key) - 1)
        ends = np.partition(key, (low, high))[[low, high]]
        spread = int(ends[1]) - int(ends[0])
        return (high - low) / len(key) / spread if spread > 0 else 0.0

    def _follow(self, over: Ints, bound: int, best: Best, density: float) -> bool:
        """Move the prices along the violation; false when nothing moves any more.

        A price of 1 on a queue drives out about ``density`` times the squares of its amounts, so
        the violation over that is a step that should end it (a diagonal Newton step).
        """
        direction = np.where((over < 0) & (self.price[self.active] == 0), 0, over)
        if density > 0.0 and direction.any():
            move = _DAMPING * direction / (self.weight[self.active] * density)
            move = np.clip(move, -(2.0**40), 2.0**40)
            self.price[self.active] = np.maximum(self.price[self.active] + move.astype(np.int64), 0)
            return True
        norm = float((direction.astype(np.float64) ** 2).sum())
        if norm == 0.0:
            return False
        goal = self._scaled(best.cost) if best.cost >= 0 else max(best.bound, bound) * 1.02
        reach = max(goal - bound, abs(bound) * 0.0005, 1.0)
        move = np.clip(direction * (reach / norm), -(2.0**40), 2.0**40)
        self.price[self.active] = np.maximum(self.price[self.active] + move.astype(np.int64), 0)
        return True
