"""Which candidates to evict for a request: bounds first, then the cheapest way that can be found.

From cheap to dear: proofs of "no" (B0, B1); victims in their order, where no unit costs more than
another; the cheapest places; where budgets bind, the cheapest legal ones (``repair``); every
combination, where there are few units. What was chosen is checked against the exact rules, and
units that the request does not need are pruned.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.preemption.search.budgets import RunningLosses
from carrel_scheduler.core.preemption.search.exact import ExactSearch, Trial, pruned
from carrel_scheduler.core.preemption.search.in_order import first_in_order
from carrel_scheduler.core.preemption.search.layout import Layout
from carrel_scheduler.core.preemption.search.model import (
    Answer,
    Cleared,
    GangRequest,
    Impossible,
    Ints,
    SearchLimitReached,
    fitting,
)
from carrel_scheduler.core.preemption.search.places import Places, cheapest, places_of
from carrel_scheduler.core.preemption.search.repair import cheapest_legal, with_shared_units

FEW = 20
"""So many units can be looked at in every combination."""
STEPS = 2000
"""So many steps the exact search takes at most: the same question has the same answer."""


def search(request: GangRequest, layout: Layout) -> Answer:
    """Choose the candidates whose eviction frees capacity for a request, at the least cost."""
    eligible, free = layout.free.eligible, layout.free
    fits = fitting(request, layout.devices, layout.host) * eligible
    if int(np.minimum(fits, request.tasks).sum()) < request.tasks:
        return Impossible("nodes")
    if layout.refuses(request, fits):
        return Impossible("budgets")
    layout.weigh()
    base = fitting(request, free.devices, free.host) * eligible
    return _Search(request, layout, fits, base).run()


@dataclass(slots=True)
class _Search:
    """``fits`` and ``base`` (N,): tasks that fit if all units go, and if none goes."""

    request: GangRequest
    layout: Layout
    fits: Ints
    base: Ints

    @property
    def cost(self) -> Ints:
        """(U,) work lost by evicting each unit."""
        return self.layout.candidates.cost

    def run(self) -> Answer:
        """The cheapest set found, a proof that there is none, or that none was found."""
        layout, cost = self.layout, self.cost[self.layout.budgets.live]
        if not len(cost) or int(cost.min()) == int(cost.max()):
            units = first_in_order(self.request, layout)
            units = None if units is None else self._pruned(units)
            if units is not None:
                return self._cleared(units)
        need = self.request.tasks - int(np.minimum(self.base, self.request.tasks).sum())
        if need <= 0:
            return self._cleared(np.zeros(0, np.int64))
        items = places_of(self.request, layout, self.fits, self.base)
        chosen = self._choose(items, need)
        few = len(items.unit) <= 8 * FEW and len(self._candidates()) <= FEW
        if few:
            units = None if chosen is None else self._pruned(items.units(chosen))
            return self._exact(units)
        if chosen is None:
            return SearchLimitReached()
        if items.forced and len(chosen) == need:
            return self._on(items, chosen)
        units = self._pruned(items.units(chosen))
        return SearchLimitReached() if units is None else self._cleared(units)

    def _choose(self, items: Places, need: int) -> Ints | None:
        layout, budgets = self.layout, self.layout.budgets
        if not layout.alone and bool((np.bincount(items.unit) > 1).any()):
            chosen = with_shared_units(items, need, self.cost)
        else:
            chosen = cheapest(items.cost, items, need)
        if chosen is None or not budgets.caps.binds.any() or budgets.legal(items.units(chosen)):
            return chosen
        return cheapest_legal(items, need, budgets, layout.candidates.order)

    def _pruned(self, units: Ints) -> Ints | None:
        return pruned(self.request, self.layout, units, self.base)

    def _candidates(self) -> Ints:
        """Units on nodes where evictions help."""
        layout = self.layout
        rows = layout.rows[(self.fits > self.base).take(layout.candidates.node.take(layout.rows))]
        flags = np.zeros(len(self.cost), np.bool_)
        flags[layout.candidates.unit.take(rows)] = True
        return np.flatnonzero(flags)

    def _exact(self, known: Ints | None) -> Answer:
        units = self._candidates().tolist()
        trial = Trial(self.request, self.layout, self.base, self.fits > 0)
        cost = {unit: int(self.cost[unit]) for unit in units}
        order = {unit: int(self.layout.candidates.order[unit]) for unit in units}
        exact = ExactSearch(trial, RunningLosses(self.layout.budgets), cost, order, STEPS)
        found = exact.best(None if known is None else known.tolist())
        if found.units is not None:
            return self._cleared(np.array(found.units, np.int64))
        return Impossible("search") if found.complete else SearchLimitReached()

    def _on(self, items: Places, chosen: Ints) -> Cleared:
        """The result where every item is a place that needs all its units."""
        units = items.units(chosen)
        free = np.flatnonzero(self.base)
        nodes = np.concatenate((items.node.take(chosen), np.repeat(free, self.base.take(free))))
        return Cleared(units, nodes, int(self.cost.take(units).sum()))

    def _cleared(self, units: Ints) -> Cleared:
        """Put the tasks on nodes that were cleared for them, then on others, by rank."""
        layout = self.layout
        gone = np.zeros(len(self.cost), np.bool_)
        gone[units] = True
        fits = fitting(self.request, *layout.free_without(layout.rows_of(gone)))
        fits *= layout.free.eligible
        order = np.lexsort((layout.free.rank, -(fits > self.base).astype(np.int8), fits == 0))
        counts = np.minimum(fits.take(order), self.request.tasks)
        nodes = np.repeat(order, counts)[: self.request.tasks]
        return Cleared(units, nodes, int(self.cost.take(units).sum()))
