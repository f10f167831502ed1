"""Invariant over two plans in a row: no two workloads or queues evict each other in turn.

By workload and by queue, for each right that is claimed: one queue may have a right to another's
work in one group of nodes, and the other one to its work elsewhere. A queue whose last victim took
it below its quota may claim that much back, so it makes no pair.
"""

from collections.abc import Iterator

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.invariants.recount import Uses
from carrel_scheduler.core.plan import Eviction, Plan
from carrel_scheduler.core.resources import UNLIMITED, Triple, added
from unit.core.invariants.after import After

Pair = tuple[str, str]


def pairs(state: Columns, plan: Plan) -> frozenset[Pair]:
    """(who gave way, to whom) of a plan."""
    found: set[Pair] = set()
    for one in _ended(plan):
        preemptor = one.reason.workload_uid
        ends = (state.job(one.uid).spec.project, state.job(preemptor).spec.project)
        found.add((one.uid, preemptor))
        if ends[0] != ends[1]:
            found.add((_side(ends[0], one), _side(ends[1], one)))
    queues = [state.job(one.uid).spec.project for one in _ended(plan)]
    back = {f"queue {name}" for name in _below_quota(state, plan, queues)} if queues else set()
    return frozenset(pair for pair in found if pair[0] not in back)


def _side(queue: str, one: Eviction) -> str:
    """A queue, and the group of nodes where the right is for one."""
    return f"queue {queue} in {one.reason.detail}" if one.reason.detail else f"queue {queue}"


def no_ping_pong(before: frozenset[Pair], now: frozenset[Pair]) -> list[str]:
    """No workload is evicted for one that was evicted for it in the cycle before.

    Args:
        before: ``pairs`` of one cycle.
        now: of the next one, nothing but the plan having happened in between.
    """
    return [
        f"no_ping_pong: {one} and {two} evict each other"
        for one, two in sorted(now)
        if (two, one) in before
    ]


def _ended(plan: Plan) -> Iterator[Eviction]:
    """The evictions for other work that are final."""
    return (one for one in plan.evictions if one.reason.workload_uid and not one.moved)


def _below_quota(state: Columns, plan: Plan, queues: list[str]) -> set[str]:
    """The queues that are left with less than their quota of something they gave."""
    uses, gave, after = Uses(state), Uses(state), After.of(state, plan, 0.0)
    for job in state.jobs.by_uid.values():
        stops = after.stops.get(job.uid, ())
        places = {index: state.tasks.footprint(job.rows[index]) for index in job.running()}
        runs = [place for index, place in places.items() if index not in stops]
        new = (*after.starts.get(job.uid, {}).values(), *after.holds.get(job.uid, {}).values())
        uses.add(job.queue, added(place.amounts for place in (*runs, *new)))
        gave.add(job.queue, added(places[index].amounts for index in stops))
    return {name for name in queues if _some_less(state, name, uses.of[name], gave.of[name])}


def _some_less(state: Columns, name: str, uses: list[int], gave: list[int]) -> bool:
    quota: Triple = state.queues.rule(state.queues.slots[name]).quota.as_tuple()
    each = zip(quota, uses, gave, strict=True)
    return any(most != UNLIMITED and given and used < most for most, used, given in each)
