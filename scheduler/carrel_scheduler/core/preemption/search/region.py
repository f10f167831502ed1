"""The search for victims among the nodes of one region, from cheap to dear.

The cheapest items, if no budget binds; a bound for queues that victims of are needed everywhere
(B2); prices with mending walks; every combination of items or of units, where there are few. What
was chosen is checked against the exact rules, and units that the claim does not need are spared.
"""

import numpy as np

from carrel_scheduler.core.preemption.search import shared
from carrel_scheduler.core.preemption.search.accumulate import Order, sorted_by
from carrel_scheduler.core.preemption.search.board import Board
from carrel_scheduler.core.preemption.search.claims import (
    Answer,
    Bools,
    Claim,
    Cleared,
    Impossible,
    Ints,
    Limits,
    NotFound,
)
from carrel_scheduler.core.preemption.search.exhaust import Exhaust
from carrel_scheduler.core.preemption.search.fitting import fitting
from carrel_scheduler.core.preemption.search.items import Items, cheapest, itemise
from carrel_scheduler.core.preemption.search.narrow import Narrow
from carrel_scheduler.core.preemption.search.prices import Prices
from carrel_scheduler.core.preemption.search.scarce import scarce_queue
from carrel_scheduler.core.preemption.search.trial import Ledger, Trial

FEW = 20
"""So many units can be looked at in every combination."""
NARROW = 40
"""So many items can be."""
_PRUNED = 4096


def settled(
    claim: Claim, board: Board, base: Ints, units: Ints, usable: Bools,
    *, exact: bool, gap: float | None,
) -> Cleared:  # fmt: skip
    """Put the tasks on nodes that were cleared for them, then on others, by rank."""
    victims = board.victims
    gone = np.zeros(len(victims.cost), np.bool_)
    gone[units] = True
    rows = board.rows
    rows = rows[gone.take(rows if board.alone else victims.unit.take(rows))]
    room = Order(claim, board, usable, None)
    fits = np.where(usable, fitting(claim, *room.room(rows)), 0)
    order = np.lexsort((board.ground.rank, -(fits > base).astype(np.int8), fits == 0))
    counts = np.minimum(fits.take(order), claim.tasks)
    nodes = np.repeat(order, counts)[: claim.tasks]
    units = units[np.argsort(victims.order.take(units), kind="stable")]
    cost = int(victims.cost.take(units).sum())
    return Cleared(units, nodes, cost, exact, gap)


class Region:
    """The search among the nodes that count, all together or those of one domain."""

    def __init__(self, claim: Claim, board: Board, fits: Ints, base: Ints, limits: Limits) -> None:
        self.claim, self.board, self.limits = claim, board, limits
        self.fits, self.base = fits, base
        self.cost = self.board.victims.cost
        self.need = self.claim.tasks - int(np.minimum(base, self.claim.tasks).sum())

    def solve(self) -> Answer:
        """The cheapest set found, a proof that there is none, or that none was found."""
        nothing = np.zeros(0, np.int64)
        if self.need <= 0:
            return self._cleared(nothing, exact=True, gap=0.0)
        items = itemise(self.claim, self.board, self.fits, self.base, self.cost)
        few = len(items.unit) <= 8 * FEW and len(self._candidates()) <= FEW
        chosen, no, exact, gap = self._choose(items)
        if no is not None:
            return no
        if chosen is not None and items.forced and not few and len(chosen) == self.need:
            return self._on(items, chosen, gap, exact=exact)
        units = None if chosen is None else self._needed(items, chosen)
        if few:
            return self._exhaust(units)
        if units is None:
            return NotFound(("rounds", "walks"))
        return self._cleared(units, exact=exact, gap=gap)

    def _candidates(self) -> Ints:
        """Units on nodes where going helps, in the order of victims."""
        board, victims = self.board, self.board.victims
        rows = board.rows[(self.fits > self.base).take(victims.node.take(board.rows))]
        flags = np.zeros(len(self.cost), np.bool_)
        flags[victims.unit.take(rows)] = True
        return np.flatnonzero(flags)

    def _choose(self, items: Items) -> tuple[Ints | None, Impossible | None, bool, float | None]:
        """Items, or a proof that there are none; whether they are the best, and their gap."""
        purse, caps = self.board.purse, self.board.caps
        overlap = not self.board.alone and bool((np.bincount(items.unit) > 1).any())
        if overlap:
            chosen = shared.choose(items, self.need, self.cost, self.limits.swaps)
        else:
            chosen = cheapest(items.cost, items, self.need)
        if chosen is None:
            return None, None, False, None
        if not caps.binds.any() or purse.legal(items.units(chosen)):
            best = items.forced and not overlap
            return chosen, None, best, 0.0 if best else None
        if items.forced:
            no = scarce_queue(items, self.need, purse, caps)
            if no is not None:
                return None, no, False, None
        prices = Prices(
            items, self.need, purse, caps, self.cost, self.board.victims.order, self.limits
        )
        found = prices.search()
        if isinstance(found, Impossible):
            return None, found, False, None
        known = found.items if found.cost >= 0 else None
        if items.forced and len(items.node) <= NARROW:
            return self._narrow(items, known, found.cost)
        return known, None, False, None if known is None else prices.gap(found)

    def _narrow(
        self, items: Items, known: Ints | None, cost: int
    ) -> tuple[Ints | None, Impossible | None, bool, float | None]:
        """As `_choose`, by every combination of a few items."""
        search = Narrow(items, self.need, Ledger(self.board), self.limits.steps)
        found = search.best(known, cost)
        if found.items is not None:
            gap = 0.0 if found.complete else None
            return np.array(found.items, np.int64), None, found.complete, gap
        no = Impossible("search", self.need - 1, self.need) if found.complete else None
        return None, no, False, None

    def _needed(self, items: Items, chosen: Ints) -> Ints | None:
        """The units of a choice without those that the claim can do without, dearest first."""
        units = items.units(chosen)
        if items.forced and int(items.gain.take(chosen).sum()) == self.need:
            return units
        trial = Trial(self.claim, self.board, self.base, self.fits > 0)
        for unit in units.tolist():
            trial.evict(unit)
        if not trial.enough:
            return None
        order = np.lexsort((self.board.victims.order.take(units), self.cost.take(units)))[::-1]
        kept = []
        for place, unit in enumerate(units.take(order).tolist()):
            trial.spare(unit)
            if place >= _PRUNED or not trial.enough:
                trial.evict(unit)
                kept.append(unit)
        return np.sort(np.array(kept, np.int64))

    def _exhaust(self, known: Ints | None) -> Answer:
        units = self._candidates().tolist()
        trial = Trial(self.claim, self.board, self.base, self.fits > 0)
        cost = {unit: int(self.cost[unit]) for unit in units}
        order = {unit: int(self.board.victims.order[unit]) for unit in units}
        search = Exhaust(trial, Ledger(self.board), cost, order, self.limits.steps)
        found = search.best(None if known is None else known.tolist())
        if found.units is None:
            if found.complete:
                return Impossible("search", self.claim.tasks - 1, self.claim.tasks)
            return NotFound(("steps",))
        gone = np.array(found.units, np.int64)
        return self._cleared(gone, exact=found.complete, gap=0.0 if found.complete else None)

    def _on(self, items: Items, chosen: Ints, gap: float | None, *, exact: bool) -> Cleared:
        """The answer where every item is a place that needs all its units."""
        victims = self.board.victims
        gone = np.zeros(len(self.cost), np.bool_)
        gone[items.unit.take(items.losses(chosen))] = True
        by_order = sorted_by(victims.order)
        units = by_order[gone.take(by_order)]
        free = np.flatnonzero(self.base)
        nodes = np.concatenate((items.node.take(chosen), np.repeat(free, self.base.take(free))))
        return Cleared(units, nodes, int(self.cost.take(units).sum()), exact, gap)

    def _cleared(self, units: Ints, *, exact: bool, gap: float | None) -> Cleared:
        return settled(
            self.claim, self.board, self.base, units, self.fits > 0, exact=exact, gap=gap
        )
