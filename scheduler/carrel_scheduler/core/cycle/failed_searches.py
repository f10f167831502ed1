"""The cache of failed searches for victims, and the answers of a search.

A failed search is not repeated while everything is equal that its result depends on. Within a cycle
that is the log of moves. From one cycle to the next it is: what runs where and holds what
(``QueueColumns.changes``); nodes; rules; the fair shares that it read; the moves before it in the
cycle; the prices of node values; and the time, if it read it. Waiting work is not among them, so
arrivals and questions of a speculation keep the cache. Rare events drop it (``State.apply``).
"""

from collections.abc import Callable
from enum import Enum, auto

from carrel_scheduler.core.columns import FailedSearch
from carrel_scheduler.core.cycle.cycle import Cycle, FailedInCycle
from carrel_scheduler.core.cycle.moves import ManyEvicted, ManyReserved, Move
from carrel_scheduler.core.queues.usage import Watched
from carrel_scheduler.core.work.jobs import JobInfo


class OfferResult(Enum):
    """The result of an offer."""

    SERVED = auto()
    NO = auto()
    """Neither this job nor any that looks like it."""
    PLAINLY_NO = auto()
    """Like ``NO``, found out at a glance."""
    NOT_THIS = auto()
    """The search failed for this job alone; an equal one may still succeed."""


REFUSED = (OfferResult.NO, OfferResult.PLAINLY_NO)
SEARCHED = (OfferResult.NO, OfferResult.NOT_THIS)


def answered(found: bool) -> OfferResult:
    """The answer of a search."""
    return OfferResult.SERVED if found else OfferResult.NO


MOST_MOVES = 48
"""The number of moves in a cycle after which failed searches are not looked up."""

NO_ROW = -1
"""The number for a workload with a reservation, which it would give up for another."""


Find = Callable[[Cycle, JobInfo, tuple[int, ...]], OfferResult]


def unless_failed_before(
    cycle: Cycle, action: str, job: JobInfo, step: tuple[int, ...], find: Find
) -> OfferResult:
    """The answer of ``find``, without asking it where it is known to find nothing.

    Args:
        cycle: the cycle.
        action: whose search it is.
        job: who is to be served.
        step: which of its tasks.
        find: searches; what it does not find leaves no trace but in ``Cycle.not_found``.
    """
    row, spec = job.waiting, job.spec
    number, alone = (NO_ROW, spec.uid) if row is None else (row.id, "")
    key = (action, job.queue, job.shape.id, spec.priority, spec.preemptible, step, alone)
    last = cycle.moves.last
    failed = cycle.failed_searches.get(key)
    if failed is not None and failed.last is last:
        answer, not_found = _refusal(plainly=failed.plainly), failed.not_found
    else:
        before = number in cycle.not_found
        cycle.not_found.discard(number)
        answer = _unless_known(cycle, key, job, step, find)
        not_found = number in cycle.not_found
        if answer in REFUSED:
            plainly = answer is OfferResult.PLAINLY_NO
            cycle.failed_searches[key] = FailedInCycle(last, plainly, not_found)
        not_found |= before
    if not_found:
        cycle.not_found.add(number)
    return answer


def _refusal(*, plainly: bool) -> OfferResult:
    return OfferResult.PLAINLY_NO if plainly else OfferResult.NO


def _unless_known(
    cycle: Cycle, key: tuple[object, ...], job: JobInfo, step: tuple[int, ...], find: Find
) -> OfferResult:
    """``unless_failed_before``, with the results of earlier cycles.

    Only of work that waits, or for which capacity is reserved that it gives up to look for other.
    """
    row, cache, queue_usage = job.waiting, cycle.state.cache, cycle.queue_usage
    reserved = job.spec.uid in cycle.state.reserved and not job.rows
    if (row is None and not reserved) or len(cycle.moves.log) > MOST_MOVES:
        return find(cycle, job, step)
    number = NO_ROW if row is None else row.id
    stamp, moment = _stamp(cycle), (cycle.now, cycle.state.jobs.saves)
    known = cache.searches.get(key)
    if known is not None and _holds(cycle, known, stamp, moment):
        if known.not_found:
            cycle.not_found.add(number)
        return _refusal(plainly=known.plainly)
    cycle.time_asked, every = False, queue_usage.fair
    queue_usage.fair = fair = Watched(every)
    try:
        answer = find(cycle, job, step)
    finally:
        queue_usage.fair = every
    if answer in REFUSED:
        asked, plainly = moment if cycle.time_asked else None, answer is OfferResult.PLAINLY_NO
        found = FailedSearch(stamp, fair.asked(), asked, plainly, number in cycle.not_found)
        cache.note(key, found, cycle.state.queues.changes)
    return answer


def _holds(
    cycle: Cycle, known: FailedSearch, stamp: tuple[object, ...], moment: tuple[float, int]
) -> bool:
    """Whether nothing has changed on which a search depended."""
    fair = cycle.queue_usage.fair
    return (
        known.moment in (None, moment)
        and known.stamp == stamp
        and all(fair[slot] == share for slot, share in known.fair)
    )


def _stamp(cycle: Cycle) -> tuple[object, ...]:
    """The inputs of every search, except the time."""
    state, queue_usage = cycle.state, cycle.queue_usage
    return (
        *(state.queues.changes, state.nodes.version, queue_usage.table, state.chooser.value.prices),
        *(queue_usage.allocatable, cycle.over_quota_queues.tobytes()),
        tuple(map(_told, cycle.moves.log)),
    )


def _told(move: Move | ManyEvicted | ManyReserved) -> tuple[object, ...]:
    """A move with uids in place of records."""
    if isinstance(move, ManyReserved):
        where = move.nodes.tobytes(), move.masks.tobytes()
        return move.kind, move.job.spec.uid, move.indices, *where, move.fixed
    preemptor = move.cause.preemptor.spec.uid if move.cause and move.cause.preemptor else ""
    if isinstance(move, ManyEvicted):
        return move.kind, move.rows.tobytes(), preemptor
    return move.kind, move.job.spec.uid, move.index, move.place, move.fixed, preemptor
