"""Room that is held for work that waits, or that was told to stop and moves."""

from carrel_scheduler.core.changes.asking import ask, stop_asking
from carrel_scheduler.core.changes.cores import next_is_fixed
from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import RoomPromised
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.resources import added
from carrel_scheduler.core.work.footprints import check_promises, footprint_of
from carrel_scheduler.core.work.jobs import Job


def promised(state: Columns, event: RoomPromised) -> None:
    """Hold places for a workload instead of those held before; no places end the promise."""
    job = state.jobs.get(event.uid)
    pending = {*job.pending(), *job.halted}
    if not pending:
        raise InvalidEvent(
            "not_waiting", "uid", event.uid, "a workload that waits for room or moves"
        )
    indices = event.indices or tuple(range(len(event.places)))
    if len(indices) != len(event.places) or not pending.issuperset(indices):
        expected = "a place for each of some tasks that wait or stop"
        raise InvalidEvent("bad_places", "places", event.places, expected)
    if event.places and not event.indices and len(event.places) != job.shape.tasks:
        expected = f"a place for each of the {job.shape.tasks} tasks, or none"
        raise InvalidEvent("bad_places", "places", event.places, expected)
    places = tuple(
        footprint_of(state.nodes, state.classes, job.shape.classes[index], place)
        for index, place in zip(indices, event.places, strict=True)
    )
    before = job.promise
    stop_asking(state, job)
    end_promise(state, job)
    try:
        check_promises(state.nodes.promised, places)
    except InvalidEvent:
        hold(state, job, before)
        raise
    else:
        hold(state, job, tuple(zip(indices, places, strict=True)))
    finally:
        ask(state, job)


def end_promise(state: Columns, job: Job) -> None:
    """What was held for it is free for others."""
    if not job.promise:
        return
    for _, place in job.promise:
        state.nodes.promised.subtract(place)
        state.capacity.mark(place.node)
    _count(state, job, -1)
    job.promise, job.promise_fixed = (), False
    del state.promised[job.spec.uid]


def hold(state: Columns, job: Job, promise: tuple[tuple[int, Footprint], ...]) -> None:
    """Hold places for a job that holds none; ``end_promise`` undoes it."""
    if not promise:
        return
    for _, place in promise:
        state.nodes.promised.add(place)
        state.capacity.mark(place.node)
    job.promise, job.promise_fixed = promise, next_is_fixed(job)
    state.promised[job.spec.uid] = job
    _count(state, job, 1)


def follow_minimum(state: Columns, job: Job) -> None:
    """Whether what is held for it is for its minimum may have changed with its tasks."""
    if job.promise and job.promise_fixed != next_is_fixed(job):
        _count(state, job, -1)
        job.promise_fixed = not job.promise_fixed
        _count(state, job, 1)


def _count(state: Columns, job: Job, sign: int) -> None:
    amounts = added(place.amounts for _, place in job.promise)
    state.queues.add(Sum.PROMISED, job.queue, amounts, sign=sign)
    if job.promise_fixed:
        state.queues.add(Sum.PROMISED_FIXED, job.queue, amounts, sign=sign)
