"""Consolidate: running preemptible work moves together so that something larger fits.

Nothing moves unless everything that moves has a place, held for it in the same plan. Interactive
work and what may not be stopped never move.
"""

from carrel_scheduler.decision import claimable
from carrel_scheduler.decision.clearing_room import Search, everybody
from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.giving import Giving
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.moves import Cause
from carrel_scheduler.decision.offers import Answer, Offers
from carrel_scheduler.decision.reasons import Token


def for_entitled(cycle: Cycle) -> None:
    """Move work for those within their fair share.

    Who borrows comes after all claims: moving work for a borrower who gives way next is in vain.
    """
    _run(cycle, borrowers=False)


def run(cycle: Cycle) -> None:
    """Move work for whoever would fit into all the free room together."""
    _run(cycle, borrowers=True)


def _run(cycle: Cycle, *, borrowers: bool) -> None:
    if cycle.settings.consolidate and cycle.has_victims:
        offers = Offers(cycle, claimable.for_consolidate(cycle), cycle.open_singles())
        offers.run(
            lambda job, step: _attempt(cycle, job, step, borrowers=borrowers), touches_all=True
        )


def _attempt(cycle: Cycle, job: Job, step: tuple[int, ...], *, borrowers: bool) -> Answer:
    if cycle.delayed(job):
        return Answer.NOT_THIS
    if not borrowers and not cycle.within_share(job, step):
        return Answer.NO
    if cycle.barrier(job, step) is not None or not _enough_in_all(cycle, job, step):
        return Answer.NO
    movable = [v for v in cycle.evictable() if not v.spec.interactive]
    giving = Giving(cycle, movable, lambda _: False)
    search = Search(cycle, job, step, Cause(Token.CONSOLIDATED, job), everybody)
    return Answer.SERVED if search.run(giving.shares(lambda _: True)) else Answer.NO


def _enough_in_all(cycle: Cycle, job: Job, step: tuple[int, ...]) -> bool:
    """Whether the free room of all nodes together would hold the step."""
    pairs = zip(cycle.demand(job, step), cycle.free_in_all(), strict=True)
    return all(asked <= there for asked, there in pairs)
