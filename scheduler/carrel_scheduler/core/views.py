"""Queues, workloads and nodes of the state as plain facts, for those who show them.

Amounts: GPU thousandths, millicores, MiB. What terminating tasks hold still counts as held. A
queue's figures include those of all queues below it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core import events
from carrel_scheduler.core.layers import CPU, MEMORY
from carrel_scheduler.core.resources import UNLIMITED
from carrel_scheduler.core.work.jobs import NEVER_SAVED

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.work.jobs import JobInfo


@dataclass(frozen=True, slots=True)
class QueueUse:
    """The amounts that a queue holds and asks for.

    Attributes:
        gpu_fixed_milli, cpu_fixed_milli, memory_fixed_mib: the part held by non-preemptible work,
            less what is terminating.
        gpu_borrowed_milli: held beyond the quota.
        running, waiting: numbers of workloads; one that runs and grows counts as running.
        gpu_reserved_milli: capacity reserved for waiting work.
        parent: the queue above, empty at the top.
        leaf: it has no queues below, so it may hold workloads.
    """

    name: str
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    gpu_fixed_milli: int
    cpu_fixed_milli: int
    memory_fixed_mib: int
    gpu_borrowed_milli: int
    gpu_waiting_milli: int
    running: int
    waiting: int
    gpu_reserved_milli: int = 0
    parent: str = ""
    leaf: bool = True


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """The place of a task."""

    index: int
    node: str
    devices: tuple[int, ...]
    releasing: bool
    slots: int = 0
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A workload: its request and its state.

    Attributes:
        waiting: it asks for capacity and none of its tasks has a place.
        started_at: when it last got its place; ``None`` when it has none.
        checkpoint_at: its last checkpoint, ``None`` before the first.
        reserved: the places reserved for it, for the tasks ``reserved_indices``.
        pending: tasks that ask for capacity, also of a workload that runs.
        tasks: of all it has.
        stale_since: since when it runs with fewer tasks than its minimum, or ``None``.
    """

    queued: events.WorkloadQueued
    waiting: bool
    places: tuple[TaskPlacement, ...]
    started_at: float | None
    checkpoint_at: float | None
    reserved: tuple[events.Place, ...]
    reserved_indices: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()
    tasks: int = 1
    stale_since: float | None = None


# Queues


def queue_use(state: "Columns", name: str) -> QueueUse:
    """The amounts that a queue holds and asks for. Raises ``KeyError`` for an unknown name."""
    slot = state.queues.slots[name]
    return _use_of(state, slot, _running(state), _waiting(state, slot))


def use_of_all(state: "Columns") -> dict[str, QueueUse]:
    """The usage and pending requests of every queue, by name, counted once for all."""
    running, waiting = _running(state), _waiting(state)
    return {
        name: _use_of(state, slot, running, waiting) for name, slot in state.queues.slots.items()
    }


def _use_of(
    state: "Columns", slot: int, running: Sequence[int], waiting: Sequence[int]
) -> QueueUse:
    columns = state.queues
    rule = columns.rule(slot)
    held = (columns.used[slot] + columns.releasing[slot]).tolist()
    fixed = columns.fixed[slot].tolist()
    quota = rule.quota.gpu_milli
    return QueueUse(
        name=rule.name,
        gpu_milli=held[0],
        cpu_milli=held[1],
        memory_mib=held[2],
        gpu_fixed_milli=fixed[0],
        cpu_fixed_milli=fixed[1],
        memory_fixed_mib=fixed[2],
        gpu_borrowed_milli=0 if quota == UNLIMITED else max(0, held[0] - quota),
        gpu_waiting_milli=int(columns.waiting[slot, 0]),
        running=running[slot],
        waiting=waiting[slot],
        gpu_reserved_milli=int(columns.reserved[slot, 0]),
        parent=rule.parent,
        leaf=columns.is_leaf(slot),
    )


def _running(state: "Columns") -> list[int]:
    """The number of workloads of each queue that hold allocations."""
    holds = np.zeros(len(state.jobs.queue), np.bool_)
    holds[state.tasks.job.take(state.tasks.used())] = True
    own = np.bincount(state.jobs.queue.compress(holds), minlength=len(state.queues.rules))
    return _with_those_below(state, own.tolist())


def _waiting(state: "Columns", above: int | None = None) -> list[int]:
    """The number of waiting workloads of each queue; with ``above`` of that one and those below."""
    own, waiting = [0] * len(state.queues.rules), state.waiting
    used = waiting.need > 0
    if above is not None:
        below = [above in state.queues.path(slot) for slot in range(len(own))]
        used &= np.array(below, np.bool_).take(waiting.queue)
    for number in np.flatnonzero(used).tolist():
        row = waiting.rows[number]
        if row is not None:
            own[row.queue] += len(row)
    for job in _asking_apart(state):
        own[job.queue] += 1
    return _with_those_below(state, own)


def _with_those_below(state: "Columns", own: Sequence[int]) -> list[int]:
    total = [0] * len(own)
    for slot, number in enumerate(own):
        for above in state.queues.path(slot) if number else ():
            total[above] += number
    return total


# Workloads


def workload_view(state: "Columns", job: "JobInfo") -> WorkloadView:
    """The present view of one workload."""
    names, tasks = state.nodes.names, state.tasks
    places = []
    for index, row in sorted(job.rows.items()):
        place = tasks.footprint(row)
        node, halted, stuck = names[place.node], index in job.halted, index in job.stuck
        places.append(TaskPlacement(index, node, place.devices, halted, place.slots, stuck))
    held = [(names[place.node], place.devices, place.slots) for _, place in job.reservation]
    return WorkloadView(
        queued=job.spec,
        waiting=job.queued and not job.rows,
        places=tuple(places),
        started_at=job.started if job.rows else None,
        checkpoint_at=None if job.saved == NEVER_SAVED else job.saved,
        reserved=tuple(held),
        reserved_indices=tuple(index for index, _ in job.reservation),
        pending=tuple(job.pending()),
        tasks=job.shape.tasks,
        stale_since=job.stale_since,
    )


def _asking_apart(state: "Columns") -> Iterator["JobInfo"]:
    """Pending jobs that are in no waiting row."""
    yield from (job for job in state.partial.values() if not job.rows)
    yield from state.gated.values()


Slot = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TaskOnDevice:
    """A task on a device; ``releasing`` when it is terminating.

    ``slots`` are the bits of its MIG instance, ``profile`` its name; 0 and empty for other tasks.
    """

    uid: str
    index: int
    gpu_milli: int
    releasing: bool
    slots: int = 0
    profile: str = ""


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """A device: its holders, reservations and free capacity.

    Attributes:
        reserved_for: the uid of a workload that it is reserved for, or empty; ``reservations`` all,
            since shares and MIG instances of a device may be reserved for several.
        free_slots: bits of free memory slots where MIG instances are made, else 0.
        warm: MIG instances that nobody uses: profile and slots.
    """

    index: int
    broken: bool
    free_milli: int
    holders: tuple[TaskOnDevice, ...]
    reserved_for: str
    reservations: tuple[str, ...] = ()
    free_slots: int = 0
    warm: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node: its capacity, what is allocated, and its devices.

    Attributes:
        extended: countable resources: name, how many there are, how many are held.
        labels: as the node was told.
    """

    name: str
    schedulable: bool
    cpu_milli: int
    cpu_allocated_milli: int
    memory_mib: int
    memory_allocated_mib: int
    devices: tuple[DeviceSnapshot, ...]
    draining: bool = False
    mig_model: str = ""
    extended: tuple[tuple[str, int, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


def node_views(state: "Columns") -> list[NodeSnapshot]:
    """All nodes by name."""
    holders: dict[Slot, list[TaskOnDevice]] = {}
    for job in state.holding.values():
        for index, row in sorted(job.rows.items()):
            place = state.tasks.footprint(row)
            profile = job.shape.requests[index].mig_profile
            holding = TaskOnDevice(
                job.spec.uid,
                index,
                place.share,
                index in job.halted,
                place.slots,
                profile if place.slots else "",
            )
            for device in place.devices:
                holders.setdefault((place.node, device), []).append(holding)
    reservations = _reservations(state.reserved.values())
    return [_node_view(state, name, holders, reservations) for name in sorted(state.nodes.slots)]


def _reservations(jobs: Iterable["JobInfo"]) -> dict[Slot, list[str]]:
    found: dict[Slot, list[str]] = {}
    for job in jobs:
        for _, place in job.reservation:
            for device in place.devices:
                uids = found.setdefault((place.node, device), [])
                if job.spec.uid not in uids:
                    uids.append(job.spec.uid)
    return found


def _node_view(
    state: "Columns",
    name: str,
    holders: dict[Slot, list[TaskOnDevice]],
    reservations: dict[Slot, list[str]],
) -> NodeSnapshot:
    nodes, slot = state.nodes, state.nodes.slots[name]
    fact = nodes.fact(slot)
    devices = tuple(
        _device_view(
            state,
            slot,
            device,
            holders.get((slot, device), []),
            reservations.get((slot, device), []),
        )
        for device in range(fact.devices)
    )
    capacity, free = nodes.capacity[:, slot].tolist(), nodes.free.host[:, slot].tolist()
    held = [has - left for has, left in zip(capacity, free, strict=True)]
    extended = sorted((key, row) for key, row in nodes.extended.items() if capacity[row])
    return NodeSnapshot(
        name=name,
        schedulable=bool(nodes.schedulable[slot]),
        cpu_milli=capacity[CPU],
        cpu_allocated_milli=held[CPU],
        memory_mib=capacity[MEMORY],
        memory_allocated_mib=held[MEMORY],
        devices=devices,
        draining=fact.draining,
        mig_model=fact.mig_model,
        extended=tuple((key, capacity[row], held[row]) for key, row in extended),
        labels=fact.labels,
    )


def _device_view(
    state: "Columns", slot: int, device: int, holders: list[TaskOnDevice], reservations: list[str]
) -> DeviceSnapshot:
    nodes, uids = state.nodes, sorted(reservations)
    warm = state.warm.on(slot, device) if nodes.mig[slot] else ()
    return DeviceSnapshot(
        index=device,
        broken=not bool(nodes.usable[device, slot]),
        free_milli=int(nodes.free.devices[device, slot]),
        holders=tuple(sorted(holders, key=lambda one: (one.uid, one.index))),
        reserved_for=uids[0] if uids else "",
        reservations=tuple(uids),
        free_slots=int(nodes.free.slots[device, slot]),
        warm=tuple((profile, bits) for profile, bits in warm),
    )
