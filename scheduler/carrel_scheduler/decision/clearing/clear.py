"""Which victims make room for a claim: bounds first, then the cheapest way that can be found.

`clear` goes from cheap to dear: proofs of "no" (B0, B1); victims in their order, where no unit
costs more than another; then, in each domain that may do, the cheapest items, if no budget binds;
B2; prices with walks; every combination, where there are few. What was chosen is always checked
against the exact rules, and units that the claim does not need are spared.
"""

from dataclasses import dataclass, replace

import numpy as np

from carrel_scheduler.decision.clearing import shared
from carrel_scheduler.decision.clearing.accumulate import Order, in_order, sorted_by
from carrel_scheduler.decision.clearing.board import Board
from carrel_scheduler.decision.clearing.bounds import (
    by_budgets,
    by_nodes,
    by_one_queue,
    per_domain,
)
from carrel_scheduler.decision.clearing.claims import (
    Answer,
    Bools,
    Claim,
    Cleared,
    Impossible,
    Ints,
    Limits,
    NotFound,
)
from carrel_scheduler.decision.clearing.exhaust import Exhaust
from carrel_scheduler.decision.clearing.fitting import fitting
from carrel_scheduler.decision.clearing.items import Items, itemise
from carrel_scheduler.decision.clearing.prices import Prices, cheapest
from carrel_scheduler.decision.clearing.trial import Ledger, Trial

FEW = 20
"""So many units can be looked at in every combination."""
_PRUNED = 4096


def clear(
    claim: Claim,
    board: Board,
    eligible: Bools | None = None,
    domain: Ints | None = None,
    limits: Limits | None = None,
) -> Answer:
    """Choose the victims that make room for a claim, at the least cost.

    Args:
        claim: what is wanted.
        board: the victims, laid out on their nodes.
        eligible: (N,) nodes of this claim; ``None`` for all of the board.
        domain: (N,) domain in which all tasks must lie, -1 for none; ``None`` for anywhere.
        limits: how far the search goes.
    """
    usable = board.ground.eligible if eligible is None else eligible & board.ground.eligible
    if domain is not None:
        usable = usable & (domain >= 0)
    fits = np.where(usable, fitting(claim, board.devices, board.host), 0)
    no = by_nodes(claim, fits, domain)
    if no is None:
        no = by_budgets(claim, board, fits)
    if no is not None:
        return no
    base = fitting(claim, board.ground.devices, board.ground.host)
    search = _Search(claim, board, fits, np.where(usable, base, 0), limits or Limits())
    return search.anywhere(usable, domain)


@dataclass(slots=True)
class _Search:
    claim: Claim
    board: Board
    fits: Ints
    base: Ints
    limits: Limits

    def anywhere(self, usable: Bools, domain: Ints | None) -> Answer:
        cost = self.board.victims.cost[self.board.purse.live]
        if not len(cost) or int(cost.min()) == int(cost.max()):
            order = Order(self.claim, self.board, usable, domain)
            found = order.accumulate(
                in_order(self.board.purse, self.board.victims.order), self.base
            )
            if found is not None:
                return self._answer(found[0], found[1], exact=not len(found[0]), gap=None)
        if domain is None:
            return _Region(self, self.fits, self.base).solve()
        return self._in_domains(domain)

    def _in_domains(self, domain: Ints) -> Answer:
        """The cheapest domain, tried tightest first."""
        sums = per_domain(self.fits, domain, self.claim.tasks)
        suits = np.flatnonzero(sums >= self.claim.tasks)
        suits = suits[np.argsort(sums.take(suits), kind="stable")]
        best: Cleared | None = None
        refused: list[Answer] = []
        for each in suits[: self.limits.domains].tolist():
            inside = domain == each
            region = _Region(self, np.where(inside, self.fits, 0), np.where(inside, self.base, 0))
            answer = region.solve()
            if not isinstance(answer, Cleared):
                refused.append(answer)
            elif best is None or answer.cost < best.cost:
                best = answer
        complete = len(suits) <= self.limits.domains
        if best is not None:
            proved = all(isinstance(answer, Impossible) for answer in refused)
            alone = len(suits) == 1
            return best if alone or best.cost == 0 else replace(
                best, exact=best.exact and complete and proved and len(refused) == len(suits) - 1,
                gap=None,
            )  # fmt: skip
        if complete and all(isinstance(answer, Impossible) for answer in refused):
            return max(
                (answer for answer in refused if isinstance(answer, Impossible)),
                key=lambda answer: answer.have,
            )
        return NotFound(("domains",) if not complete else _limits(refused))

    def _answer(self, units: Ints, usable: Bools, *, exact: bool, gap: float | None) -> Cleared:
        """Put the tasks on nodes that were cleared for them, then on others, by rank."""
        victims, board = self.board.victims, self.board
        gone = np.zeros(len(victims.cost), np.bool_)
        gone[units] = True
        rows = board.rows
        rows = rows[gone.take(rows if board.alone else victims.unit.take(rows))]
        room = Order(self.claim, board, usable, None)
        fits = np.where(usable, fitting(self.claim, *room.room(rows)), 0)
        order = np.lexsort((board.ground.rank, -(fits > self.base).astype(np.int8), fits == 0))
        counts = np.minimum(fits.take(order), self.claim.tasks)
        nodes = np.repeat(order, counts)[: self.claim.tasks]
        units = units[np.argsort(victims.order.take(units), kind="stable")]
        cost = int(victims.cost.take(units).sum())
        return Cleared(units, nodes, cost, exact, gap)


def _limits(answers: list[Answer]) -> tuple[str, ...]:
    found = {limit for answer in answers if isinstance(answer, NotFound) for limit in answer.limits}
    return tuple(sorted(found))


class _Region:
    """The search among the nodes that count, all together or those of one domain."""

    def __init__(self, search: _Search, fits: Ints, base: Ints) -> None:
        self.search, self.fits, self.base = search, fits, base
        self.claim, self.board, self.limits = search.claim, search.board, search.limits
        self.cost = self.board.victims.cost
        self.need = self.claim.tasks - int(np.minimum(base, self.claim.tasks).sum())

    def solve(self) -> Answer:
        nothing = np.zeros(0, np.int64)
        if self.need <= 0:
            return self._cleared(nothing, exact=True, gap=0.0)
        items = itemise(self.claim, self.board, self.fits, self.base, self.cost)
        units = items.units(np.arange(len(items.node))) if len(items.unit) <= 8 * FEW else nothing
        few = 0 < len(units) <= FEW or (len(items.unit) <= 8 * FEW and self._units_here() <= FEW)
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

    def _units_here(self) -> int:
        return len(self._candidates())

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
            no = self._one_queue(items)
            if no is not None:
                return None, no, False, None
        prices = Prices(items, self.need, purse, caps, self.cost, self.limits)
        found = prices.search()
        if isinstance(found, Impossible):
            return None, found, False, None
        if found.cost < 0:
            return None, None, False, None
        return found.items, None, False, prices.gap(found)

    def _one_queue(self, items: Items) -> Impossible | None:
        """B2 for the binding queues that have victims on too many items to do without them."""
        purse, caps = self.board.purse, self.board.caps
        leaf = purse.queue.take(items.unit)
        owner = np.repeat(np.arange(len(items.node)), np.diff(items.start))
        above = np.arange(purse.tree.size)
        while (above >= 0).any():
            asked = np.zeros(purse.tree.size, np.bool_)
            asked[above[above >= 0]] = True
            asked &= caps.sole
            count = np.bincount(above.take(leaf)[above.take(leaf) >= 0], minlength=len(asked))
            asked &= len(items.node) - count < self.need
            queues = np.flatnonzero(asked)
            if len(queues):
                no = self._asked(items, above.take(leaf), owner, queues)
                if no is not None:
                    return no
            above = np.where(above >= 0, purse.tree.parent.take(above, mode="clip"), -1)
        return None

    def _asked(self, items: Items, queue: Ints, owner: Ints, queues: Ints) -> Impossible | None:
        purse, caps, size = self.board.purse, self.board.caps, len(items.node)
        line = np.full(purse.tree.size + 1, -1)
        line[queues] = np.arange(len(queues))
        loss = np.zeros((len(queues), size), np.int64)
        for r in set(caps.resource[queues].tolist()):
            mine = np.flatnonzero((line.take(queue) >= 0) & (caps.resource.take(queue) == r))
            spot = line.take(queue.take(mine)) * size + owner.take(mine)
            amount = purse.amounts[r].take(items.unit.take(mine))
            loss += (
                np.bincount(spot, weights=amount, minlength=loss.size)
                .astype(np.int64)
                .reshape(loss.shape)
            )
        most = by_one_queue(loss, caps.cap[queues])
        least = int(np.argmin(most))
        if most[least] >= self.need:
            return None
        return Impossible("queue", int(most[least]), self.need, int(queues[least]))

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
        return self.search._answer(units, self.fits > 0, exact=exact, gap=gap)
