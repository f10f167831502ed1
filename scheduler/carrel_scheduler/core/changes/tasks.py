"""Tasks are placed, evicted, released."""

from carrel_scheduler.core.changes.reservations import (
    ask,
    check_free,
    follow_minimum,
    footprint_of,
    next_is_fixed,
    release_reservation,
    settle_core,
    stop_asking,
)
from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import (
    Outcome,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    TaskStuck,
)
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.resources import added
from carrel_scheduler.core.work.gang_steps import is_stale
from carrel_scheduler.core.work.jobs import NOTHING, Job, leaf_states, protected_members
from carrel_scheduler.core.work.tasks import NOBODY


def placed(state: Columns, event: TaskPlaced) -> None:
    """A task holds an allocation from now on."""
    job = state.jobs.get(event.uid)
    _check_index(job, event.index)
    cls = job.shape.classes[event.index]
    where = (event.node, event.devices, event.slots)
    place = footprint_of(state.nodes, state.classes, cls, where)
    check_free(state.nodes.free, place)
    new = frozenset((event.index,)) if next_is_fixed(job) else NOTHING
    stop_asking(state, job)
    release_reservation(state, job)
    if not job.rows:
        job.started = event.at
        state.holding[event.uid] = job
        state.jobs.started[job.slot] = job.started
        state.jobs.since[job.slot] = job.since
    if place.slots:
        state.warm.taken(place)
    job.rows[event.index] = state.tasks.put(
        place,
        cls=cls,
        job=job.slot,
        index=event.index,
        victim=NOBODY,
        priority=job.spec.priority,
    )
    state.jobs.placed[job.slot] += 1
    state.nodes.free.subtract(place)
    state.capacity.mark(place.node)
    state.queues.add(Sum.USED, job.queue, place.amounts)
    state.jobs.gpu[job.slot] += place.amounts[0]
    _settle(state, job, event.at, new)
    if len(job.rows) < job.shape.tasks:
        ask(state, job)


def told_to_stop(state: Columns, event: TaskReleasing) -> None:
    """Handle a terminating task: its allocation stays, but no longer counts for its queue."""
    job, row = _holding_row(state, event.uid, event.index)
    if event.index in job.halted:
        raise InvalidEvent("already_stopping", "index", event.index, "a task that runs")
    place = state.tasks.footprint(row)
    state.tasks.stopping[row] = True
    job.halted |= {event.index}
    state.nodes.releasing.add(place)
    state.capacity.mark(place.node)
    state.queues.add(Sum.RELEASING, job.queue, place.amounts)
    state.queues.add(Sum.USED, job.queue, place.amounts, sign=-1)
    state.jobs.gpu[job.slot] -= place.amounts[0]
    _settle(state, job, None)


def found_stuck(state: Columns, event: TaskStuck) -> None:
    """Handle a stuck task: its capacity is not expected to become free."""
    job, row = _holding_row(state, event.uid, event.index)
    if event.index not in job.halted:
        raise InvalidEvent("not_stopping", "index", event.index, "a task that is terminating")
    if event.index in job.stuck:
        return
    job.stuck |= {event.index}
    state.tasks.stuck[row] = True
    place = state.tasks.footprint(row)
    state.nodes.releasing.subtract(place)
    state.capacity.mark(place.node)


def released(state: Columns, event: TaskReleased) -> None:
    """Handle a task that has ended: its allocation is free."""
    job, row = _holding_row(state, event.uid, event.index)
    place = state.tasks.footprint(row)
    if event.index in job.halted:
        job.halted -= {event.index}
        state.queues.add(Sum.RELEASING, job.queue, place.amounts, sign=-1)
        if event.index in job.stuck:
            job.stuck -= {event.index}
        else:
            state.nodes.releasing.subtract(place)
    else:
        state.queues.add(Sum.USED, job.queue, place.amounts, sign=-1)
        state.jobs.gpu[job.slot] -= place.amounts[0]
    profile = job.shape.requests[event.index].mig_profile
    if profile:
        state.warm.left(place, profile)
    state.nodes.free.add(place)
    state.capacity.mark(place.node)
    stop_asking(state, job)
    if event.outcome is not Outcome.AGAIN:
        state.chooser.ended()
        if event.index in dict(job.reservation):
            release_reservation(state, job)
    state.tasks.drop(row)
    del job.rows[event.index]
    state.jobs.placed[job.slot] -= 1
    _note_outcome(job, event)
    if not job.queued:
        release_reservation(state, job)
    if not job.rows:
        del state.holding[event.uid]
    _settle(state, job, event.at)
    ask(state, job)


def _note_outcome(job: Job, event: TaskReleased) -> None:
    if event.outcome is Outcome.AGAIN:
        job.evicted_at = max(event.at, job.evicted_at or 0.0)
        return
    job.out = {**(job.out or {}), event.index: event.outcome}
    if not job.rows and event.outcome is Outcome.GONE:
        job.queued = False


def _settle(state: Columns, job: Job, at: float | None, new: frozenset[int] = NOTHING) -> None:
    """After a change of a job's tasks: what is fixed, who may be evicted, whether it is stale.

    ``new``: a task that was placed as non-preemptible.
    """
    settle_core(state, job, new)
    protected = protected_members(job)
    amounts = state.tasks.footprint
    fixed = added(amounts(job.rows[i]).amounts for i in protected if i not in job.halted)
    if fixed != job.fixed:
        state.queues.add(Sum.FIXED, job.queue, job.fixed, sign=-1)
        state.queues.add(Sum.FIXED, job.queue, fixed)
        job.fixed = fixed
    for index, row in job.rows.items():
        safe = index in job.halted or index in protected
        state.tasks.set_victim(row, NOBODY if safe else job.queue)
    follow_minimum(state, job)
    if job.shape.tasks == 1:
        return
    if job.rows and is_stale(job.shape.structure, leaf_states(job)):
        if job.stale_since is None and at is not None:
            job.stale_since = at
        state.stale[job.spec.uid] = job
    else:
        job.stale_since = None
        state.stale.pop(job.spec.uid, None)


def _check_index(job: Job, index: int) -> None:
    if not 0 <= index < job.shape.tasks or index in job.rows:
        raise InvalidEvent("bad_index", "index", index, "a task that is not placed yet")
    if not job.queued or (job.out and index in job.out):
        raise InvalidEvent("not_waiting", "uid", job.spec.uid, "a workload that waits for capacity")


def _holding_row(state: Columns, uid: str, index: int) -> tuple[Job, int]:
    job = state.jobs.get(uid)
    row = job.rows.get(index)
    if row is None:
        raise InvalidEvent("not_placed", "index", index, "a task that holds an allocation")
    return job, row
