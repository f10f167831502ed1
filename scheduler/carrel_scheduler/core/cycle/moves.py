"""The log of a cycle: moves on overlays, each of which can be undone; what is left is the plan.

A task starts on free capacity, capacity is reserved for a task, a running task is evicted. Each
move changes free capacity and queue usage at once, so that later attempts see it. Moves of many
tasks are one entry.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.cycle.group_usage import GroupUsage
from carrel_scheduler.core.cycle.user_usage import UserUsage
from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from carrel_scheduler.core.queues.usage import QueueUsage
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import MILLI, NONE, Triple
from carrel_scheduler.core.work.jobs import JobInfo

Masks = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of evictions: the rule and its preemptor, or the nodes that are being drained.

    Attributes:
        within_quota: the preemptor's queue stays within its quota.
        group: the group of nodes in which it does, where that is the right that was claimed;
            ``bound``: the quota there.
    """

    token: Token
    preemptor: JobInfo | None = None
    within_quota: bool = False
    nodes: tuple[str, ...] = ()
    group: str = ""
    bound: int = 0


class MoveKind(Enum):
    """Kinds of entries in the log."""

    START = auto()
    RESERVE = auto()
    UNRESERVE = auto()
    CANCEL = auto()
    EVICT = auto()
    EVICT_MANY = auto()
    RESERVE_MANY = auto()


TAKEN = frozenset({MoveKind.UNRESERVE, MoveKind.CANCEL, MoveKind.EVICT})  # of a single task


@dataclass(slots=True)
class Move:
    """A move of one task, or of the capacity reserved for it."""

    kind: MoveKind
    job: JobInfo
    index: int
    place: Footprint
    fixed: bool = False
    cause: Cause | None = None


@dataclass(slots=True)
class ManyEvicted:
    """Many running tasks, by row."""

    rows: Counts
    cause: Cause
    sums: list[tuple[int, Triple]]
    kind: MoveKind = MoveKind.EVICT_MANY


@dataclass(slots=True)
class ManyReserved:
    """Capacity reserved for many tasks of a job that hold whole devices."""

    job: JobInfo
    indices: tuple[int, ...]
    nodes: Counts
    masks: Masks
    fixed: bool
    kind: MoveKind = MoveKind.RESERVE_MANY


class Moves:
    """The log of a cycle.

    Attributes:
        log: all moves, in order.
        started, reserved: uid -> index -> place.
        reserved_many: uids of jobs with reservations made by one entry.
        evicted: (T,) tasks that are evicted.
        evicted_version: changes whenever ``evicted`` does.
        user_usage: see ``Cycle``.
    """

    def __init__(
        self,
        state: Columns,
        free_capacity: FreeCapacity,
        queue_usage: QueueUsage,
        group_usage: GroupUsage | None,
    ) -> None:
        self.state, self.free_capacity, self.queue_usage = state, free_capacity, queue_usage
        self.group_usage = group_usage
        self.user_usage: UserUsage | None = None
        self.log: list[Move | ManyEvicted | ManyReserved] = []
        self.started: dict[str, dict[int, Footprint]] = {}
        self.reserved: dict[str, dict[int, Footprint]] = {
            uid: dict(job.reservation) for uid, job in state.reserved.items()
        }
        self.reserved_many: set[str] = set()
        self.evicted: Bools = np.zeros(len(state.tasks.node), np.bool_)
        self.evicted_version = 0

    @property
    def last(self) -> Move | ManyEvicted | ManyReserved | None:
        """The last move; as long as it is the same object, all before it are the same, too."""
        return self.log[-1] if self.log else None

    def mark(self) -> int:
        """A place in the log to roll back to."""
        return len(self.log)

    def rollback(self, mark: int) -> None:
        """Undo everything after ``mark``."""
        while len(self.log) > mark:
            move = self.log.pop()
            if isinstance(move, ManyEvicted):
                self._many_evicted(move, -1)
            elif isinstance(move, ManyReserved):
                self._many_reserved(move, -1)
            else:
                self._undo(move)

    @contextmanager
    def apart_from_groups(self) -> Iterator[None]:
        """Count the moves inside as before in groups of nodes; to be undone in the same way."""
        kept, self.group_usage = self.group_usage, None
        try:
            yield
        finally:
            self.group_usage = kept

    def start(self, job: JobInfo, index: int, place: Footprint, *, fixed: bool) -> None:
        """A task starts on free capacity."""
        self.free_capacity.bind(place)
        self._count(job, place, fixed, 1)
        self.started.setdefault(job.spec.uid, {})[index] = place
        self.log.append(Move(MoveKind.START, job, index, place, fixed))

    def reserve(self, job: JobInfo, index: int, place: Footprint, *, fixed: bool) -> None:
        """Room, free or coming, is held for a task."""
        self.free_capacity.reserve(place)
        self._count(job, place, fixed, 1)
        self.reserved.setdefault(job.spec.uid, {})[index] = place
        self.log.append(Move(MoveKind.RESERVE, job, index, place, fixed))

    def unreserve(self, job: JobInfo, index: int, *, fixed: bool) -> None:
        """The reservation of a task ends."""
        place = self.reserved[job.spec.uid][index]
        self._drop(self.reserved, job.spec.uid, index)
        self.free_capacity.unreserve(place)
        self._count(job, place, fixed, -1)
        self.log.append(Move(MoveKind.UNRESERVE, job, index, place, fixed))

    def cancel(self, job: JobInfo, index: int, *, fixed: bool) -> None:
        """Undo the start of a task in this cycle."""
        place = self.started[job.spec.uid][index]
        self._drop(self.started, job.spec.uid, index)
        self.free_capacity.unbind(place)
        self._count(job, place, fixed, -1)
        self.log.append(Move(MoveKind.CANCEL, job, index, place, fixed))

    def take_back(self, job: JobInfo, index: int, cause: Cause) -> None:
        """A preemptible task gives up what it has, or was to get in this cycle."""
        uid = job.spec.uid
        if index in self.started.get(uid, ()):
            self.cancel(job, index, fixed=False)
        elif index in self.reserved.get(uid, ()):
            self.unreserve(job, index, fixed=False)
        else:
            self.evict(job, index, cause)

    def preemptors(self) -> set[str]:
        """Uids of the workloads for which others are evicted."""
        return {
            move.cause.preemptor.spec.uid
            for move in self.log
            if not isinstance(move, ManyReserved) and move.cause and move.cause.preemptor
        }

    def place_of(self, job: JobInfo, index: int) -> Footprint:
        """The footprint of a task, where it lies or will."""
        uid = job.spec.uid
        for places in (self.started.get(uid), self.reserved.get(uid)):
            if places is not None and index in places:
                return places[index]
        return self.state.tasks.footprint(job.rows[index])

    def evict(self, job: JobInfo, index: int, cause: Cause, *, fixed: bool = False) -> None:
        """A running task is evicted."""
        row = job.rows[index]
        place = self.state.tasks.footprint(row)
        self.free_capacity.evict(place)
        self._count(job, place, fixed, -1)
        self.evicted[row] = True
        self.evicted_version += 1
        self.log.append(Move(MoveKind.EVICT, job, index, place, fixed, cause))

    def evict_many(self, rows: Counts, cause: Cause) -> None:
        """Many preemptible tasks are evicted at once."""
        tasks = self.state.tasks
        queue = self.state.jobs.queue.take(tasks.job.take(rows))
        amounts = (tasks.gpu.take(rows), tasks.host[0].take(rows), tasks.host[1].take(rows))
        sums = [np.bincount(queue, weights=amount) for amount in amounts]
        found = [
            (leaf, (int(sums[0][leaf]), int(sums[1][leaf]), int(sums[2][leaf])))
            for leaf in np.flatnonzero(np.bincount(queue)).tolist()
        ]
        move = ManyEvicted(rows, cause, found)
        self._many_evicted(move, 1)
        self.log.append(move)

    def reserve_many(
        self, job: JobInfo, indices: tuple[int, ...], nodes: Counts, masks: Masks, *, fixed: bool
    ) -> None:
        """Whole devices are held for many tasks of one class, one of ``nodes`` for each."""
        move = ManyReserved(job, indices, nodes, masks, fixed)
        self._many_reserved(move, 1)
        self.log.append(move)

    def evicted_of(self, job: JobInfo) -> list[int]:
        """Indices of a job's evicted tasks."""
        stopped = self.evicted
        return [index for index, row in job.rows.items() if stopped[row]]

    # The two directions

    def _undo(self, move: Move) -> None:
        uid, job, place = move.job.spec.uid, move.job, move.place
        if move.kind is MoveKind.START:
            self.free_capacity.unbind(place)
            self._drop(self.started, uid, move.index)
            self._count(job, place, move.fixed, -1)
        elif move.kind is MoveKind.RESERVE:
            self.free_capacity.unreserve(place)
            self._drop(self.reserved, uid, move.index)
            self._count(job, place, move.fixed, -1)
        elif move.kind is MoveKind.UNRESERVE:
            self.free_capacity.reserve(place)
            self.reserved.setdefault(uid, {})[move.index] = place
            self._count(job, place, move.fixed, 1)
        elif move.kind is MoveKind.CANCEL:
            self.free_capacity.bind(place)
            self.started.setdefault(uid, {})[move.index] = place
            self._count(job, place, move.fixed, 1)
        else:
            self.free_capacity.keep(place)
            self.evicted[job.rows[move.index]] = False
            self.evicted_version += 1
            self._count(job, place, move.fixed, 1)

    def _drop(self, places: dict[str, dict[int, Footprint]], uid: str, index: int) -> None:
        del places[uid][index]
        if not places[uid]:
            del places[uid]

    def _count(self, job: JobInfo, place: Footprint, fixed: bool, sign: int) -> None:
        amounts = place.amounts
        self.queue_usage.add(job.queue, amounts, amounts if fixed else NONE, sign)
        if self.group_usage is not None:
            self.group_usage.add(job.queue, place.node, sign * amounts[0], fixed=fixed)
        if self.user_usage is not None:
            self.user_usage.add(job, amounts, sign)

    def _many_evicted(self, move: ManyEvicted, sign: int) -> None:
        tasks, rows = self.state.tasks, move.rows
        capacity = self.free_capacity
        change = capacity.evict_many if sign > 0 else capacity.keep_many
        change(
            tasks.node.take(rows),
            tasks.mask.take(rows),
            tasks.share.take(rows).astype(np.int64),
            tasks.host.take(rows, 1),
            tasks.slots.take(rows).astype(np.int64),
        )
        self.evicted[rows] = sign > 0
        self.evicted_version += 1
        for leaf, amounts in move.sums:
            self.queue_usage.add(leaf, amounts, sign=-sign)
        if self.group_usage is not None:
            queues = self.state.jobs.queue.take(tasks.job.take(rows)).tolist()
            nodes, gpus = tasks.node.take(rows).tolist(), tasks.gpu.take(rows).tolist()
            for leaf, node, gpu in zip(queues, nodes, gpus, strict=True):
                self.group_usage.add(leaf, node, -sign * gpu)
        if self.user_usage is not None:
            jobs = map(self.state.jobs.at, tasks.job.take(rows).tolist())
            gpus, cores = tasks.gpu.take(rows).tolist(), tasks.host[0].take(rows).tolist()
            for job, gpu, cpu in zip(jobs, gpus, cores, strict=True):
                self.user_usage.add(job, (gpu, cpu), -sign)

    def _many_reserved(self, move: ManyReserved, sign: int) -> None:
        job = move.job
        if sign > 0:
            self.reserved_many.add(job.spec.uid)
        else:
            self.reserved_many.discard(job.spec.uid)
        cls = job.shape.classes[move.indices[0]]
        host, counted = self.state.classes.host(cls), self.state.classes.request(cls).counted_milli
        count = len(move.indices)
        self.free_capacity.reserve_many(
            move.nodes,
            move.masks,
            np.full(count, sign * MILLI, np.int64),
            np.repeat(np.array(host[:2], np.int64)[:, None] * sign, count, 1),
        )
        each = popcount(move.masks)
        if self.group_usage is not None:
            gpus = each * MILLI + counted
            for node, gpu in zip(move.nodes.tolist(), gpus.tolist(), strict=True):
                self.group_usage.add(job.queue, node, sign * gpu, fixed=move.fixed)
        devices = int(each.sum())
        amounts = (devices * MILLI + counted * count, host[0] * count, host[1] * count)
        self.queue_usage.add(job.queue, amounts, amounts if move.fixed else NONE, sign)
        if self.user_usage is not None:
            self.user_usage.add(job, amounts, sign)


def popcount(masks: Masks) -> Counts:
    """The number of set bits of each mask."""
    return np.bitwise_count(masks).astype(np.int64)
