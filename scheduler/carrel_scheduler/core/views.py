"""What the state says about queues and workloads to those who show it: facts, made when asked for.

Amounts: GPU thousandths, millicores, MiB. Rooms that are being released still count as held. A
queue's figures include those of all queues below it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core import events
from carrel_scheduler.core.resources import UNLIMITED
from carrel_scheduler.core.work.jobs import NEVER_SAVED

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.work.jobs import Job


@dataclass(frozen=True, slots=True)
class QueueUse:
    """What a queue holds and waits for.

    Attributes:
        gpu_fixed_milli, cpu_fixed_milli, memory_fixed_mib: the part held by non-preemptible work,
            less what was told to stop.
        gpu_borrowed_milli: held beyond the quota.
        running, waiting: numbers of workloads; one that runs and grows counts as running.
        gpu_promised_milli: room held for waiting work.
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
    gpu_promised_milli: int = 0
    parent: str = ""
    leaf: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task is."""

    index: int
    node: str
    devices: tuple[int, ...]
    releasing: bool
    slots: int = 0
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One workload: what was asked for and where it stands.

    Attributes:
        waiting: it asks for room and none of its tasks has a place.
        started_at: when it last got its place; ``None`` when it has none.
        checkpoint_at: its last checkpoint, ``None`` before the first.
        promised: the places held for it, for the tasks ``promised_indices``.
        pending: tasks that ask for room, also of a workload that runs.
        tasks: of all it has.
        stale_since: since when it runs with fewer tasks than its minimum, or ``None``.
    """

    queued: events.WorkloadQueued
    waiting: bool
    places: tuple[Place, ...]
    started_at: float | None
    checkpoint_at: float | None
    promised: tuple[events.Place, ...]
    promised_indices: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()
    tasks: int = 1
    stale_since: float | None = None


# Queues


def queue_use(state: "Columns", name: str) -> QueueUse:
    """What a queue holds and waits for. Raises ``KeyError`` for an unknown name."""
    slot = state.queues.slots[name]
    return _use_of(state, slot, _running(state), _waiting(state, slot))


def use_of_all(state: "Columns") -> dict[str, QueueUse]:
    """What every queue holds and waits for, by name: what is counted is counted once for all."""
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
        gpu_promised_milli=int(columns.promised[slot, 0]),
        parent=rule.parent,
        leaf=columns.is_leaf(slot),
    )


def _running(state: "Columns") -> list[int]:
    """How many workloads of each queue hold room."""
    holds = np.zeros(len(state.jobs.queue), np.bool_)
    holds[state.tasks.job.take(state.tasks.used())] = True
    own = np.bincount(state.jobs.queue.compress(holds), minlength=len(state.queues.rules))
    return _with_those_below(state, own.tolist())


def _waiting(state: "Columns", above: int | None = None) -> list[int]:
    """How many workloads of each queue wait; with ``above`` only of that one and those below."""
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


def waiting_jobs(state: "Columns") -> Iterator["Job"]:
    """All jobs that wait and hold nothing, also those held back by whoever submitted them."""
    for row in state.waiting:
        yield from row.members.values()
    yield from _asking_apart(state)


def waiting(state: "Columns") -> Sequence[str]:
    """The uids of all waiting workloads, oldest submission first."""
    jobs = sorted(waiting_jobs(state), key=lambda job: (job.spec.created_at, job.spec.uid))
    return [job.spec.uid for job in jobs]


def workload_view(state: "Columns", job: "Job") -> WorkloadView:
    """One workload as it stands."""
    names, tasks = state.nodes.names, state.tasks
    places = []
    for index, row in sorted(job.rows.items()):
        place = tasks.footprint(row)
        node, halted, stuck = names[place.node], index in job.halted, index in job.stuck
        places.append(Place(index, node, place.devices, halted, place.slots, stuck))
    held = [(names[place.node], place.devices, place.slots) for _, place in job.promise]
    return WorkloadView(
        queued=job.spec,
        waiting=job.queued and not job.rows,
        places=tuple(places),
        started_at=job.started if job.rows else None,
        checkpoint_at=None if job.saved == NEVER_SAVED else job.saved,
        promised=tuple(held),
        promised_indices=tuple(index for index, _ in job.promise),
        pending=tuple(job.pending()),
        tasks=job.shape.tasks,
        stale_since=job.stale_since,
    )


def _asking_apart(state: "Columns") -> Iterator["Job"]:
    """Waiting jobs that do not stand in rows."""
    yield from (job for job in state.partial.values() if not job.rows)
    yield from state.gated.values()
