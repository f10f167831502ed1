"""Whom to look at one by one: all who may give way, or where they are many those on some nodes.

A search one by one costs as much as there are candidates. In a small cluster it looks at
everybody. In a large one it looks at the nodes where least has to be stopped for one task, as
many as the step may need and some more; so its "no" means not found, never impossible.
"""

import numpy as np

from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.layers import Counts

NODES = 24


def promising(cycle: Cycle, job: Job, step: tuple[int, ...]) -> list[Job]:
    """Jobs that may give way for a step; never the job itself."""
    tasks = cycle.state.tasks
    if cycle.is_small:
        return [other for other in cycle.evictable() if other is not job]
    nodes = _nodes(cycle, job, NODES + 2 * len(step))
    there = np.zeros(len(cycle.state.nodes.schedulable), np.bool_)
    there[nodes] = True
    found = there.take(tasks.node) & (tasks.victim >= 0) & ~cycle.moves.stopped
    slots = np.unique(tasks.job.compress(found))
    jobs = [cycle.state.jobs.at(slot) for slot in slots.tolist()]
    return [other for other in jobs if other is not job and not cycle.answered(other)]


def _nodes(cycle: Cycle, job: Job, most: int) -> Counts:
    """Eligible nodes with victims, those with most coming room first."""
    state, tasks = cycle.state, cycle.state.tasks
    cls = job.shape.cls
    eligible = state.eligible.of(state.classes.request(cls)).copy()
    victims = np.bincount(tasks.node.compress(tasks.victim >= 0), minlength=len(eligible))
    eligible &= victims > 0
    nodes = np.flatnonzero(eligible)
    soon = cycle.room.soon
    room = soon.devices.sum(axis=0, dtype=np.int64).take(nodes)
    if not state.classes.takes_gpu(cls):
        room = soon.host[0].take(nodes)
    order = np.lexsort((state.nodes.rank.take(nodes), -room))
    return nodes.take(order[:most])
