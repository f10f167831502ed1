"""Look at every combination of a few items, in counted steps.

Items are taken or left, the cheapest first; a branch ends when the cheapest items still open cannot
complete it for less than the best answer, or when a queue refuses. For items that share no units.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.preemption.search.claims import Ints
from carrel_scheduler.core.preemption.search.items import Items
from carrel_scheduler.core.preemption.search.trial import Ledger


@dataclass(slots=True)
class Result:
    """The best choice, if any, its cost, and whether all were looked at."""

    items: list[int] | None
    cost: int
    complete: bool


class Narrow:
    """One search for ``need`` places among items that gain one place each."""

    def __init__(self, items: Items, need: int, ledger: Ledger, steps: int) -> None:
        self._order: list[int] = np.lexsort((items.tie, items.cost)).tolist()
        self._units = [
            items.unit[items.start[item] : items.start[item + 1]].tolist() for item in self._order
        ]
        costs = items.cost.take(self._order)
        self._sums = [0, *np.cumsum(costs).tolist()]
        self._need, self._ledger, self._steps = need, ledger, steps
        self._taken: list[int] = []
        self._best = Result(None, -1, complete=True)

    def best(self, known: Ints | None, cost: int) -> Result:
        """The cheapest legal choice, starting from a known one (``None``: none is known)."""
        if known is not None:
            self._best = Result(known.tolist(), cost, complete=True)
        self._decide(0, 0)
        return self._best

    def _decide(self, index: int, cost: int) -> None:
        missing = self._need - len(self._taken)
        if missing == 0:
            if self._best.cost < 0 or cost < self._best.cost:
                self._best.items = sorted(self._order[place] for place in self._taken)
                self._best.cost = cost
            return
        if index + missing > len(self._order):
            return
        least = cost + self._sums[index + missing] - self._sums[index]
        if 0 <= self._best.cost <= least:
            return
        if self._steps <= 0:
            self._best.complete = False
            return
        self._steps -= 1
        if self._take(index):
            self._taken.append(index)
            self._decide(index + 1, cost + self._sums[index + 1] - self._sums[index])
            self._taken.pop()
            self._give_back(self._units[index])
        self._decide(index + 1, cost)

    def _take(self, index: int) -> bool:
        gone: list[int] = []
        for unit in self._units[index]:
            if not self._ledger.allows(unit):
                self._give_back(gone)
                return False
            self._ledger.take(unit)
            gone.append(unit)
        return True

    def _give_back(self, units: list[int]) -> None:
        for unit in reversed(units):
            self._ledger.give_back(unit)
