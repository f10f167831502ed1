"""Workloads come and go, ask for capacity, and get it reserved.

A job that asks for capacity is in a waiting row, or among the partial jobs. Capacity is reserved
for work that waits, or that terminates and moves.
"""

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.devices.classes import Classes, GpuForm
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import (
    CapacityReserved,
    CheckpointSeen,
    Place,
    Preemptibility,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.layers import Footprint, Layer
from carrel_scheduler.core.nodes.nodes import NodeColumns, empty_slots_of
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI, NONE, added
from carrel_scheduler.core.work.gang_steps import satisfied
from carrel_scheduler.core.work.jobs import NEVER_SAVED, JobInfo, leaf_states


def queued(state: Columns, event: WorkloadQueued) -> None:
    """Handle a workload that is pending: new, or requeued."""
    known = event.uid in state.jobs.by_uid
    job = enter(state, event)
    if not known:
        state.chooser.arrived(job.shape.classes)


def enter(state: Columns, event: WorkloadQueued) -> JobInfo:
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


def forget(state: Columns, job: JobInfo) -> None:
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


def ask(state: Columns, job: JobInfo) -> None:
    """Add a job to the pending work: to its waiting row, or to the partial or gated jobs."""
    if job.fresh and not job.reservation:
        job.asked = job.shape.total
        state.waiting.add(job, row_user(state, job))
    else:
        pending = job.pending()
        if not pending:
            if job.spec.gated and job.queued and not job.rows:
                state.gated[job.spec.uid] = job
            return
        job.asked = added(job.shape.amounts[index] for index in pending)
        state.partial[job.spec.uid] = job
        for cls in job.shape.kinds:
            state.classes.retain(cls)
    state.queues.add(Sum.WAITING, job.queue, job.asked)


def row_user(state: Columns, job: JobInfo) -> str:
    """The user whose row of waiting work a job stands in; empty: its queue does not ask."""
    return job.spec.user if state.queues.table.fair_users[job.queue] else ""


def stop_asking(state: Columns, job: JobInfo) -> None:
    """Remove a job from the pending work; no effect on a job that is not pending."""
    state.gated.pop(job.spec.uid, None)
    if job.waiting is not None:
        state.waiting.remove(job)
    elif state.partial.pop(job.spec.uid, None) is not None:
        for cls in job.shape.kinds:
            state.classes.release(cls)
    else:
        return
    state.queues.add(Sum.WAITING, job.queue, job.asked, sign=-1)
    job.asked = NONE


def next_is_fixed(job: JobInfo) -> bool:
    """Whether the job's next tasks, once placed, count as non-preemptible."""
    if job.spec.preemptible is not Preemptibility.SURPLUS:
        return job.spec.preemptible is Preemptibility.NO
    return not (job.uncovered or has_minimum(job))


def has_minimum(job: JobInfo) -> bool:
    """Whether the job's running tasks satisfy its gang's minimum."""
    return satisfied(job.shape.structure, [state.there for state in leaf_states(job)])


def reserve_capacity(state: Columns, event: CapacityReserved) -> None:
    """Reserve places for a workload instead of those held before; no places end the reservation."""
    job = state.jobs.get(event.uid)
    pending = {*job.pending(), *job.halted}
    if not pending:
        raise InvalidEvent(
            "not_waiting", "uid", event.uid, "a workload that waits for capacity or moves"
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
    before = job.reservation
    stop_asking(state, job)
    release_reservation(state, job)
    try:
        check_reservations(state.nodes.reserved, places)
    except InvalidEvent:
        reserve(state, job, before)
        raise
    else:
        reserve(state, job, tuple(zip(indices, places, strict=True)))
    finally:
        ask(state, job)


def release_reservation(state: Columns, job: JobInfo) -> None:
    """Release a job's reservation, so that others may use the capacity."""
    if not job.reservation:
        return
    for _, place in job.reservation:
        state.nodes.reserved.subtract(place)
        state.capacity.mark(place.node)
    _count(state, job, -1)
    job.reservation, job.reservation_fixed = (), False
    del state.reserved[job.spec.uid]


def reserve(state: Columns, job: JobInfo, reservation: tuple[tuple[int, Footprint], ...]) -> None:
    """Reserve places for a job without a reservation; ``release_reservation`` undoes this."""
    if not reservation:
        return
    for _, place in reservation:
        state.nodes.reserved.add(place)
        state.capacity.mark(place.node)
    job.reservation, job.reservation_fixed = reservation, next_is_fixed(job)
    state.reserved[job.spec.uid] = job
    _count(state, job, 1)


def follow_minimum(state: Columns, job: JobInfo) -> None:
    """Whether what is held for it is for its minimum may have changed with its tasks."""
    if job.reservation and job.reservation_fixed != next_is_fixed(job):
        _count(state, job, -1)
        job.reservation_fixed = not job.reservation_fixed
        _count(state, job, 1)


def _count(state: Columns, job: JobInfo, sign: int) -> None:
    amounts = added(place.amounts for _, place in job.reservation)
    state.queues.add(Sum.RESERVED, job.queue, amounts, sign=sign)
    if job.reservation_fixed:
        state.queues.add(Sum.RESERVED_FIXED, job.queue, amounts, sign=sign)


def footprint_of(nodes: NodeColumns, classes: Classes, cls: int, place: Place) -> Footprint:
    """The footprint of a task of this class at a place. Raises ``InvalidEvent`` if impossible."""
    name, devices, slots = place
    slot = nodes.slot(name)
    wanted = classes.devices(cls)
    there = int(nodes.devices[slot])
    if len(devices) != wanted or len(set(devices)) != wanted:
        raise InvalidEvent("bad_devices", "devices", devices, f"{wanted} different devices")
    if any(not 0 <= device < there for device in devices):
        expected = f"devices 0 to {there - 1} of {name}"
        raise InvalidEvent("unknown_device", "devices", devices, expected)
    if not nodes.mig[slot]:
        right = not slots
    elif classes.kinds[cls].form is GpuForm.WHOLE:
        slots, right = empty_slots_of(nodes.fact(slot))[devices[0]], True
    else:
        right = bool(slots) == bool(devices)
    if not right:
        expected = "bits of an instance on nodes with MIG, none otherwise"
        raise InvalidEvent("bad_slots", "slots", slots, expected)
    share = classes.share_on(cls, nodes, slot) if devices else 0
    if devices and share <= 0:
        raise InvalidEvent("bad_node", "node", name, "a node whose GPUs can be used this way")
    counted = classes.request(cls).counted_milli
    return Footprint(slot, tuple(sorted(devices)), share, classes.host(cls), slots, counted)


def check_reservations(reserved: Layer, places: tuple[Footprint, ...]) -> None:
    """Refuse places that overlap other reservations, or each other.

    What is reserved may still run: the reservation then waits for its end.
    """
    shares: dict[tuple[int, int], int] = {}
    for place in places:
        for device in place.devices:
            key = (device, place.node)
            shares[key] = shares.get(key, int(reserved.devices[key])) + place.share
            if shares[key] > MILLI or int(reserved.slots[key]) & place.slots:
                expected = "devices that are reserved for nobody else"
                raise InvalidEvent("device_taken", "devices", place.devices, expected)
