"""Reclaim: work within its queue's rights takes back what other queues borrowed.

Who may claim, and of whom how much may be taken, is said in ``claims``; in which order victims give
way, in ``giving``.
"""

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Answer, answered, unless_failed_before
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.offers import Offers
from carrel_scheduler.core.preemption import preemptors, vectorised
from carrel_scheduler.core.preemption.legality import Claim
from carrel_scheduler.core.preemption.mig_instances import in_the_way
from carrel_scheduler.core.preemption.node_prefilter import in_reach, looks_at_all, promising
from carrel_scheduler.core.preemption.sequential import Search
from carrel_scheduler.core.preemption.share_legality import is_protected, legal, wholly
from carrel_scheduler.core.preemption.victim_order import Giving, Share
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import NONE
from carrel_scheduler.core.work.jobs import Job


def run(cycle: Cycle) -> None:
    """Evict for those who may claim, in the order of service."""
    if cycle.has_victims:
        offers = Offers(cycle, preemptors.for_reclaim(cycle), preemptors.singles(cycle))
        offers.run(
            lambda job, step: attempt(cycle, job, step),
            touches_all=True,
            most=cycle.most_failed_searches,
            served=cycle.most_served,
        )


def find(cycle: Cycle, job: Job, step: tuple[int, ...]) -> Answer:
    """Make room for a step by what may be taken from other queues."""
    demand = cycle.demand(job, step)
    fixed = demand if cycle.is_fixed(job) else NONE
    claim = Claim(
        cycle.queue_usage,
        job.queue,
        demand,
        fixed,
        saturation_milli=cycle.settings.saturation_milli,
        given=cycle.given,
    )
    if not claim.may:
        return Answer.PLAINLY_NO
    queue_usage = cycle.queue_usage
    within = queue_usage.within(queue_usage.quota[job.queue], job.queue, demand)
    cause = Cause(Token.RECLAIMED, job, within)
    wish = vectorised.wish_of(cycle, job, step)
    large = wish is not None and not looks_at_all(cycle, wish.tasks)
    if large and not in_reach(cycle, job.shape.cls, cycle.borrowers):
        return Answer.PLAINLY_NO
    found = vectorised.from_others(cycle, claim, job, wish) if wish is not None else None
    if wish is None or found is None:
        others = np.arange(len(queue_usage.used)) != job.queue
        victims = promising(cycle, job, step, others)
        return answered(_one_by_one(cycle, job, step, claim, cause, victims))
    table = found.table
    if table is None:
        return Answer.PLAINLY_NO

    def one_by_one() -> bool:
        return _one_by_one(cycle, job, step, claim, cause, table.jobs())

    return answered(vectorised.make_room(cycle, job, wish, table, found.budgets, cause, one_by_one))


def _one_by_one(
    cycle: Cycle,
    job: Job,
    step: tuple[int, ...],
    claim: Claim,
    cause: Cause,
    victims: list[Job],
) -> bool:
    few = in_the_way(
        cycle, job, step, victims, lambda victim, held: claim.legal(victim.queue, held)
    )
    for some in (few, victims):
        giving = Giving(cycle, some, lambda victim: is_protected(cycle, job, victim))
        shares = giving.shares(
            lambda share: legal(claim, share), lambda share: wholly(claim, share)
        )
        if Search(cycle, job, step, cause).run(shares):
            return True
    return cycle.is_small and _with_moves(cycle, job, step, claim, cause)


def _with_moves(cycle: Cycle, job: Job, step: tuple[int, ...], claim: Claim, cause: Cause) -> bool:
    """Make room also by moving work that may not be taken: it gets a place in the same plan.

    What moves counts as gone while others are judged, so these are judged too strictly at most.
    """
    kept: dict[int, Share] = {}  # with the shares themselves: a number is used again after one ends

    def legal_or_kept(share: Share) -> bool:
        if not legal(claim, share):
            if share.job.spec.interactive:
                return False
            kept[id(share)] = share
        return True

    victims = promising(cycle, job, step, np.ones(len(cycle.queue_usage.used), np.bool_))
    giving = Giving(cycle, victims, lambda victim: is_protected(cycle, job, victim))
    search = Search(cycle, job, step, cause, lambda share: id(share) in kept)
    return search.run(giving.shares(legal_or_kept))


def attempt(cycle: Cycle, job: Job, step: tuple[int, ...]) -> Answer:
    """Make room for a step by what may be taken from other queues, once it may make them."""
    if cycle.delayed(job, reclaiming=True):
        return Answer.NOT_THIS
    return unless_failed_before(cycle, "reclaim", job, step, find)
