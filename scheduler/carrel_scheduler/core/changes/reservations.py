"""Pending work, reservations, and the protected tasks of semi-preemptible work.

A job that asks for capacity is in a waiting row, or among the partial jobs. Capacity is reserved
for work that waits, or that terminates and moves.

The *core* of elastic semi-preemptible work is its minimum, which is protected. It never counts
for more than before, except through tasks placed to fill the minimum, which had to be within
quota. When members end, surplus replaces them if it asks for no more. Where only larger members
are left, the workload is ``uncovered``: preemptible as a whole until it starts anew.
"""

from collections.abc import Iterable

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.devices.classes import Classes, Form
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import CapacityReserved, Place, Preemptibility
from carrel_scheduler.core.layers import Footprint, Layer
from carrel_scheduler.core.nodes.nodes import NodeColumns, empty_slots_of
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.resources import MILLI, NONE, Triple, added
from carrel_scheduler.core.work.gang_steps import satisfied
from carrel_scheduler.core.work.jobs import NOTHING, Job, has_core, leaf_states, minimum_of


def ask(state: Columns, job: Job) -> None:
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


def row_user(state: Columns, job: Job) -> str:
    """The user whose row of waiting work a job stands in; empty: its queue does not ask."""
    return job.spec.user if state.queues.table.fair_users[job.queue] else ""


def stop_asking(state: Columns, job: Job) -> None:
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


def next_is_fixed(job: Job) -> bool:
    """Whether the job's next tasks, once placed, count as non-preemptible."""
    if job.spec.preemptible is not Preemptibility.SURPLUS:
        return job.spec.preemptible is Preemptibility.NO
    return not (job.uncovered or has_minimum(job))


def has_minimum(job: Job) -> bool:
    """Whether the job's running tasks satisfy its gang's minimum."""
    return satisfied(job.shape.structure, [state.there for state in leaf_states(job)])


def settle_core(state: Columns, job: Job, new: frozenset[int] = NOTHING) -> None:
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


def _suffices(job: Job, members: frozenset[int]) -> bool:
    """Whether these running tasks alone satisfy the gang's minimum."""
    others = [index for index in job.running() if index not in members]
    there = [state.there for state in leaf_states(job, stopped=others)]
    return satisfied(job.shape.structure, there)


def _sum(state: Columns, job: Job, indices: Iterable[int]) -> Triple:
    footprint = state.tasks.footprint
    return added(footprint(job.rows[index]).amounts for index in indices)


def _within(amounts: Triple, most: Triple) -> bool:
    return all(amount <= bound for amount, bound in zip(amounts, most, strict=True))


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


def release_reservation(state: Columns, job: Job) -> None:
    """Release a job's reservation, so that others may use the capacity."""
    if not job.reservation:
        return
    for _, place in job.reservation:
        state.nodes.reserved.subtract(place)
        state.capacity.mark(place.node)
    _count(state, job, -1)
    job.reservation, job.reservation_fixed = (), False
    del state.reserved[job.spec.uid]


def reserve(state: Columns, job: Job, reservation: tuple[tuple[int, Footprint], ...]) -> None:
    """Reserve places for a job without a reservation; ``release_reservation`` undoes this."""
    if not reservation:
        return
    for _, place in reservation:
        state.nodes.reserved.add(place)
        state.capacity.mark(place.node)
    job.reservation, job.reservation_fixed = reservation, next_is_fixed(job)
    state.reserved[job.spec.uid] = job
    _count(state, job, 1)


def follow_minimum(state: Columns, job: Job) -> None:
    """Whether what is held for it is for its minimum may have changed with its tasks."""
    if job.reservation and job.reservation_fixed != next_is_fixed(job):
        _count(state, job, -1)
        job.reservation_fixed = not job.reservation_fixed
        _count(state, job, 1)


def _count(state: Columns, job: Job, sign: int) -> None:
    amounts = added(place.amounts for _, place in job.reservation)
    state.queues.add(Sum.RESERVED, job.queue, amounts, sign=sign)
    if job.reservation_fixed:
        state.queues.add(Sum.RESERVED_FIXED, job.queue, amounts, sign=sign)


def footprint_of(nodes: NodeColumns, classes: Classes, cls: int, place: Place) -> Footprint:
    """What a task of this class takes at a place. Raises ``InvalidEvent`` if impossible."""
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
    elif classes.kinds[cls].form is Form.WHOLE:
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


def check_free(free: Layer, place: Footprint) -> None:
    """Refuse a place whose devices are not free.

    CPU and memory are not refused: a node may report less than it had, and what runs, runs.
    """
    for device in place.devices:
        taken = place.slots & ~int(free.slots[device, place.node])
        if int(free.devices[device, place.node]) < place.share or taken:
            raise InvalidEvent("device_taken", "devices", place.devices, "devices that are free")


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
