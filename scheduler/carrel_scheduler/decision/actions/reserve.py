"""Reserve: who has waited too long gets places held on which others still run.

Small work of equal standing would otherwise take every GPU that becomes free, and a large gang
would wait for as long as there is small work. The next workload of a queue that has waited longer
than the patience of the settings, and that stays within its queue's fair share, chooses the places
that need least to become free, and from then on nobody else starts there. So it starts at the
latest when whoever runs there has ended: after the patience and the longest remaining run time of
its neighbours, however much small work follows. Nothing is stopped for it, and it starts elsewhere
at once when there is room. At most one workload of a queue has places reserved.
"""

import numpy as np

from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.moves import Cause
from carrel_scheduler.decision.placing import place
from carrel_scheduler.decision.reasons import Token
from carrel_scheduler.decision.victim_table import victims_of
from carrel_scheduler.decision.waiting import WaitingRow


def run(cycle: Cycle) -> None:
    """Hold places for the heads of queues that have lost patience."""
    if cycle.settings.patience_s < 0:
        return
    held = {cycle.state.jobs.get(uid).queue for uid in cycle.moves.held}
    held |= {cycle.state.jobs.get(uid).queue for uid in cycle.moves.held_many}
    for job in _heads(cycle):
        if job.queue not in held and _may(cycle, job):
            _reserve(cycle, job)


def _heads(cycle: Cycle) -> list[Job]:
    """The next workload of each queue, where it has waited long enough."""
    waiting = cycle.state.waiting
    rows = np.flatnonzero(waiting.need)
    late = waiting.since.take(rows) + cycle.settings.patience_s < cycle.now
    queues = np.unique(waiting.queue.take(rows[late]))
    heads = []
    for queue in queues.tolist():
        mine = rows[waiting.queue.take(rows) == queue]
        found = [waiting.rows[number] for number in mine.tolist()]
        jobs = [job for row in found if (job := _first(cycle, row)) is not None]
        head = min(jobs, key=lambda job: job.order, default=None)
        if head is not None and cycle.waited_s(head) > cycle.settings.patience_s:
            heads.append(head)
    return sorted(heads, key=lambda job: job.order)


def _first(cycle: Cycle, row: WaitingRow | None) -> Job | None:
    if row is None:
        return None
    first = row.first()
    if first is not None and cycle.answered(first):
        return next((job for job in row.in_order() if not cycle.answered(job)), None)
    return first


def _may(cycle: Cycle, job: Job) -> bool:
    step = job.shape.first_step
    return cycle.within_share(job, step) and cycle.barrier(job, step) is None


def _reserve(cycle: Cycle, job: Job) -> None:
    """Hold the places it would get if everybody who may be stopped had ended already.

    Among all nodes those are taken on which the most is idle, so that little has to end.
    """
    moves, step = cycle.moves, job.shape.first_step
    everybody = np.ones(len(cycle.standings.used), np.bool_)
    idle = cycle.room.idle.devices.sum(axis=0, dtype=np.int64)
    mark = moves.mark()
    moves.stop_many(victims_of(cycle, everybody, members=True).rows, Cause(Token.STARTING))
    found = place(cycle, job, step, soon=True, score=idle)
    places = dict(moves.held.get(job.spec.uid, {})) if found else {}
    moves.rollback(mark)
    fixed = cycle.is_fixed(job)
    for index in sorted(places):
        moves.hold(job, index, places[index], fixed=fixed)
