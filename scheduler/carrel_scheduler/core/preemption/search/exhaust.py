"""Look at every combination of a few units, in counted steps.

Units are decided one after another, the dearest first: spared, if the claim still fits with all
undecided ones gone, then evicted, if its queue allows it. A branch ends when what is evicted costs
more than the best answer. Among equally cheap answers the one wins whose units come first in the
order of victims, compared from the latest unit on.
"""

from dataclasses import dataclass

from carrel_scheduler.core.preemption.search.trial import Ledger, Trial


@dataclass(slots=True)
class Found:
    """The cheapest set so far, its latest places first, and whether the search was complete."""

    units: list[int] | None
    cost: int
    places: list[int]
    complete: bool


class Exhaust:
    """One search over ``units``; ``trial`` starts with nobody gone."""

    def __init__(
        self, trial: Trial, ledger: Ledger, cost: dict[int, int], order: dict[int, int], steps: int
    ) -> None:
        self._trial, self._ledger = trial, ledger
        self._cost, self._order, self._steps = cost, order, steps
        self._units = sorted(cost, key=lambda unit: (-cost[unit], -order[unit]))
        self._gone: list[int] = []
        self._best = Found(None, -1, [], complete=True)

    def best(self, known: list[int] | None = None) -> Found:
        """The cheapest legal set that suffices.

        Args:
            known: a legal set that suffices, to start from.
        """
        if known is not None:
            self._offer(known)
        for unit in self._units:
            self._trial.evict(unit)
        if self._trial.enough:
            self._decide(0, 0)
        return self._best

    def _decide(self, index: int, cost: int) -> None:
        """Undecided units count as gone in the trial; decided ones as decided."""
        if self._steps <= 0:
            self._best.complete = False
            return
        self._steps -= 1
        if index == len(self._units):
            self._offer(self._gone)
            return
        if self._best.cost >= 0 and cost > self._best.cost:
            return
        unit = self._units[index]
        self._trial.spare(unit)
        if self._trial.enough:
            self._decide(index + 1, cost)
        self._trial.evict(unit)
        more = cost + self._cost[unit]
        if (self._best.cost < 0 or more <= self._best.cost) and self._ledger.allows(unit):
            self._ledger.take(unit)
            self._gone.append(unit)
            self._decide(index + 1, more)
            self._gone.pop()
            self._ledger.give_back(unit)

    def _offer(self, units: list[int]) -> None:
        cost = sum(self._cost[unit] for unit in units)
        places = sorted((self._order[unit] for unit in units), reverse=True)
        if self._best.cost < 0 or (cost, places) < (self._best.cost, self._best.places):
            self._best.units, self._best.cost, self._best.places = list(units), cost, places
