"""The records of workloads in the core.

A *job* is the record of a workload. Facts that are asked of all jobs at once are columns of
``JobTable``, by the job's slot. Waiting jobs that are equal in queue, shape, priority and
preemptibility share a ``WaitingRow``.
"""

import heapq
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import Outcome, Preemptibility, WorkloadQueued
from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.resources import Triple
from carrel_scheduler.core.work.gang_steps import LeafState, shed_steps
from carrel_scheduler.core.work.shapes import Shape

NEVER_SAVED = -1.0
NOTHING: frozenset[int] = frozenset()
"""Shared, since every new empty set would take its 216 bytes."""


class JobInfo:
    """A workload as the core knows it.

    Attributes:
        slot: its place in the columns; ``queue``: the slot of its queue.
        rows: task index -> row in the task columns, of tasks that hold allocations.
        halted: indices of tasks that are terminating; ``stuck`` those that do not end.
        out: task index -> what became of tasks that neither hold an allocation nor ask for one.
        queued: it asks for capacity (not while it ends before it is requeued).
        waiting: its row among the waiting, when none of its tasks holds or has reserved capacity.
        asked: what its pending tasks count for in the queue's sum of waiting amounts.
        fixed: what of its placed tasks counts as non-preemptible.
        core: of elastic semi-preemptible work the indices that are protected; ``uncovered``: its
            minimum came to rest on more than its rights, so nothing of this attempt is protected.
        reservation: places reserved for it: (task index, place); ``reservation_fixed``: they count
            as non-preemptible.
        started, saved: of its present attempt; epoch seconds.
        evicted_at: when it was last evicted and requeued.
        stale_since: since when it runs with fewer tasks than its minimum.
    """

    __slots__ = (
        "asked",
        "core",
        "evicted_at",
        "fixed",
        "halted",
        "out",
        "queue",
        "queued",
        "reservation",
        "reservation_fixed",
        "rows",
        "saved",
        "shape",
        "slot",
        "spec",
        "stale_since",
        "started",
        "stuck",
        "uncovered",
        "waiting",
    )

    def __init__(self, spec: WorkloadQueued, slot: int, queue: int, shape: Shape) -> None:
        self.spec = spec
        self.slot = slot
        self.queue = queue
        self.shape = shape
        self.rows: dict[int, int] = {}
        self.halted = self.stuck = self.core = NOTHING
        self.uncovered = False
        self.out: dict[int, Outcome] | None = None
        self.queued = True
        self.waiting: WaitingRow | None = None
        self.asked: Triple = (0, 0, 0)
        self.fixed: Triple = (0, 0, 0)
        self.reservation: tuple[tuple[int, Footprint], ...] = ()
        self.reservation_fixed = False
        self.started = 0.0
        self.evicted_at = spec.evicted_at
        self.saved = NEVER_SAVED
        self.stale_since: float | None = None

    @property
    def uid(self) -> str:
        """The workload's id."""
        return self.spec.uid

    @property
    def evictable(self) -> bool:
        """Whether the job runs and some of its tasks may be evicted for others."""
        return self.spec.preemptible is not Preemptibility.NO and len(self.rows) > len(self.halted)

    @property
    def fresh(self) -> bool:
        """Whether all tasks of the job are pending."""
        return self.queued and not self.rows and not self.out and not self.spec.gated

    def pending(self) -> list[int]:
        """Indices of the pending tasks, most important first."""
        if not self.queued:
            return []
        rows, out, gated = self.rows, self.out or {}, self.spec.gated
        return [
            index
            for index in range(self.shape.tasks)
            if index not in rows and index not in out and index not in gated
        ]

    def running(self) -> list[int]:
        """Indices of the tasks that hold allocations and are not terminating."""
        return [index for index in sorted(self.rows) if index not in self.halted]

    @property
    def since(self) -> float:
        """The start of the work that an eviction would lose."""
        return max(self.started, self.saved)

    @property
    def order(self) -> tuple[int, float, str]:
        """The order inside a queue."""
        return (-self.spec.priority, self.spec.created_at, self.spec.uid)


class WaitingRow:
    """Waiting jobs of equal queue, shape, priority and preemptibility.

    ``members`` maps slots of jobs to jobs; the heap behind it may still hold jobs that have left.
    ``user`` is whose they are, empty where the queue's order does not ask for users.
    """

    __slots__ = ("heap", "id", "members", "preemptible", "priority", "queue", "shape", "user")

    def __init__(self, number: int, job: JobInfo, user: str) -> None:
        self.id = number
        self.queue = job.queue
        self.shape: Shape = job.shape
        self.priority = job.spec.priority
        self.preemptible = job.spec.preemptible
        self.user = user
        self.members: dict[str, JobInfo] = {}
        self.heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self.members)

    def first(self) -> JobInfo | None:
        """The oldest job of the row."""
        heap, members = self.heap, self.members
        while heap:
            job = members.get(heap[0][1])
            if job is not None and job.spec.created_at == heap[0][0]:
                return job
            heapq.heappop(heap)
        return None

    def in_order(self) -> list[JobInfo]:
        """All jobs of the row, oldest first."""
        return sorted(self.members.values(), key=lambda job: (job.spec.created_at, job.spec.uid))


class JobTable:
    """The jobs, by uid and by slot.

    Attributes:
        by_slot: the record of each slot, ``None`` when unused.
        uids: the uid of each slot; empty when unused.
        in_queue: slot of a queue -> how many jobs it has.
        queue: (J,) slot of the queue; priority: (J,).
        created, started, since: (J,) epoch seconds: submission, start of the present attempt, and
            start of the work not yet saved.
        gpu: (J,) GPU thousandths of the running tasks.
        placed: (J,) how many tasks hold allocations.
        whole: (J,) it is stopped whole or not at all.
        saves: how many checkpoints were seen.
    """

    def __init__(self) -> None:
        self.saves = 0
        self.by_uid: dict[str, JobInfo] = {}
        self.by_slot: list[JobInfo | None] = []
        self.uids: list[str] = []
        self.in_queue: dict[int, int] = {}
        self.queue: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.priority: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.created: npt.NDArray[np.float64] = np.zeros(0, np.float64)
        self.started: npt.NDArray[np.float64] = np.zeros(0, np.float64)
        self.since: npt.NDArray[np.float64] = np.zeros(0, np.float64)
        self.gpu: Counts = np.zeros(0, np.int64)
        self.placed: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.whole: Bools = np.zeros(0, np.bool_)
        self._spare: list[int] = []

    def add(self, spec: WorkloadQueued, queue: int, shape: Shape) -> JobInfo:
        """A new record."""
        if not self._spare:
            self.reserve(max(16, 2 * len(self.by_slot)))
        slot = self._spare.pop()
        job = JobInfo(spec, slot, queue, shape)
        self.by_uid[spec.uid] = job
        self.by_slot[slot] = job
        self.uids[slot] = spec.uid
        self.in_queue[queue] = self.in_queue.get(queue, 0) + 1
        self.queue[slot] = queue
        self.priority[slot] = spec.priority
        self.created[slot] = spec.created_at
        self.since[slot] = 0.0
        self.gpu[slot] = self.placed[slot] = 0
        self.whole[slot] = shape.goes_whole
        return job

    def add_many(
        self, specs: Sequence[WorkloadQueued], queues: Sequence[int], shapes: Sequence[Shape]
    ) -> list[JobInfo]:
        """New records at once, as ``add`` makes them one by one."""
        if not specs:
            return []
        self.reserve(len(self.by_slot) - len(self._spare) + len(specs))
        slots = self._spare[: -len(specs) - 1 : -1]
        del self._spare[-len(specs) :]
        jobs = list(map(JobInfo, specs, slots, queues, shapes))
        for job, slot in zip(jobs, slots, strict=True):
            uid = job.spec.uid
            self.by_uid[uid] = job
            self.by_slot[slot] = job
            self.uids[slot] = uid
        for queue, count in Counter(queues).items():
            self.in_queue[queue] = self.in_queue.get(queue, 0) + count
        at = np.array(slots, np.int64)
        self.queue[at] = queues
        self.priority[at] = [spec.priority for spec in specs]
        self.created[at] = [spec.created_at for spec in specs]
        self.since[at] = self.gpu[at] = self.placed[at] = 0
        self.whole[at] = [shape.goes_whole for shape in shapes]
        return jobs

    def get(self, uid: str) -> JobInfo:
        """The record of a workload. Raises ``InvalidEvent`` for an unknown one."""
        job = self.by_uid.get(uid)
        if job is None:
            raise InvalidEvent("unknown_workload", "uid", uid, "the uid of a queued workload")
        return job

    def at(self, slot: int) -> JobInfo:
        """The record of a slot in use."""
        job = self.by_slot[slot]
        if job is None:
            raise KeyError(slot)
        return job

    def drop(self, job: JobInfo) -> None:
        """Forget a workload."""
        del self.by_uid[job.spec.uid]
        self.by_slot[job.slot] = None
        self.uids[job.slot] = ""
        self.in_queue[job.queue] -= 1
        self._spare.append(job.slot)

    def reserve(self, slots: int) -> None:
        """Allocate columns for so many jobs at once; which slots jobs get does not depend on it."""
        old = len(self.by_slot)
        if slots <= old:
            return
        for name in ("queue", "priority", "created", "started", "since", "gpu", "placed", "whole"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros(slots - old, column.dtype)]))
        self.by_slot += [None] * (slots - old)
        self.uids += [""] * (slots - old)
        self._spare[:0] = range(slots - 1, old - 1, -1)


def leaf_states(
    job: JobInfo, started: Collection[int] = NOTHING, stopped: Collection[int] = NOTHING
) -> tuple[LeafState, ...]:
    """The state of each leaf's tasks.

    Of those that run the protected ones stand first, and what a plan places stands last: what goes
    first is what came last.

    Args:
        job: the workload.
        started: indices of tasks that a plan places; they count as running.
        stopped: indices of running tasks that a plan stops; they count as waiting again.
    """
    rows, out, halted = job.rows, job.out or {}, job.halted
    leaves: list[tuple[list[int], list[int]]] = [([], []) for _ in job.shape.structure.leaves]
    succeeded = [0] * len(leaves)
    for index, leaf in enumerate(job.shape.leaf_of):
        pending, running = leaves[leaf]
        if index in started or (index in rows and index not in halted and index not in stopped):
            running.append(index)
        elif index in out:
            succeeded[leaf] += out[index] is Outcome.SUCCEEDED
        elif index in rows:
            if index not in halted:
                pending.append(index)
        elif job.queued and index not in job.spec.gated:
            pending.append(index)
    if (core := job.core) or started:
        for _, running in leaves:
            running.sort(key=lambda index: (index not in core, index in started))
    return tuple(
        LeafState(tuple(pending), tuple(running), ended)
        for (pending, running), ended in zip(leaves, succeeded, strict=True)
    )


def protected_members(job: JobInfo) -> frozenset[int]:
    """Indices of the placed tasks that are never evicted for others.

    All tasks of a non-preemptible workload, none of a preemptible one, and the core of a
    semi-preemptible one (``changes.tasks``).
    """
    if job.spec.preemptible is Preemptibility.YES or not job.rows:
        return NOTHING
    return job.core if has_core(job) else frozenset(job.rows)


def has_core(job: JobInfo) -> bool:
    """Whether the job may have protected and unprotected tasks at the same time."""
    return job.spec.preemptible is Preemptibility.SURPLUS and job.shape.elastic


def minimum_of(
    job: JobInfo, started: Collection[int] = NOTHING, stopped: Collection[int] = NOTHING
) -> frozenset[int]:
    """Indices of the running tasks that its minimum needs."""
    core: tuple[int, ...] = ()
    for step in shed_steps(job.shape.structure, leaf_states(job, started, stopped)):
        core = step.tasks if step.core else ()
    return frozenset(core)
