"""Room that is held for waiting work."""

from carrel_scheduler.decision.changes.asking import ask, stop_asking
from carrel_scheduler.decision.columns import Columns
from carrel_scheduler.decision.errors import InvalidEvent
from carrel_scheduler.decision.events import Preemptibility, RoomPromised
from carrel_scheduler.decision.footprints import check_promises, footprint_of
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.layers import Footprint
from carrel_scheduler.decision.queues import Sum
from carrel_scheduler.decision.resources import added


def promised(state: Columns, event: RoomPromised) -> None:
    """Hold places for a workload instead of those held before; no places end the promise."""
    job = state.jobs.get(event.uid)
    pending = set(job.pending())
    if not pending:
        raise InvalidEvent("not_waiting", "uid", event.uid, "a workload that waits for room")
    indices = event.indices or tuple(range(len(event.places)))
    if len(indices) != len(event.places) or not pending.issuperset(indices):
        expected = "a place for each of some tasks that wait"
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
        _hold(state, job, before)
        raise
    else:
        _hold(state, job, tuple(zip(indices, places, strict=True)))
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
    job.promise = ()
    del state.promised[job.spec.uid]


def _hold(state: Columns, job: Job, promise: tuple[tuple[int, Footprint], ...]) -> None:
    if not promise:
        return
    for _, place in promise:
        state.nodes.promised.add(place)
        state.capacity.mark(place.node)
    job.promise = promise
    state.promised[job.spec.uid] = job
    _count(state, job, 1)


def _count(state: Columns, job: Job, sign: int) -> None:
    amounts = added(place.amounts for _, place in job.promise)
    state.queues.add(Sum.PROMISED, job.queue, amounts, sign=sign)
    if job.spec.preemptible is not Preemptibility.YES and not job.rows:
        state.queues.add(Sum.PROMISED_FIXED, job.queue, amounts, sign=sign)
