"""Preempt and reclaim together: lower priority of the own queue, and over-quota work of others.

For work that fits by neither of the two rules alone. What leaves its own queue is counted out of
it, so the request on others is allowed where the queue ends within its fair share. Each victim is
evicted by its own rule: those of the own queue as for preempt, the others as for reclaim. A queue
that is beyond its fair share already takes from nobody, so no more of its own work has to leave for
the sake of the request than it asks for.

At first the cheapest set is looked for as if all lower priority of the own queue had left, so with
the largest budgets there may be. Where that set takes so little of it that the request would be
refused, as much as the request needs leaves first, and the rest is looked for again; those whom
neither the request nor its places need stay after all.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import OfferResult, answered
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.layers import LARGEST, Bools
from carrel_scheduler.core.preemption import own_queue, preemptors, vectorised
from carrel_scheduler.core.preemption.candidates import Times
from carrel_scheduler.core.preemption.group_quotas import GroupGuarantees
from carrel_scheduler.core.preemption.legality import is_protected, preempt_protects_s
from carrel_scheduler.core.preemption.node_prefilter import candidate_jobs, enough_in_all
from carrel_scheduler.core.preemption.own_queue import OwnQueue, reaches_others, sum_of
from carrel_scheduler.core.preemption.preemptors import Rule, Step, not_delayed_reclaim
from carrel_scheduler.core.preemption.search.model import GangRequest
from carrel_scheduler.core.preemption.sequential import Search
from carrel_scheduler.core.preemption.victim_order import (
    EvictionUnit,
    OrderedVictims,
    who_may_give,
)
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.resources import NONE, Triple
from carrel_scheduler.core.work.jobs import JobInfo


def _find(cycle: Cycle, job: JobInfo, step: Step) -> OfferResult:
    """Free capacity for a step by what may be taken inside its queue and from others."""
    queue_usage, request = cycle.queue_usage, vectorised.request_of(cycle, job, step)
    if not queue_usage.within(queue_usage.fair[job.queue], job.queue, NONE):
        return OfferResult.PLAINLY_NO
    if request is not None and not _in_reach(cycle, job, request):
        return OfferResult.PLAINLY_NO
    own = OwnQueue(cycle, job, step)
    budgets = own.budgets(own.most) if own.most != NONE else None
    if budgets is None or not reaches_others(budgets):
        return OfferResult.PLAINLY_NO
    return answered(_make_room(own, request))


def _in_reach(cycle: Cycle, job: JobInfo, request: GangRequest) -> bool:
    """Whether by sums its own queue and all queues over quota could give enough."""
    giving = cycle.over_quota_queues.copy()
    giving[job.queue] = True
    return cycle.is_small or enough_in_all(cycle, job.shape.cls, request.tasks, giving)


def _make_room(own: OwnQueue, request: GangRequest | None) -> bool:
    """Evict victims and reserve their places.

    Args:
        own: the preemptor, and what may leave its queue.
        request: its step as ``search`` understands it, if it does.
    """
    budgets = own.budgets(own.most)
    if own.gives(NONE, budgets):
        return _after(own, request, ())
    found = None if request is None else _as_if_all_left(own, request)
    if found is not None:
        return found
    first = own.least(lambda gone: own.budgets(gone) is not None)
    if own.budgets(sum_of(first)) is None:
        return False
    if _after(own, request, first):
        return True
    every = own.least(lambda gone: own.gives(gone, budgets))
    return len(every) > len(first) and _after(own, request, every)


def _as_if_all_left(own: OwnQueue, request: GangRequest) -> bool | None:
    """The cheapest set with all rights there may be; ``None`` where another way has to be tried."""
    cycle, budgets = own.cycle, own.budgets(own.most)
    offer = _offer(own, request, own.most)
    if offer is None:
        return None
    if offer.table is None:
        return False
    mark = cycle.moves.mark()
    causes = own.causes(own.most)
    if vectorised.make_room(cycle, own.preemptor, request, offer, causes, lambda: False):
        if own.gives(own.gone, budgets):
            return True
        cycle.moves.rollback(mark)
        return None
    return None if vectorised.are_few(offer.table) or offer.table.left_out else False


def _after(own: OwnQueue, request: GangRequest | None, leaving: Sequence[EvictionUnit]) -> bool:
    """Free capacity after some of the own queue have left, so that the request stands."""
    cycle, gone = own.cycle, sum_of(leaving)
    mark, causes = cycle.moves.mark(), own.causes(gone)
    before = own_queue.overcommitted(own, leaving)
    for unit in leaving:
        for index in unit.indices:
            cycle.moves.take_back(unit.job, index, causes[1])
    offer = None if request is None else _offer(own, request, gone)
    if request is None or offer is None:
        everybody = np.ones(len(cycle.queue_usage.used), np.bool_)
        victims = candidate_jobs(cycle, own.preemptor, own.step, everybody)
        found = _one_by_one(own, gone, causes, victims)
    else:
        table = offer.table
        found = table is not None and vectorised.make_room(
            cycle,
            own.preemptor,
            request,
            offer,
            causes,
            lambda: _one_by_one(own, gone, causes, table.jobs()),
        )
    if not found:
        cycle.moves.rollback(mark)
        return False
    budgets = own.budgets(gone) if own_queue.others_lose(own, mark) else None
    own_queue.spare(own, leaving, before, budgets)
    return True


def _one_by_one(
    own: OwnQueue, gone: Triple, causes: tuple[Cause, Cause], victims: Iterable[JobInfo]
) -> bool:
    """The search one by one; the request is judged as if no more of the own queue left."""
    cycle, job, reclaim = own.cycle, own.preemptor, own.reclaim(gone)
    least = preempt_protects_s(cycle.queue_usage.table, job.queue, cycle.settings.min_runtime_s)
    search = Search(cycle, job, own.step, causes[0], own=causes[1])
    some = [
        victim
        for victim in victims
        if victim.queue != job.queue or victim.spec.priority < job.spec.priority
    ]
    of_others = who_may_give(reclaim, (victim for victim in some if victim.queue != job.queue))
    if search.is_hopeless([*of_others, *(victim for victim in some if victim.queue == job.queue)]):
        return False

    def protected(victim: JobInfo) -> bool:
        if victim.queue == job.queue:
            return victim.started + least > cycle.now
        return is_protected(cycle, job, victim)

    protection = GroupGuarantees.of(cycle, job.queue) if cycle.group_quotas else None

    def may_go(unit: EvictionUnit) -> bool:
        return unit.job.queue == job.queue or (
            reclaim.may_take(unit.job, unit.amounts)
            and (protection is None or protection.may_take(unit.job, unit.indices))
        )

    def lies_beyond(unit: EvictionUnit) -> bool:
        return unit.job.queue == job.queue or reclaim.covers(unit.job.queue, unit.amounts)

    def units() -> Iterator[EvictionUnit]:
        for unit in OrderedVictims(cycle, some, protected).units(may_go, lies_beyond):
            if unit.job.queue != job.queue:
                reclaim.take(unit.job.queue, unit.amounts)
            yield unit

    return search.run(units())


def _offer(own: OwnQueue, request: GangRequest, gone: Triple) -> vectorised.Offer | None:
    """The victims that either rule allows, and how much their queues may lose.

    ``gone`` has left already. ``None`` where ``search`` cannot tell.
    """
    cycle, job = own.cycle, own.preemptor
    reclaim, known = own.entitled(gone)
    budgets = vectorised.budgets_of(cycle, reclaim, known)
    if budgets is None:
        return None
    kept = reclaim.kept_priorities(np.asarray((budgets.excess > 0).any(axis=1)))
    budgets.excess[job.queue] = NO_BOUND
    giving: Bools = np.asarray((budgets.excess > 0).any(axis=1))
    near = cycle.over_quota_queues.copy()
    near[job.queue] = True
    below = np.full(len(giving), LARGEST, np.int64) if kept is None else kept
    below[job.queue] = job.spec.priority
    found = vectorised.offer(
        cycle, job, request, giving, budgets, near=near, below=below, protected_s=_protected_s(own)
    )
    if found.table is None:
        return found
    protection = GroupGuarantees.of(cycle, job.queue) if cycle.group_quotas else None
    return vectorised.Offer(vectorised.beyond(found.table, budgets, protection), budgets)


def _protected_s(own: OwnQueue) -> Times | None:
    cycle, leaf = own.cycle, own.preemptor.queue
    least = preempt_protects_s(cycle.queue_usage.table, leaf, cycle.settings.min_runtime_s)
    found = vectorised.protected_s(cycle, leaf)
    if found is None and least:
        found = np.zeros(len(cycle.queue_usage.used))
    if found is not None:
        found[leaf] = least
    return found


def _growing(cycle: Cycle) -> list[JobInfo]:
    return [job for job in preemptors.singles(cycle) if not cycle.grows(job)]


PREEMPT_AND_RECLAIM = Rule(
    "preempt_and_reclaim",
    preemptors.for_combine,
    _find,
    not_delayed_reclaim,
    singles=_growing,
    most=lambda cycle, rows: max(preemptors.most_failed_searches(cycle), rows),
)
