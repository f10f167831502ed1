"""Tasks are placed, evicted, released; and which of them are protected.

The *core* of elastic semi-preemptible work is its minimum, which is protected. It never counts
for more than before, except through tasks placed to fill the minimum, which had to be within
quota. When members end, surplus replaces them if it asks for no more. Where only larger members
are left, the workload is ``uncovered``: preemptible as a whole until it starts anew.
"""

from collections.abc import Iterable

from carrel_scheduler.core.changes.workloads import (
    ask,
    follow_minimum,
    footprint_of,
    next_is_fixed,
    release_reservation,
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
from carrel_scheduler.core.layers import Footprint, Layer
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.resources import Triple, added
from carrel_scheduler.core.work.gang_steps import is_stale, satisfied
from carrel_scheduler.core.work.jobs import (
    NOTHING,
    JobInfo,
    has_core,
    leaf_states,
    minimum_of,
    protected_members,
)
from carrel_scheduler.core.work.tasks import NOBODY


def placed(state: Columns, event: TaskPlaced) -> None:
    """A task holds an allocation from now on."""
    job = state.jobs.get(event.uid)
    _check_index(job, event.index)
    cls = job.shape.classes[event.index]
    where = (event.node, event.devices, event.slots)
    place = footprint_of(state.nodes, state.classes, cls, where)
    _check_free(state.nodes.free, place)
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


def _note_outcome(job: JobInfo, event: TaskReleased) -> None:
    if event.outcome is Outcome.AGAIN:
        job.evicted_at = max(event.at, job.evicted_at or 0.0)
        return
    job.out = {**(job.out or {}), event.index: event.outcome}
    if not job.rows and event.outcome is Outcome.GONE:
        job.queued = False


def _settle(state: Columns, job: JobInfo, at: float | None, new: frozenset[int] = NOTHING) -> None:
    """Update what follows from a change of a job's tasks: core, victims, staleness.

    ``new``: a task that was placed as non-preemptible.
    """
    _settle_core(state, job, new)
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
    if job.spec.moves_to_preferred:
        _follow_improvable(state, job)
    if job.shape.tasks == 1:
        return
    if job.rows and is_stale(job.shape.structure, leaf_states(job)):
        if job.stale_since is None and at is not None:
            job.stale_since = at
        state.stale[job.spec.uid] = job
    else:
        job.stale_since = None
        state.stale.pop(job.spec.uid, None)


def _follow_improvable(state: Columns, job: JobInfo) -> None:
    if job.rows:
        state.improvable[job.spec.uid] = job
    else:
        state.improvable.pop(job.spec.uid, None)


def _settle_core(state: Columns, job: JobInfo, new: frozenset[int] = NOTHING) -> None:
    """Set the core after a change of a job's tasks; ``new`` was placed to fill the minimum."""
    if not has_core(job):
        return
    if not job.rows:
        job.core, job.uncovered = NOTHING, False
        return
    before, job.core = job.core | new, NOTHING
    rights = added((job.fixed, _sum(state, job, new)))
    if job.uncovered:
        return
    minimum = minimum_of(job)
    if _within(_sum(state, job, minimum), rights):
        job.core = minimum
        return
    rest = before.intersection(job.running())
    if _suffices(job, rest):
        job.core = rest
    else:
        job.uncovered = True


def _suffices(job: JobInfo, members: frozenset[int]) -> bool:
    """Whether these running tasks alone satisfy the gang's minimum."""
    others = [index for index in job.running() if index not in members]
    there = [state.there for state in leaf_states(job, stopped=others)]
    return satisfied(job.shape.structure, there)


def _sum(state: Columns, job: JobInfo, indices: Iterable[int]) -> Triple:
    footprint = state.tasks.footprint
    return added(footprint(job.rows[index]).amounts for index in indices)


def _within(amounts: Triple, most: Triple) -> bool:
    return all(amount <= bound for amount, bound in zip(amounts, most, strict=True))


def _check_free(free: Layer, place: Footprint) -> None:
    """Refuse a place whose devices are not free.

    CPU and memory are not refused: a node may report less than it had, and what runs, runs.
    """
    for device in place.devices:
        taken = place.slots & ~int(free.slots[device, place.node])
        if int(free.devices[device, place.node]) < place.share or taken:
            raise InvalidEvent("device_taken", "devices", place.devices, "devices that are free")


def _check_index(job: JobInfo, index: int) -> None:
    if not 0 <= index < job.shape.tasks or index in job.rows:
        raise InvalidEvent("bad_index", "index", index, "a task that is not placed yet")
    if not job.queued or (job.out and index in job.out):
        raise InvalidEvent("not_waiting", "uid", job.spec.uid, "a workload that waits for capacity")


def _holding_row(state: Columns, uid: str, index: int) -> tuple[JobInfo, int]:
    job = state.jobs.get(uid)
    row = job.rows.get(index)
    if row is None:
        raise InvalidEvent("not_placed", "index", index, "a task that holds an allocation")
    return job, row
