"""Reservations: places kept for a workload until the tasks there have ended.

Three actions of a cycle: start on reserved places that have become free, replace reservations that
keep their workload waiting, and reserve places for one workload that starves.
"""

from collections.abc import Container, Iterable, Sequence

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import OfferResult
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.cycle.starvation import has_waited_long, starving
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.preemption.candidates import victims_of
from carrel_scheduler.core.preemption.consolidate import CONSOLIDATE_FOR_ENTITLED
from carrel_scheduler.core.preemption.node_prefilter import likely_nodes
from carrel_scheduler.core.preemption.preempt_and_reclaim import PREEMPT_AND_RECLAIM
from carrel_scheduler.core.preemption.preemptors import reservations_in_turn
from carrel_scheduler.core.preemption.rules import PREEMPT, RECLAIM, RECLAIM_IN_GROUP
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import MILLI, NONE, added
from carrel_scheduler.core.work.jobs import JobInfo


def start_reserved(cycle: Cycle) -> None:
    """Start tasks on the places that are reserved for them once all of these are free.

    Reserved capacity is nobody else's, so the order among reservations does not matter. A
    reservation ends where it can no longer be used (a device broke, a node left service, a limit
    was lowered, the task there does not end) or is of no use (others of the gang have ended); its
    workload looks for capacity like any other in the same cycle.
    """
    stuck = np.flatnonzero(cycle.state.tasks.stuck).tolist()
    for uid in sorted(cycle.state.reserved):
        _settle(cycle, cycle.state.reserved[uid], stuck)


def _settle(cycle: Cycle, job: JobInfo, stuck: Sequence[int]) -> None:
    indices = [index for index, _ in job.reservation]
    places = [place for _, place in job.reservation]
    lost = _is_lost(cycle, places, stuck) or _over_group_limit(cycle, job, places)
    if not lost and _waits_on(cycle, job, indices, places):
        return
    mark = cycle.moves.mark()
    for index in indices:
        cycle.moves.unreserve(job, index, fixed=job.reservation_fixed)
    lifted = cycle.moves.mark()
    fixed = cycle.is_fixed(job)
    if lost or cycle.over_limit(job, indices) is not None:
        return
    gone = not any(index in job.rows for index in indices)
    if gone and cycle.free_capacity.has(places, soon=False):
        for index, place in job.reservation:
            if not cycle.within_group_limits(job, place):
                cycle.moves.rollback(lifted)
                return
            cycle.moves.start(job, index, place, fixed=fixed)
        if not cycle.works(job, indices):
            cycle.moves.rollback(lifted)
    else:
        cycle.moves.rollback(mark)


def _waits_on(
    cycle: Cycle, job: JobInfo, indices: Sequence[int], places: Sequence[Footprint]
) -> bool:
    """Whether the reservation certainly stays: its places are not free, no limit is exceeded."""
    if job.shape.elastic or _free(cycle, places):
        return False
    held = added(place.amounts for place in places)
    fixed = held if job.reservation_fixed else NONE
    cycle.queue_usage.add(job.queue, held, fixed, -1)
    violation = cycle.over_limit(job, indices) is not None
    cycle.queue_usage.add(job.queue, held, fixed, 1)
    return not violation


def _over_group_limit(cycle: Cycle, job: JobInfo, places: Sequence[Footprint]) -> bool:
    """Whether a limit in a group of nodes was lowered below what is held and reserved there."""
    usage = cycle.group_usage
    return usage is not None and usage.exceeded(job.queue, places)


def _free(cycle: Cycle, places: Sequence[Footprint]) -> bool:
    """Whether each of these places, taken by itself, lies on free capacity."""
    free = cycle.free_capacity.free
    return all(
        all(free.devices.item(device, place.node) >= place.share for device in place.devices)
        and all(free.host.item(r, place.node) >= a for r, a in enumerate(place.host) if a)
        for place in places
    )


def _is_lost(cycle: Cycle, places: Sequence[Footprint], stuck: Sequence[int]) -> bool:
    """Whether a place will not come free, or not be of use."""
    tasks, capacity = cycle.state.tasks, cycle.free_capacity
    if any(capacity.usable(place) < len(place.devices) for place in places):
        return True
    if any(not capacity.nodes.schedulable.item(place.node) for place in places):
        return True
    staying = [tasks.footprint(row) for row in stuck]
    return any(
        held.node == one.node and (not held.devices or not _leaves_room(one, held, staying, places))
        for one in staying
        for held in places
    )


def _leaves_room(
    one: Footprint, held: Footprint, staying: Sequence[Footprint], places: Sequence[Footprint]
) -> bool:
    """Whether a place fits on its devices beside a task that does not end, and beside all others.

    Instances are in the way of those at the same slots, shares of a GPU once they are too much.
    """
    common = set(one.devices).intersection(held.devices)
    if one.slots or held.slots:
        return not (common and one.slots & held.slots)
    return all(
        sum(other.share for other in (*staying, *places) if _is_on(other, held.node, device))
        <= MILLI
        for device in common
    )


def _is_on(place: Footprint, node: int, device: int) -> bool:
    return place.node == node and device in place.devices


def replace_reserved(cycle: Cycle) -> None:
    """Reserve other places for workloads that have waited long, if evicting actions find any.

    Places on which others still run are reserved when nothing else was to be had (``reserve``).
    Later there may be: work has ended elsewhere, so that a few moves free enough, or a queue is
    within its quota again. Where nothing is found the reservation stays.
    """
    if cycle.settings.reservation_delay_s < 0 or not cycle.has_victims:
        return
    late = [
        job
        for uid, job in sorted(cycle.state.reserved.items())
        if uid in cycle.moves.reserved and not job.rows and has_waited_long(cycle, job)
    ]
    for job in reservations_in_turn(cycle, late):
        held = cycle.moves.reserved.get(job.spec.uid, {})
        if held and not _is_coming(cycle, held.values()):
            _replace(cycle, job)


def _replace(cycle: Cycle, job: JobInfo) -> None:
    moves = cycle.moves
    mark, fixed = moves.mark(), cycle.is_fixed(job)
    step = tuple(sorted(moves.reserved[job.spec.uid]))
    for index in step:
        moves.unreserve(job, index, fixed=fixed)
    in_groups = (RECLAIM_IN_GROUP,) if cycle.group_quotas else ()
    for rule in (CONSOLIDATE_FOR_ENTITLED, RECLAIM, *in_groups, PREEMPT, PREEMPT_AND_RECLAIM):
        if rule.attempt(cycle, job, step) is OfferResult.SERVED:
            return
    moves.rollback(mark)


def _is_coming(cycle: Cycle, places: Iterable[Footprint]) -> bool:
    """Whether these places are idle or held by terminating tasks only."""
    free, releasing = cycle.free_capacity.free, cycle.free_capacity.releasing
    for held in places:
        node = held.node
        for device in held.devices:
            if free.devices.item(device, node) + releasing.devices.item(device, node) < held.share:
                return False
        for row, amount in enumerate(held.host):
            if amount > free.host.item(row, node) + releasing.host.item(row, node):
                return False
    return True


def reserve(cycle: Cycle) -> None:
    """Reserve places on which others still run for one workload that starves.

    ``starving`` says which. Those places are chosen that need least to become free, and from then
    on nobody else starts there. What would be served after the workload in its own queue is held
    back besides, so the capacity is within its queue's share in time. So it starts at the latest
    when its own queue's later work and then its neighbours have ended: after the delay and twice
    the longest run time of others, however much small work follows (more when several starve: they
    come in turns). Nothing is stopped for it, and it starts elsewhere at once when it can.
    """
    if len(cycle.moves.reserved) >= cycle.settings.most_reserved:
        return
    for job in starving(cycle):
        step = job.shape.first_step
        if cycle.answered(job) or not cycle.within_share(job, step):
            continue
        if cycle.over_limit(job, step) is None and _reserve(cycle, job, step):
            return


def _reserve(cycle: Cycle, job: JobInfo, step: tuple[int, ...]) -> bool:
    """Hold the places it would get if everybody who may be stopped had ended already.

    Among all nodes those are taken on which the most is idle, so that little has to end; in a large
    cluster only nodes that lack little are looked at. Nobody ends for it, so for limits in groups
    of nodes everybody counts.
    """
    moves, nodes = cycle.moves, None
    everybody = np.ones(len(cycle.queue_usage.used), np.bool_)
    if job.shape.plain and not cycle.looks_at_all(len(step)):
        nodes = likely_nodes(cycle, job.shape.cls, len(step), everybody)
    idle = cycle.free_capacity.idle.devices.sum(axis=0, dtype=np.int64)
    mark = moves.mark()
    with moves.apart_from_groups():
        _cancel_starts(cycle, None if nodes is None else set(nodes.tolist()))
        victims = victims_of(cycle, everybody, members=True, nodes=nodes)
        moves.evict_many(victims.rows, Cause(Token.STARTING))
    ended = moves.mark()
    found = place(cycle, job, step, soon=True, score=idle)
    places = dict(moves.reserved.get(job.spec.uid, {})) if found else {}
    moves.rollback(ended)
    with moves.apart_from_groups():
        moves.rollback(mark)
    fixed = cycle.is_fixed(job)
    for index in sorted(places):
        moves.reserve(job, index, places[index], fixed=fixed)
    return found


def _cancel_starts(cycle: Cycle, nodes: Container[int] | None) -> None:
    """Undo the starts of preemptible work on these nodes in this cycle's overlay."""
    moves, jobs = cycle.moves, cycle.state.jobs
    for uid in sorted(moves.started):
        job, places = jobs.get(uid), moves.started[uid]
        if job.spec.preemptible is Preemptibility.YES:
            for index in sorted(places):
                if nodes is None or places[index].node in nodes:
                    moves.cancel(job, index, fixed=False)
