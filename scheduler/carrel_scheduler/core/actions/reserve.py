"""Reserve: who starves gets places held on which others still run.

See ``starving`` for who that is. Those places are chosen that need least to become free, and from
then on nobody else starts there. What would be served after the job in its own queue is held back
besides, so the room is within its queue's share in time. So it starts at the latest when its own
queue's later work and then its neighbours have ended: after the patience and twice the longest run
time of others, however much small work follows (more when several starve: they come in turns).
Nothing is stopped for it, and it starts elsewhere at once when there is room.
"""

from collections.abc import Container

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.cycle.starvation import starving
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.preemption.candidates import victims_of
from carrel_scheduler.core.preemption.node_prefilter import likely_nodes, looks_at_all
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.work.jobs import Job


def run(cycle: Cycle) -> None:
    """Hold places for one of those who starve."""
    if len(cycle.moves.reserved) >= cycle.settings.most_reserved:
        return
    for job in starving(cycle):
        step = job.shape.first_step
        if cycle.answered(job) or not cycle.within_share(job, step):
            continue
        if cycle.over_limit(job, step) is None and _reserve(cycle, job, step):
            return


def _reserve(cycle: Cycle, job: Job, step: tuple[int, ...]) -> bool:
    """Hold the places it would get if everybody who may be stopped had ended already.

    Among all nodes those are taken on which the most is idle, so that little has to end; in a large
    cluster only nodes that lack little are looked at.
    """
    moves, nodes = cycle.moves, None
    everybody = np.ones(len(cycle.queue_usage.used), np.bool_)
    if job.shape.plain and not looks_at_all(cycle, len(step)):
        nodes = likely_nodes(cycle, job.shape.cls, len(step), everybody)
    idle = cycle.free_capacity.idle.devices.sum(axis=0, dtype=np.int64)
    mark = moves.mark()
    _cancel_starts(cycle, None if nodes is None else set(nodes.tolist()))
    victims = victims_of(cycle, everybody, members=True, nodes=nodes)
    moves.evict_many(victims.rows, Cause(Token.STARTING))
    found = place(cycle, job, step, soon=True, score=idle)
    places = dict(moves.reserved.get(job.spec.uid, {})) if found else {}
    moves.rollback(mark)
    fixed = cycle.is_fixed(job)
    for index in sorted(places):
        moves.reserve(job, index, places[index], fixed=fixed)
    return found


def _cancel_starts(cycle: Cycle, nodes: Container[int] | None) -> None:
    """As if nothing that may be stopped had been started there in this cycle."""
    moves, jobs = cycle.moves, cycle.state.jobs
    for uid in sorted(moves.started):
        job, places = jobs.get(uid), moves.started[uid]
        if job.spec.preemptible is Preemptibility.YES:
            for index in sorted(places):
                if nodes is None or places[index].node in nodes:
                    moves.cancel(job, index, fixed=False)
