"""Quotas in groups of nodes: what must hold for the claims and starts of every plan.

Guarantees are worked out anew here from the rules by name, and use from single tasks.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import partial

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.invariants.recount import Uses, all_held, core_of, path_names
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.plan import Eviction, Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import IN_GROUP
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.invariants.after import After
from unit.core.invariants.evictions import claims, only_moves, side_of, use_before_claims
from unit.core.invariants.plans import PlanInvariant, group_of


def nobody_within_a_group_quota_is_reclaimed(after: After) -> list[str]:
    """Of work all of which lies in one group, the victim's side is beyond its quota there.

    Of the victims of a claim the largest comes last. A claim by a quota in a group takes only work
    of which some lies in it.
    """
    state, found = after.state, list[str]()
    for group in groups_with_quotas(state):
        uses = use_before_claims(after, partial(_lies_in, state, group))
        seen = set[str]()
        for preemptor, evictions in claims(after, Token.RECLAIMED):
            held = {id(one): _gpus(state, _ended(after, one)) for one in evictions}
            for one in sorted(evictions, key=lambda one: held[id(one)][group]):
                lost = held[id(one)][group]
                wholly = set(+_gpus(state, _runs(after, one.uid))) == {group}
                claimed = one.reason.detail == group
                if claimed and not _gpus(state, _stopped(after, one))[group]:
                    found.append(f"{one.uid} gives way for {group} and holds nothing there")
                if lost and not only_moves(after, one) and (claimed or wholly):
                    found += _within(after, uses, group, preemptor, one)
                uses.add(state.job(one.uid).queue, (lost, 0, 0), -1)
            for job in (preemptor, *(state.job(one.uid) for one in evictions)):
                fresh = after.fresh.get(job.uid, {}) if job.uid not in seen else {}
                stops = () if job.spec.interactive else after.stops.get(job.uid, ())
                new = (place for index, place in fresh.items() if index not in stops)
                uses.add(job.queue, (_gpus(state, new)[group], 0, 0))
                seen.add(job.uid)
    return found


def claims_in_a_group_stay_within_its_quota(after: After) -> list[str]:
    """A workload that claims by a quota in a group has its places there, within a quota."""
    state, found = after.state, list[str]()
    told = {(e.reason.workload_uid, e.reason.detail) for e in after.plan.evictions}
    for uid, group in sorted(told):
        job, places = state.job(uid) if uid else None, after.fresh.get(uid, {})
        if job is None or not group or job.shape.elastic:
            continue
        if any(group_of(state, place) != group for place in places.values()):
            found.append(f"{uid} claims {group} and gets places elsewhere")
        used = _kept(after, group)
        guaranteed = guarantees(state, group)
        if all(used.of[r.name][0] > guaranteed[r.name] for r in path_names(state, job.queue)):
            found.append(f"{uid} claims {group} beyond every quota there")
    return found


def fixed_work_takes_no_guarantee(after: After) -> list[str]:
    """Non-preemptible work starts only on what is its queue's, or nobody's, in a group."""
    state, found = after.state, list[str]()
    for group in groups_with_quotas(state):
        fixed = _fixed(after, group)
        guaranteed, tops = guarantees(state, group), _tops(state)
        most = sum(max(fixed.of[top][0], guaranteed[top]) for top in tops)
        for job, index, place in after.new_places():
            core = index in core_of(
                job,
                {*after.starts.get(job.uid, ()), *after.fresh.get(job.uid, ())},
                after.stops.get(job.uid, ()),
            )
            top = list(path_names(state, job.queue))[-1].name
            beyond = fixed.of[top][0] > guaranteed[top] and most > _there(state, group)
            moves = index in after.stops.get(job.uid, ()) or index in job.halted
            if (
                place.amounts[0]
                and core
                and beyond
                and not moves
                and group_of(state, place) == group
            ):
                found.append(f"{job.uid}[{index}] takes what others are guaranteed in {group}")
    return found


GROUP_INVARIANTS: tuple[PlanInvariant, ...] = (
    nobody_within_a_group_quota_is_reclaimed,
    claims_in_a_group_stay_within_its_quota,
    fixed_work_takes_no_guarantee,
)


def check_groups(state: Columns, plan: Plan, now: float) -> list[str]:
    """The violations of quotas in groups of nodes by a plan."""
    if not groups_with_quotas(state):
        return []
    after = After.of(state, plan, now)
    return [f"{each.__name__}: {one}" for each in GROUP_INVARIANTS for one in each(after)]


def guarantees(state: Columns, group: str) -> dict[str, int]:
    """The guarantee of each queue in a group, or that of its children together."""
    rules = [rule for rule in state.queues.rules if rule is not None]

    def of(rule: QueueSet) -> int:
        own = dict(rule.group_quotas).get(group)
        if own is not None:
            return own
        return sum(of(child) for child in rules if child.parent == rule.name)

    return {rule.name: of(rule) for rule in rules}


def groups_with_quotas(state: Columns) -> list[str]:
    """Groups in which some queue has a quota that is not 0."""
    rules = (rule.group_quotas for rule in state.queues.rules if rule is not None)
    return sorted({group for quotas in rules for group, amount in quotas if amount})


def _within(
    after: After, uses: Uses, group: str, preemptor: JobInfo, one: Eviction
) -> Iterator[str]:
    state = after.state
    side, guaranteed = side_of(state, preemptor, state.job(one.uid)), guarantees(state, group)
    beyond = [uses.of[rule.name][0] > guaranteed[rule.name] for rule in side]
    if side and not beyond[0]:
        yield f"{one.uid} gives way to {preemptor.uid}: {side[0].name} within quota in {group}"
    elif side and not beyond[-1] and _add_up(state, side, guaranteed):
        yield f"{one.uid} gives way to {preemptor.uid}: {side[-1].name} within quota in {group}"


def _add_up(state: Columns, side: list[QueueSet], guaranteed: dict[str, int]) -> bool:
    return all(
        sum(guaranteed[r.name] for r in state.queues.rules if r and r.parent == above.name)
        <= guaranteed[above.name]
        for above in side[:-1]
    )


def _lies_in(state: Columns, group: str, place: Footprint) -> bool:
    return group_of(state, place) == group


def _gpus(state: Columns, places: Iterable[Footprint]) -> Counter[str]:
    found = Counter[str]()
    for place in places:
        found[group_of(state, place)] += place.amounts[0]
    return found


def _runs(after: After, uid: str) -> list[Footprint]:
    """Places of all tasks of a job that run."""
    job = after.state.job(uid)
    return [after.state.tasks.footprint(job.rows[i]) for i in job.running()]


def _ended(after: After, one: Eviction) -> list[Footprint]:
    """Places of the tasks that stop, but for those that get another; see ``evictions``."""
    interactive = after.state.job(one.uid).spec.interactive
    return _stopped(after, one, () if interactive else after.fresh.get(one.uid, ()))


def _stopped(after: After, one: Eviction, but: Collection[int] = ()) -> list[Footprint]:
    """Places of the tasks that stop, but for some."""
    job, stops = after.state.job(one.uid), one.indices or after.stops[one.uid]
    return [after.state.tasks.footprint(job.rows[i]) for i in stops if i not in but]


def _kept(after: After, group: str) -> Uses:
    """The use of a group after the plan, with all places that it gives there or keeps for claims.

    Others may have got theirs later, so of new places only the claims' own are counted.
    """
    state, uses = after.state, Uses(after.state)
    claimed = {e.reason.workload_uid for e in after.plan.evictions if e.reason.detail == group}
    for one in all_held(state):
        leaves = one.index in after.stops.get(one.job.uid, ())
        if not one.stopping and not leaves and group_of(state, one.place) == group:
            uses.add(one.job.queue, one.place.amounts)
    for uid in sorted(claimed - {""}):
        uses.add(
            state.job(uid).queue, (_gpus(state, after.fresh.get(uid, {}).values())[group], 0, 0)
        )
    return uses


def _fixed(after: After, group: str) -> Uses:
    """The use of non-preemptible work in a group afterwards."""
    state, uses = after.state, Uses(after.state)
    for uid, job in sorted(state.jobs.by_uid.items()):
        stopped = after.stops.get(uid, ())
        places = {i: state.tasks.footprint(job.rows[i]) for i in job.running() if i not in stopped}
        new = {**after.starts.get(uid, {}), **after.holds.get(uid, {})}
        places |= new
        some = [places[i] for i in core_of(job, new, stopped) if i in places]
        uses.add(job.queue, (_gpus(state, some)[group], 0, 0))
    return uses


def _tops(state: Columns) -> list[str]:
    return [rule.name for rule in state.queues.rules if rule is not None and not rule.parent]


def _there(state: Columns, group: str) -> int:
    """The GPUs of a group that work."""
    return sum(
        (fact.devices - len(fact.broken_devices)) * MILLI + fact.counted_milli
        for fact in state.nodes.facts
        if fact is not None and dict(fact.labels).get(IN_GROUP) == group
    )
