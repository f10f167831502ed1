"""Invariants of the evictions of every plan.

Functions over a state and a plan, like those of ``plans``. Claims are replayed one after
another on use counted from single tasks: each preemptor's victims, then the preemptor itself.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import groupby

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.events import Outcome, Preemptibility, QueueSet
from carrel_scheduler.core.invariants.recount import (
    Uses,
    all_held,
    below_minimum,
    core_of,
    counting,
    met,
    path_names,
)
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.plan import Eviction, Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import UNLIMITED, Triple, added
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.invariants.after import After
from unit.core.invariants.needed_victims import victims_are_needed
from unit.core.invariants.plans import PLACE_INVARIANTS, PlanInvariant
from unit.core.invariants.preemptors import claims_stay_within_the_fair_share

FORCED = (Token.GANG_INCOMPLETE, Token.NODE_DRAINED, Token.IMPROVED)
"""What ends work whatever its kind: a gang that runs in vain, a node that is emptied,
nodes that it prefers."""


def victims_run(after: After) -> list[str]:
    """Victims run, were not told to stop before, and are told once."""
    found = [
        f"tasks of {uid} are told twice: {indices}"
        for uid, indices in sorted(after.stops.items())
        if len(set(indices)) < len(indices)
    ]
    for uid, indices in sorted(after.stops.items()):
        if not set(indices) <= set(after.state.job(uid).running()) or not indices:
            found.append(f"{uid}: of {indices} some do not run")
    return found


def protected_are_no_victims(after: After) -> list[str]:
    """No non-preemptible task, and no protected core, gives way."""
    return [
        f"{one.uid} is {job.spec.preemptible} and gives way by {one.reason.token}"
        for one in after.plan.evictions
        for job in [after.state.job(one.uid)]
        if one.reason.token not in FORCED and core_of(job) & set(after.stops[one.uid])
    ]


def victims_have_a_beneficiary(after: After) -> list[str]:
    """A workload for which others give way gets capacity in the same plan, where it waits."""
    found = []
    for one in after.plan.evictions:
        uid = one.reason.workload_uid
        if one.reason.token not in FORCED and uid not in after.fresh and uid not in after.holds:
            found.append(f"{one.uid} gives way to {uid or 'nobody'}, which gets no room")
    return found


def victims_leave_whole_gangs(after: After) -> list[str]:
    """The rest of a victim has its minima, or nothing of it runs.

    Members that move come back, so the others may wait for them; nothing is missing from what is
    ending, as it is once a task has succeeded.
    """
    found = []
    for uid, stopped in sorted(after.stops.items()):
        eviction = after.evictions[uid]
        if eviction.moved or eviction.reason.token in FORCED:
            continue
        job = after.state.job(uid)
        if Outcome.SUCCEEDED in (job.out or {}).values():
            continue
        before, there = counting(job), counting(job, after.fresh.get(uid, ()), stopped)
        left = set(job.running()) - set(stopped)
        broken = not met(job.shape.group, there) or below_minimum(job.shape.group, there)
        if left and broken and not below_minimum(job.shape.group, before):
            found.append(f"{uid} keeps {sorted(left)} in vain")
    return found


def nobody_within_quota_is_reclaimed(after: After) -> list[str]:
    """Where the paths of preemptor and victim part, the victim's side is beyond its quota.

    In a resource that is claimed and held. The victim's own queue is so too, as far as the quotas
    on its side are no more than those above them. Of the victims of a claim the largest comes last;
    what only moves is nobody's loss.
    """
    uses, found, seen = use_before_claims(after), [], set[str]()
    for preemptor, evictions in claims(after, Token.RECLAIMED):
        demand = added(place.amounts for place in after.holds.get(preemptor.uid, {}).values())
        for one in sorted(evictions, key=partial(_loses, after)):
            victim, held = after.state.job(one.uid), _loses(after, one)
            if only_moves(after, one) or not any(held):
                continue
            side = side_of(after.state, preemptor, victim)
            if not side:
                found.append(f"{one.uid} is reclaimed by its own queue")
                continue
            if one.reason.detail:  # by a quota in a group, see ``group_quotas``
                uses.add(victim.queue, held, -1)
                continue
            told = _stops(after, one)
            beyond = [_beyond(rule, uses.of[rule.name], demand, told) for rule in side]
            if not beyond[0]:
                found.append(f"{one.uid} gives way to {preemptor.uid}: {side[0].name} within quota")
            elif not beyond[-1] and _quotas_add_up(after.state, side):
                found.append(
                    f"{one.uid} gives way to {preemptor.uid}: {side[-1].name} within quota"
                )
            uses.add(victim.queue, held, -1)
        for job in (preemptor, *(after.state.job(one.uid) for one in evictions)):
            fresh = after.fresh.get(job.uid, {}) if job.uid not in seen else {}
            stops = () if job.spec.interactive else after.stops.get(job.uid, ())
            new = (place.amounts for index, place in fresh.items() if index not in stops)
            uses.add(job.queue, added(new))
            seen.add(job.uid)
    return found


def preempted_are_of_lower_priority(after: After) -> list[str]:
    """Inside a queue only strictly lower priority gives way."""
    return [
        f"{one.uid} is preempted by {preemptor.uid}"
        for preemptor, evictions in _by_claimer(after, Token.PREEMPTED)
        for one in evictions
        if not only_moves(after, one)
        for victim in [after.state.job(one.uid)]
        if victim.queue != preemptor.queue or victim.spec.priority >= preemptor.spec.priority
    ]


def minimum_run_times_respected(after: After) -> list[str]:
    """Work that has not run long enough keeps its minimum.

    Of what ran, unless that was less: what was broken may be made whole and give what is too much.
    """
    found = []
    for token in (Token.RECLAIMED, Token.PREEMPTED):
        for preemptor, evictions in _by_claimer(after, token):
            for one in evictions:
                if only_moves(after, one):
                    continue
                victim = after.state.job(one.uid)
                least = _least_runtime(after.state, preemptor, victim, token)
                is_whole = met(victim.shape.group, counting(victim))
                new = () if is_whole else after.starts.get(one.uid, ())
                left = counting(victim, new, after.stops[one.uid])
                whole = any(left) and met(victim.shape.group, left)
                if victim.started + least > after.now and not whole:
                    found.append(f"{one.uid} is {token} before it has run {least} s")
    return found


def delays_respected(after: After) -> list[str]:
    """Work gives way only to work whose delay has passed; other queues have their own delay."""
    return [
        f"{one.uid} gives way to {preemptor.uid} before its delay has passed"
        for one in after.plan.evictions
        if one.reason.token not in FORCED and one.reason.workload_uid
        for preemptor in [after.state.job(one.reason.workload_uid)]
        for begin in [max(preemptor.spec.created_at, preemptor.evicted_at or 0.0)]
        for delay in [_delay_s(after, one, preemptor)]
        if delay > 0 and after.now < begin + delay
    ]


def _delay_s(after: After, one: Eviction, preemptor: JobInfo) -> float:
    free = preemptor.spec.preemptible is Preemptibility.YES
    of_all = one.reason.token is Token.RECLAIMED and free
    return max(preemptor.spec.preemption_delay_s, after.state.settings.reclaim_delay_s * of_all)


def moved_work_has_its_place(after: After) -> list[str]:
    """Work that is said to move has capacity reserved for all that stops."""
    return [
        f"{one.uid} is moved without a place"
        for one in after.plan.evictions
        if one.moved and not set(after.stops[one.uid]) <= set(after.fresh.get(one.uid, {}))
    ]


def consolidation_only_moves(after: After) -> list[str]:
    """Consolidation moves; it ends nothing, and never moves interactive work."""
    return [
        f"{one.uid} is moved or ended by consolidation"
        for one in after.plan.evictions
        if one.reason.token is Token.CONSOLIDATED
        and (not one.moved or after.state.job(one.uid).spec.interactive)
    ]


def stale_gangs_outlived_their_grace(after: After) -> list[str]:
    """A gang is ended as stale only after being below a minimum for longer than its grace."""
    found = []
    for one in after.plan.evictions:
        if one.reason.token is Token.GANG_INCOMPLETE:
            job = after.state.job(one.uid)
            own = job.spec.stale_grace_s
            grace = after.state.settings.stale_grace_s if own is None else own
            since = job.stale_since
            if grace < 0 or since is None or after.now < since + grace:
                found.append(f"{one.uid} is ended as stale too early")
            if not below_minimum(job.shape.group, counting(job)):
                found.append(f"{one.uid} is ended as stale and is whole")
    return found


def every_waiter_has_one_answer(after: After) -> list[str]:
    """Each workload that waits has one reason or starts; no other has one."""
    reasons = after.plan.reasons
    waiting = {
        uid for uid, job in after.state.jobs.by_uid.items() if job.pending() and not job.rows
    }
    silent = sorted(waiting - set(reasons) - set(after.starts))
    known = {uid for uid, job in after.state.jobs.by_uid.items() if job.queued}
    found = [f"{uid} waits and has no reason" for uid in silent]
    return found + [f"{uid} has a reason and does not wait" for uid in sorted({*reasons} - known)]


VICTIM_INVARIANTS: tuple[PlanInvariant, ...] = (
    victims_run,
    protected_are_no_victims,
    victims_have_a_beneficiary,
    victims_are_needed,
    victims_leave_whole_gangs,
    nobody_within_quota_is_reclaimed,
    claims_stay_within_the_fair_share,
    preempted_are_of_lower_priority,
    minimum_run_times_respected,
    delays_respected,
    moved_work_has_its_place,
    consolidation_only_moves,
    stale_gangs_outlived_their_grace,
    every_waiter_has_one_answer,
)


def check_plan(state: Columns, plan: Plan, now: float) -> list[str]:
    """The violations of the invariants by a plan, on the state it was made from."""
    after = After.of(state, plan, now)
    return [
        f"{each.__name__}: {one}"
        for each in (*PLACE_INVARIANTS, *VICTIM_INVARIANTS)
        for one in each(after)
    ]


def only_moves(after: After, one: Eviction) -> bool:
    """Whether it loses nothing but the time of a restart, which anybody's batch work may."""
    return one.moved and not after.state.job(one.uid).spec.interactive


def claims(after: After, token: Token) -> Iterator[tuple[JobInfo, list[Eviction]]]:
    """Claims in the order in which they were decided; who grows may claim several times."""
    mine = (one for one in after.plan.evictions if one.reason.token is token)
    for uid, evictions in groupby(mine, key=lambda one: one.reason.workload_uid):
        yield after.state.job(uid), list(evictions)


def _by_claimer(after: After, token: Token) -> Iterator[tuple[JobInfo, list[Eviction]]]:
    grouped: dict[str, list[Eviction]] = {}
    for one in after.plan.evictions:
        if one.reason.token is token:
            grouped.setdefault(one.reason.workload_uid, []).append(one)
    for uid, evictions in grouped.items():
        yield after.state.job(uid), evictions


def use_before_claims(after: After, counts: Callable[[Footprint], bool] = lambda _: True) -> Uses:
    """Per queue what runs, starts or is promised, but for what comes with or after reclaiming.

    ``counts``: only on these places.
    """
    tokens = (Token.RECLAIMED, Token.PREEMPTED)
    mine = [one for one in after.plan.evictions if one.reason.token in tokens]
    later = {one.uid for one in mine} | {one.reason.workload_uid for one in mine}
    uses = Uses(after.state)
    for one in all_held(after.state):
        moved = after.evictions.get(one.job.uid)
        gone = moved is not None and moved.reason.token is Token.CONSOLIDATED
        leaves = gone and one.index in after.stops[one.job.uid]
        if not one.stopping and not leaves and counts(one.place):
            uses.add(one.job.queue, one.place.amounts)
    for places in (after.starts, {u: p for u, p in after.holds.items() if u not in later}):
        for uid in sorted(places):
            amounts = added(p.amounts for p in places[uid].values() if counts(p))
            uses.add(after.state.job(uid).queue, amounts)
    return uses


def _loses(after: After, one: Eviction) -> Triple:
    """The amounts of stopping tasks without another place; interactive work loses all."""
    interactive = after.state.job(one.uid).spec.interactive
    return _stops(after, one, () if interactive else after.fresh.get(one.uid, ()))


def _stops(after: After, one: Eviction, but: Collection[int] = ()) -> Triple:
    """The amounts of its tasks that stop, but for some; it may give way to several."""
    job = after.state.job(one.uid)
    stops = one.indices or after.stops[one.uid]
    rows = (job.rows[index] for index in stops if index not in but)
    return added(after.state.tasks.footprint(row).amounts for row in rows)


def side_of(state: Columns, preemptor: JobInfo, victim: JobInfo) -> list[QueueSet]:
    """The victim's queues below the lowest common one, from the top down."""
    common = {rule.name for rule in path_names(state, preemptor.queue)}
    mine = [rule for rule in path_names(state, victim.queue) if rule.name not in common]
    return mine[::-1]


def _beyond(rule: QueueSet, used: list[int], demand: Triple, held: Triple) -> bool:
    return any(
        kept != UNLIMITED and demand[r] and held[r] and used[r] > kept
        for r, kept in enumerate(_kept(rule))
    )


def _kept(rule: QueueSet) -> tuple[int, ...]:
    """The amounts that a queue may hold without being beyond its quota: no more than its limit."""
    bounds = zip(rule.quota.as_tuple(), rule.limit.as_tuple(), strict=True)
    return tuple(
        min((one for one in pair if one != UNLIMITED), default=UNLIMITED) for pair in bounds
    )


def _quotas_add_up(state: Columns, side: list[QueueSet]) -> bool:
    """Whether quotas below each of these queues are no more than its own."""
    children: Mapping[str, list[QueueSet]] = {
        above.name: [r for r in state.queues.rules if r is not None and r.parent == above.name]
        for above in side
    }
    for above in side[:-1]:
        for r, own in enumerate(_kept(above)):
            parts = [_kept(rule)[r] for rule in children[above.name]]
            if own != UNLIMITED and (UNLIMITED in parts or sum(parts) > own):
                return False
    return True


def _least_runtime(state: Columns, preemptor: JobInfo, victim: JobInfo, token: Token) -> float:
    path = list(path_names(state, victim.queue))
    if token is Token.PREEMPTED:
        values = [rule.preempt_min_runtime_s for rule in path]
    else:
        common = {rule.name for rule in path_names(state, preemptor.queue)}
        parting = sum(rule.name not in common for rule in path) - 1
        values = [rule.reclaim_min_runtime_s for rule in path[max(parting, 0) :]]
    default = state.settings.min_runtime_s
    return next((value for value in values if value is not None), default)
