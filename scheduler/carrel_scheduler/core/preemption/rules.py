"""The rules of reclaim and of preempt: whose work may be evicted for whom.

Reclaim: work within its queue's share takes back what other queues use over quota. Who may reclaim,
and of whom how much may be taken, is said in ``legality``; in which order victims go, in
``victim_order``. What is within a quota in a group of nodes is nobody's to take, and work that is
to lie there takes back what others hold in the group beyond their quotas in it (``group_quotas``).

Preempt: work takes the place of its own queue's work of strictly lower priority. Only preemptible
work is evicted, so interactive work that may not be stopped never is. What the queue holds in all
does not grow, except into free capacity, so no other queue is touched.
"""

from collections.abc import Callable, Iterable

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import OfferResult, answered
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.preemption import preemptors, vectorised
from carrel_scheduler.core.preemption.group_quotas import (
    GroupClaim,
    GroupGuarantees,
    groups_in_order,
)
from carrel_scheduler.core.preemption.legality import (
    ReclaimRequest,
    is_protected,
    preempt_protects_s,
)
from carrel_scheduler.core.preemption.node_prefilter import candidate_jobs, in_reach
from carrel_scheduler.core.preemption.preemptors import Rule, Step, not_delayed_reclaim
from carrel_scheduler.core.preemption.priority_guarantees import PriorityGuarantees
from carrel_scheduler.core.preemption.search.model import GangRequest
from carrel_scheduler.core.preemption.sequential import Search, evict_in_order
from carrel_scheduler.core.preemption.victim_order import (
    EvictionUnit,
    OrderedVictims,
    who_may_give,
)
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import NONE
from carrel_scheduler.core.work.jobs import JobInfo


def _find_reclaim(cycle: Cycle, job: JobInfo, step: Step) -> OfferResult:
    """Free capacity for a step by evictions in other queues."""
    queue_usage, demand = cycle.queue_usage, cycle.demand(job, step)
    reclaim = ReclaimRequest(
        queue_usage,
        job.queue,
        demand,
        demand if cycle.is_fixed(job) else NONE,
        saturation_milli=cycle.settings.saturation_milli,
        given=cycle.given,
        priorities=PriorityGuarantees(cycle) if cycle.several_priorities else None,
    )
    if not reclaim.may:
        return OfferResult.PLAINLY_NO
    guarantees = GroupGuarantees.of(cycle, job.queue) if cycle.group_quotas else None
    others = np.arange(len(queue_usage.used)) != job.queue
    within = queue_usage.within(queue_usage.quota[job.queue], job.queue, demand)
    cause = Cause(Token.RECLAIMED, job, within)
    request = vectorised.request_of(cycle, job, step)
    large = request is not None and not cycle.looks_at_all(request.tasks)
    if large and not in_reach(cycle, job.shape.cls, cycle.over_quota_queues):
        return OfferResult.PLAINLY_NO

    def open_to(victim: JobInfo, indices: Iterable[int]) -> bool:
        return guarantees is None or guarantees.may_take(victim, indices)

    def in_order(victims: list[JobInfo]) -> bool:
        search = Search(cycle, job, step, cause)
        if search.is_hopeless(who_may_give(reclaim, victims)):
            return False
        return evict_in_order(
            search,
            victims,
            lambda victim: is_protected(cycle, job, victim),
            lambda unit: (
                reclaim.may_take(unit.job, unit.amounts) and open_to(unit.job, unit.indices)
            ),
            lambda unit: reclaim.covers(unit.job.queue, unit.amounts),
            lambda victim, held: reclaim.may_take(victim, held) and open_to(victim, victim.rows),
        )

    def one_by_one(victims: list[JobInfo]) -> bool:
        if guarantees is None:
            found = in_order(victims)
        else:
            found = guarantees.search(lambda: in_order(candidate_jobs(cycle, job, step, others)))
        return found or (cycle.is_small and _with_moves(cycle, job, step, reclaim, open_to, cause))

    offer = None
    if request is not None:
        offer = vectorised.from_others(cycle, reclaim, job, request, guarantees)
    if request is None or offer is None:
        return answered(one_by_one(candidate_jobs(cycle, job, step, others)))
    if (table := offer.table) is None:
        return OfferResult.PLAINLY_NO
    causes = cause, cause
    return answered(
        vectorised.make_room(cycle, job, request, offer, causes, lambda: one_by_one(table.jobs()))
    )


def _with_moves(
    cycle: Cycle,
    job: JobInfo,
    step: Step,
    reclaim: ReclaimRequest,
    open_to: Callable[[JobInfo, Iterable[int]], bool],
    cause: Cause,
) -> bool:
    """Free capacity also by moving work that may not be evicted: it gets a place in the same plan.

    What moves counts as gone while others are judged, so these are judged too strictly at most.
    Work that its queue keeps in a group of nodes (``open_to``) does not move for it.
    """
    kept: dict[int, EvictionUnit] = {}  # keeps the units alive: ids are used again

    def legal_or_kept(unit: EvictionUnit) -> bool:
        if not open_to(unit.job, unit.indices):
            return False
        if not reclaim.may_take(unit.job, unit.amounts):
            if unit.job.spec.interactive:
                return False
            kept[id(unit)] = unit
        return True

    victims = candidate_jobs(cycle, job, step, np.ones(len(cycle.queue_usage.used), np.bool_))
    ordered = OrderedVictims(cycle, victims, lambda victim: is_protected(cycle, job, victim))
    search = Search(cycle, job, step, cause, lambda unit: id(unit) in kept)
    return search.run(ordered.units(legal_or_kept))


def _find_in_groups(cycle: Cycle, job: JobInfo, step: Step) -> OfferResult:
    """Free capacity for a step in one group of nodes by its queue's quota there."""
    demand = cycle.demand(job, step)
    fixed = demand if cycle.is_fixed(job) else NONE
    in_all = ReclaimRequest(cycle.queue_usage, job.queue, demand, fixed)
    refusal = in_all.refusal
    if not demand[0] or (refusal is not None and refusal.token is not Token.QUOTA_USED):
        return OfferResult.PLAINLY_NO
    request, tried = None if in_all.needs() else vectorised.request_of(cycle, job, step), False
    for group in groups_in_order(cycle, job):
        claim = GroupClaim(cycle, job, demand, group)
        if claim.may:
            tried = True
            with claim.confined():
                if _found_in_group(cycle, job, step, claim, request):
                    return OfferResult.SERVED
    return OfferResult.NO if tried else OfferResult.PLAINLY_NO


def _found_in_group(
    cycle: Cycle, job: JobInfo, step: Step, claim: GroupClaim, request: GangRequest | None
) -> bool:
    """``request``: the step as the search over arrays understands it, if it does."""
    others = np.arange(len(cycle.queue_usage.used)) != job.queue

    def in_order() -> bool:
        return evict_in_order(
            Search(cycle, job, step, claim.cause),
            candidate_jobs(cycle, job, step, others, claim.nodes),
            lambda victim: is_protected(cycle, job, victim),
            lambda unit: claim.may_take(unit.job, unit.indices),
            lambda unit: claim.covers(unit.job, unit.indices),
            lambda victim, _: claim.may_take(victim, victim.rows),
        )

    if request is None:
        return claim.search(in_order)
    if cycle.is_small and claim.search(in_order):
        return True
    offer, causes = vectorised.from_group(cycle, job, request, claim), (claim.cause, claim.cause)
    return vectorised.make_room(cycle, job, request, offer, causes, lambda: claim.search(in_order))


def _find_preempt(cycle: Cycle, job: JobInfo, step: Step) -> OfferResult:
    """Free capacity for a step by evictions in its own queue."""
    least = preempt_protects_s(cycle.queue_usage.table, job.queue, cycle.settings.min_runtime_s)
    own: Bools = np.arange(len(cycle.queue_usage.used)) == job.queue
    cause, priority = Cause(Token.PREEMPTED, job), job.spec.priority

    def one_by_one() -> bool:
        lower = [v for v in candidate_jobs(cycle, job, step, own) if v.spec.priority < priority]
        search = Search(cycle, job, step, cause)
        return not search.is_hopeless(lower) and evict_in_order(
            search, lower, lambda victim: victim.started + least > cycle.now
        )

    request = vectorised.request_of(cycle, job, step)
    if request is None or cycle.over_limit(job, step) is not None:
        return answered(one_by_one())
    offer = vectorised.offer(
        cycle,
        job,
        request,
        own,
        vectorised.open_budgets(cycle),
        below=priority,
        protected_s=np.full(len(own), least) if least else None,
    )
    if offer.table is None:
        return OfferResult.PLAINLY_NO
    causes = cause, cause
    return answered(vectorised.make_room(cycle, job, request, offer, causes, one_by_one))


RECLAIM = Rule("reclaim", preemptors.for_reclaim, _find_reclaim, not_delayed_reclaim)
RECLAIM_IN_GROUP = Rule(
    "reclaim_in_group", preemptors.for_reclaim_in_group, _find_in_groups, not_delayed_reclaim
)
"""The rule of quotas in groups of nodes."""
PREEMPT = Rule("preempt", preemptors.for_preempt, _find_preempt)
