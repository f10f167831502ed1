"""Promises kept: tasks start on the places held for them once all of these are free.

Room held for a workload is nobody else's, so the order among promises does not matter. A promise
that cannot be kept any more (a device broke, a node left service, a limit was lowered, whoever lies
there does not end) ends, and its workload looks for room like any other in the same cycle.
"""

from collections.abc import Sequence

import numpy as np

from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.layers import Footprint
from carrel_scheduler.decision.tasks import device_mask


def run(cycle: Cycle) -> None:
    """Start on, keep or end every promise."""
    for uid in sorted(cycle.state.promised):
        _settle(cycle, cycle.state.promised[uid])


def _settle(cycle: Cycle, job: Job) -> None:
    indices = [index for index, _ in job.promise]
    places = [place for _, place in job.promise]
    mark = cycle.moves.mark()
    for index in indices:
        cycle.moves.lift(job, index, fixed=job.promise_fixed)
    lifted = cycle.moves.mark()
    fixed = cycle.is_fixed(job)
    if cycle.barrier(job, indices) is not None or _is_lost(cycle, places):
        return
    gone = not any(index in job.rows for index in indices)
    if gone and cycle.room.has(places, soon=False):
        for index, place in job.promise:
            cycle.moves.start(job, index, place, fixed=fixed)
        if not cycle.grows(job):
            cycle.moves.rollback(lifted)
    else:
        cycle.moves.rollback(mark)


def _is_lost(cycle: Cycle, places: Sequence[Footprint]) -> bool:
    """Whether a place will not come free, or not be of use."""
    tasks, room = cycle.state.tasks, cycle.room
    if any(room.usable(place) < len(place.devices) for place in places):
        return True
    if any(not room.nodes.schedulable[place.node] for place in places):
        return True
    for row in np.flatnonzero(tasks.stuck).tolist():
        for place in places:
            shared = int(tasks.mask[row]) & device_mask(place.devices)
            if place.node == tasks.node[row] and (shared or not place.devices):
                return True
    return False
