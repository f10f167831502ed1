"""The cache of failed searches for victims, and the answers of a search.

The result of a search depends on: what runs where and holds what (``QueueColumns.changes``);
nodes; rules; the fair shares that it read; the moves before it in the cycle; the prices of node
values; and the time, if it read it. While all of these are equal, a failed search is not
repeated. Waiting work is not among them, so arrivals and questions of a speculation keep the
cache. Rare events drop it (``State.apply``).
"""

from collections.abc import Callable
from enum import Enum, auto

from carrel_scheduler.core.cache import FailedSearch
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import ManyEvicted, ManyReserved, Move
from carrel_scheduler.core.queues.usage import Watched
from carrel_scheduler.core.work.jobs import Job


class Answer(Enum):
    """What became of an offer."""

    SERVED = auto()
    NO = auto()
    """Neither this job nor any that looks like it."""
    PLAINLY_NO = auto()
    """Like ``NO``, found out at a glance."""
    NOT_THIS = auto()
    """Others that look like it may still be served."""


REFUSED = (Answer.NO, Answer.PLAINLY_NO)
SEARCHED = (Answer.NO, Answer.NOT_THIS)


def answered(found: bool) -> Answer:
    """The answer of a search."""
    return Answer.SERVED if found else Answer.NO


MOST_MOVES = 48
"""After more moves in a cycle hardly anything would be found again."""

NO_ROW = -1
"""Of who does not merely wait: room is held for it, which is given up to look for another."""

Find = Callable[[Cycle, Job, tuple[int, ...]], Answer]


def unless_failed_before(
    cycle: Cycle, action: str, job: Job, step: tuple[int, ...], find: Find
) -> Answer:
    """The answer of ``find``, without asking it where it is known to find nothing.

    Args:
        cycle: the cycle.
        action: whose search it is.
        job: who is to be served.
        step: which of its tasks.
        find: searches; what it finds in vain leaves no trace but in ``Cycle.not_found``.
    """
    row, memory = job.waiting, cycle.state.cache
    spec = job.spec
    promised = spec.uid in cycle.state.reserved and not job.rows
    if (row is None and not promised) or len(cycle.moves.log) > MOST_MOVES:
        return find(cycle, job, step)
    number, alone = (NO_ROW, spec.uid) if row is None else (row.id, "")
    key = (action, job.queue, job.shape.id, spec.priority, spec.preemptible, step, alone)
    stamp, moment = _stamp(cycle), (cycle.now, cycle.state.jobs.saves)
    known = memory.searches.get(key)
    if known is not None and _holds(cycle, known, stamp, moment):
        if known.not_found:
            cycle.not_found.add(number)
        return Answer.PLAINLY_NO if known.plainly else Answer.NO
    before = number in cycle.not_found
    cycle.not_found.discard(number)
    cycle.time_asked, every = False, cycle.queue_usage.fair
    cycle.queue_usage.fair = fair = Watched(every)
    try:
        answer = find(cycle, job, step)
    finally:
        cycle.queue_usage.fair = every
    not_found = number in cycle.not_found
    if answer in REFUSED:
        asked = moment if cycle.time_asked else None
        found = FailedSearch(stamp, fair.asked(), asked, answer is Answer.PLAINLY_NO, not_found)
        memory.note(key, found, cycle.state.queues.changes)
    if before:
        cycle.not_found.add(number)
    return answer


def _holds(
    cycle: Cycle, known: FailedSearch, stamp: tuple[object, ...], moment: tuple[float, int]
) -> bool:
    """Whether everything that a search followed from is the same."""
    fair = cycle.queue_usage.fair
    return (
        known.moment in (None, moment)
        and known.stamp == stamp
        and all(fair[slot] == share for slot, share in known.fair)
    )


def _stamp(cycle: Cycle) -> tuple[object, ...]:
    """What every search follows from, but for the time."""
    state, queue_usage = cycle.state, cycle.queue_usage
    return (
        *(state.queues.changes, state.nodes.version, queue_usage.table, state.chooser.value.prices),
        *(queue_usage.allocatable, cycle.borrowers.tobytes()),
        tuple(map(_told, cycle.moves.log)),
    )


def _told(move: Move | ManyEvicted | ManyReserved) -> tuple[object, ...]:
    """A move without the records that it names."""
    if isinstance(move, ManyReserved):
        where = move.nodes.tobytes(), move.masks.tobytes()
        return move.kind, move.job.spec.uid, move.indices, *where, move.fixed
    preemptor = move.cause.preemptor.spec.uid if move.cause and move.cause.preemptor else ""
    if isinstance(move, ManyEvicted):
        return move.kind, move.rows.tobytes(), preemptor
    return move.kind, move.job.spec.uid, move.index, move.place, move.fixed, preemptor
