"""Which victims make room for a claim: bounds first, then the cheapest way that can be found.

`clear` goes from cheap to dear: proofs of "no" (B0, B1); victims in their order, where no unit
costs more than another; then the search in the region where the tasks may lie, or in each domain
in turn where they must lie together.
"""

from dataclasses import dataclass, replace

import numpy as np

from carrel_scheduler.core.preemption.search.accumulate import Order, in_order
from carrel_scheduler.core.preemption.search.board import Board
from carrel_scheduler.core.preemption.search.bounds import by_budgets, by_nodes, per_domain
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
from carrel_scheduler.core.preemption.search.fitting import fitting
from carrel_scheduler.core.preemption.search.region import Region, settled


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
    board.weigh()
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
                units, places = found
                return settled(
                    self.claim, self.board, self.base, units, places, exact=not len(units), gap=None
                )
        if domain is None:
            return self._region(usable)
        return self._in_domains(domain)

    def _region(self, inside: Bools) -> Answer:
        fits, base = np.where(inside, self.fits, 0), np.where(inside, self.base, 0)
        return Region(self.claim, self.board, fits, base, self.limits).solve()

    def _in_domains(self, domain: Ints) -> Answer:
        """The cheapest domain, tried tightest first."""
        sums = per_domain(self.fits, domain, self.claim.tasks)
        suits = np.flatnonzero(sums >= self.claim.tasks)
        suits = suits[np.argsort(sums.take(suits), kind="stable")]
        best: Cleared | None = None
        refused: list[Answer] = []
        for each in suits[: self.limits.domains].tolist():
            answer = self._region(domain == each)
            if not isinstance(answer, Cleared):
                refused.append(answer)
            elif best is None or answer.cost < best.cost:
                best = answer
        complete = len(suits) <= self.limits.domains
        if best is not None:
            if best.cost == 0 or len(suits) == 1:
                return best
            proved = all(isinstance(answer, Impossible) for answer in refused)
            only = complete and proved and len(refused) == len(suits) - 1
            return replace(best, exact=best.exact and only, gap=None)
        if complete and all(isinstance(answer, Impossible) for answer in refused):
            return max(
                (answer for answer in refused if isinstance(answer, Impossible)),
                key=lambda answer: answer.have,
            )
        return NotFound(("domains",) if not complete else _limits(refused))


def _limits(answers: list[Answer]) -> tuple[str, ...]:
    found = {limit for answer in answers if isinstance(answer, NotFound) for limit in answer.limits}
    return tuple(sorted(found))
