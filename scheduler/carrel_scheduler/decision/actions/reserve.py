"""Reserve: who has waited too long gets places held on which others still run.

Small work of equal standing would otherwise take every GPU that becomes free, and a large gang
would wait for as long as there is small work. Whoever needs more than one GPU, has waited longer
than the patience of the settings, has nobody of higher priority before it in its queue and stays
within its queue's fair share gets the places that need least to become free, and from then on
nobody else starts there. So it starts at the latest when whoever runs there has ended: after the
patience and the longest remaining run time of its neighbours, however much small work follows.
Nothing is stopped for it, and it starts elsewhere at once when there is room. Held room stands
idle, so only few workloads have places reserved at a time; who has waited longest is next, one in
a cycle.
"""

import numpy as np

from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.layers import LARGEST, Counts
from carrel_scheduler.decision.moves import Cause
from carrel_scheduler.decision.placing import place
from carrel_scheduler.decision.reasons import Token
from carrel_scheduler.decision.resources import MILLI
from carrel_scheduler.decision.victim_table import victims_of

LOOKS = 8
"""So many of those who have waited longest are looked at in a cycle."""


def run(cycle: Cycle) -> None:
    """Hold places for one of those who have lost patience."""
    settings = cycle.settings
    if settings.patience_s < 0 or len(cycle.moves.held) >= settings.most_reserved:
        return
    waiting = cycle.state.waiting
    for number in _late_rows(cycle)[:LOOKS].tolist():
        row = waiting.rows[number]
        job = row.first() if row is not None else None
        if job is not None and not cycle.answered(job) and _may(cycle, job):
            _reserve(cycle, job)
            return


def _late_rows(cycle: Cycle) -> Counts:
    """Rows of work that is large, has waited too long and is next in its queue; oldest first."""
    waiting = cycle.state.waiting
    rows = np.flatnonzero(waiting.need)
    large = (waiting.demand[:, 0].take(rows) > MILLI) | (waiting.need.take(rows) > 1)
    late = waiting.since.take(rows) + cycle.settings.patience_s < cycle.now
    highest = np.full(len(cycle.standings.used), -LARGEST, np.int64)
    np.maximum.at(highest, waiting.queue.take(rows), waiting.priority.take(rows))
    rows = rows[large & late]
    rows = rows[waiting.priority.take(rows) == highest.take(waiting.queue.take(rows))]
    return rows.take(np.lexsort((rows, waiting.since.take(rows))))


def _may(cycle: Cycle, job: Job) -> bool:
    step = job.shape.first_step
    late = cycle.waited_s(job) > cycle.settings.patience_s
    return late and cycle.within_share(job, step) and cycle.barrier(job, step) is None


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
