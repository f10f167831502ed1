"""Workloads come and go."""

from carrel_scheduler.core.changes.reservations import ask, release_reservation, stop_asking
from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import CheckpointSeen, WorkloadQueued, WorkloadRemoved
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.work.jobs import NEVER_SAVED, Job


def queued(state: Columns, event: WorkloadQueued) -> None:
    """Handle a workload that is pending: new, or requeued."""
    known = event.uid in state.jobs.by_uid
    job = enter(state, event)
    if not known:
        state.chooser.arrived(job.shape.classes)


def enter(state: Columns, event: WorkloadQueued) -> Job:
    """Let it ask for capacity without learning from it; ``forget`` undoes this for a new one."""
    check_workload(event)
    queue = state.queues.slot(event.project, "project")
    if not state.queues.is_leaf(queue):
        expected = "a queue without queues below it"
        raise InvalidEvent("not_a_leaf", "project", event.project, expected)
    old = state.jobs.by_uid.get(event.uid)
    if old is not None and old.rows:
        raise InvalidEvent("holds_room", "uid", event.uid, "a workload that holds no allocation")
    shape = state.shapes.of(event)
    saved = old.saved if old is not None else NEVER_SAVED
    if old is not None:
        forget(state, old)
    job = state.jobs.add(event, queue, shape)
    job.saved = saved
    ask(state, job)
    return job


def gone(state: Columns, event: WorkloadRemoved) -> None:
    """Handle a workload that asks for nothing any more (ended, deleted, suspended)."""
    job = state.jobs.get(event.uid)
    if job.rows:
        raise InvalidEvent("holds_room", "uid", event.uid, "a workload that holds no allocation")
    forget(state, job)


def saved(state: Columns, event: CheckpointSeen) -> None:
    """Handle a checkpoint: an eviction loses only the work after it."""
    job = state.jobs.get(event.uid)
    job.saved = event.at
    state.jobs.since[job.slot] = job.since
    state.jobs.saves += 1


def forget(state: Columns, job: Job) -> None:
    """Drop a workload that holds no allocation."""
    stop_asking(state, job)
    release_reservation(state, job)
    state.stale.pop(job.spec.uid, None)
    state.jobs.drop(job)


def check_workload(event: WorkloadQueued) -> None:
    """Refuse a workload with contradictory or impossible values."""
    if not event.uid:
        raise InvalidEvent("bad_name", "uid", event.uid, "an id that is not empty")
    if event.gang is not None:
        _check_group(event.gang)
        return
    if event.tasks < 1:
        raise InvalidEvent("bad_amount", "tasks", event.tasks, "at least one task")
    check_request(event.request)


def _check_group(group: Group) -> None:
    if group.groups and group.requests:
        expected = "tasks in a leaf, or groups in an inner group, not both"
        raise InvalidEvent("bad_gang", "groups", group.name, expected)
    children = len(group.requests) if group.is_leaf else len(group.groups)
    if children == 0:
        raise InvalidEvent("bad_gang", "requests", group.name, "at least one task in a leaf")
    field = "min_tasks" if group.is_leaf else "min_groups"
    if not 0 <= group.least <= children:
        raise InvalidEvent("bad_amount", field, group.least, f"0 to {children}")
    for request in set(group.requests):
        check_request(request)
    for child in group.groups:
        _check_group(child)


def check_request(request: Request) -> None:
    """Refuse a request with contradictory or impossible values."""
    amounts = (
        ("gpus", request.gpus),
        ("cpu_milli", request.cpu_milli),
        ("memory_mib", request.memory_mib),
        ("share_milli", request.share_milli),
        ("gpu_memory_mib", request.gpu_memory_mib),
        ("counted_milli", request.counted_milli),
        *request.extended,
    )
    for name, value in amounts:
        if value < 0:
            raise InvalidEvent("bad_amount", name, value, "an amount that is not negative")
    if request.share_milli >= MILLI:
        expected = "a share below a whole GPU (1000); ask for whole ones by gpus"
        raise InvalidEvent("bad_amount", "share_milli", request.share_milli, expected)
    if request.devices < 1:
        raise InvalidEvent("bad_amount", "devices", request.devices, "at least one device")
    forms = (request.gpus, request.share_milli, request.gpu_memory_mib, request.mig_profile)
    if sum(map(bool, forms)) > 1:
        expected = "one of gpus, share_milli, gpu_memory_mib and mig_profile"
        raise InvalidEvent("bad_request", "gpus", request.gpus, expected)
