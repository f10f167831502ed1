"""Start tasks on the places that are reserved for them once all of these are free.

Room held for a workload is nobody else's, so the order among promises does not matter. A promise
that cannot be kept any more (a device broke, a node left service, a limit was lowered, whoever lies
there does not end), or is of no use any more (others of its gang have ended), ends, and its
workload looks for room like any other in the same cycle.
"""

from collections.abc import Sequence

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.resources import NONE, added
from carrel_scheduler.core.work.jobs import Job
from carrel_scheduler.core.work.tasks import device_mask


def run(cycle: Cycle) -> None:
    """Start on, keep or end every promise."""
    stuck = np.flatnonzero(cycle.state.tasks.stuck).tolist()
    for uid in sorted(cycle.state.reserved):
        _settle(cycle, cycle.state.reserved[uid], stuck)


def _settle(cycle: Cycle, job: Job, stuck: Sequence[int]) -> None:
    indices = [index for index, _ in job.reservation]
    places = [place for _, place in job.reservation]
    lost = _is_lost(cycle, places, stuck)
    if not lost and _stays(cycle, job, indices, places):
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
            cycle.moves.start(job, index, place, fixed=fixed)
        if not cycle.works(job, indices):
            cycle.moves.rollback(lifted)
    else:
        cycle.moves.rollback(mark)


def _stays(cycle: Cycle, job: Job, indices: Sequence[int], places: Sequence[Footprint]) -> bool:
    """Whether it is plain without trying that the promise is kept and waits on."""
    if job.shape.elastic or _free(cycle, places):
        return False
    held = added(place.amounts for place in places)
    fixed = held if job.reservation_fixed else NONE
    cycle.queue_usage.add(job.queue, held, fixed, -1)
    violation = cycle.over_limit(job, indices) is not None
    cycle.queue_usage.add(job.queue, held, fixed, 1)
    return not violation


def _free(cycle: Cycle, places: Sequence[Footprint]) -> bool:
    """Whether each of these places, taken by itself, lies on free room."""
    free = cycle.free_capacity.free
    return all(
        all(free.devices.item(device, place.node) >= place.share for device in place.devices)
        and all(free.host.item(r, place.node) >= a for r, a in enumerate(place.host) if a)
        for place in places
    )


def _is_lost(cycle: Cycle, places: Sequence[Footprint], stuck: Sequence[int]) -> bool:
    """Whether a place will not come free, or not be of use."""
    tasks, room = cycle.state.tasks, cycle.free_capacity
    if any(room.usable(place) < len(place.devices) for place in places):
        return True
    if any(not room.nodes.schedulable.item(place.node) for place in places):
        return True
    for row in stuck:
        for place in places:
            shared = int(tasks.mask[row]) & device_mask(place.devices)
            if place.node == tasks.node[row] and (shared or not place.devices):
                return True
    return False
