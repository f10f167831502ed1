"""Waiting jobs in rows: equal jobs share a row, oldest first.

A row is (queue, shape, priority, preemptibility), and the user where the queue orders work by what
its users hold; ten thousand waiting jobs are a few thousand
rows, and a cycle touches only jobs that move. The columns answer for all rows at once whether the
capacity for one task, times the number of tasks, is there.
"""

import heapq
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.devices.classes import Classes
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.queues.usage import QueueUsageColumns
from carrel_scheduler.core.work.jobs import JobInfo, WaitingRow

Times = npt.NDArray[np.float64]
Key = tuple[int, int, int, Preemptibility, str]

FEW = 64
"""The number of rows that are looked at by themselves, without the whole columns."""
PARTS = 4
"""One of so many rows are put in order by themselves, where the order of all is not known."""


class WaitingRows:
    """The rows of waiting work: equal workloads of a queue share one.

    Attributes:
        rows: by number; ``None`` when unused.
        since: (R,) submission of the oldest job.
        demand: (3, R) what the first step counts for; priority: (R,); fixed: (R,) not preemptible.
        cls, need, queue: (R,) class and number of the tasks of a row's shape, and its queue; need
            is 0 in unused rows. Of shapes with unlike tasks: the class of the first task and how
            many of its first step's tasks are of this class.
    """

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self.rows: list[WaitingRow | None] = []
        self.cls: Counts = np.zeros(0, np.int64)
        self.need: Counts = np.zeros(0, np.int64)
        self.queue: Counts = np.zeros(0, np.int64)
        self.since: Times = np.zeros(0, np.float64)
        self.demand: Counts = np.zeros((3, 0), np.int64)
        self.priority: Counts = np.zeros(0, np.int64)
        self.fixed: Bools = np.zeros(0, np.bool_)
        self._by_key: dict[Key, WaitingRow] = {}
        self._used: Counts | None = None
        self._order: Counts | None = None
        self._spare: list[int] = []
        self.count = 0

    def __iter__(self) -> Iterator[WaitingRow]:
        return (row for row in self.rows if row is not None)

    def used(self) -> Counts:
        """Numbers of the rows in use, ascending. Do not change it."""
        if self._used is None:
            self._used = np.flatnonzero(self.need)
        return self._used

    def in_order(self, rows: Counts) -> Counts:
        """The used rows ordered by queue, in it by priority and oldest job."""
        few = FEW if self._order is not None else max(FEW, len(self.used()) // PARTS)
        if len(rows) <= few:
            return self._sorted(np.sort(rows))
        if self._order is None:
            self._order = self._sorted(self.used())
        wanted = np.zeros(len(self.rows), np.bool_)
        wanted[rows] = True
        return self._order.compress(wanted.take(self._order))

    def _sorted(self, rows: Counts) -> Counts:
        priority = self.priority.take(rows)
        above, queue = priority.max(initial=0) - priority, self.queue.take(rows)
        return rows.take(np.lexsort((self.since.take(rows), narrowed(above), narrowed(queue))))

    def within(self, rows: Counts, bounds: Counts) -> Bools:
        """(r,) whether the first step of these rows stays within the bound of its queue.

        Args:
            rows: (r,) numbers.
            bounds: (Q, 3) by queue.
        """
        queue = self.queue.take(rows)
        if len(rows) <= FEW:
            fits = self.demand.take(rows, 1) <= bounds.take(queue, 0).T
            return np.asarray(fits.all(axis=0))
        found = np.ones(len(rows), np.bool_)
        for demand, bound in zip(self.demand, bounds.T, strict=True):
            if len(bound) and bound.min() < demand.max(initial=0):
                found &= demand.take(rows) <= bound.take(queue)
        return found

    def over_limit(
        self, rows: Counts, usage: QueueUsageColumns, *, for_ever: bool = False
    ) -> Bools:
        """(r,) whether the first step of these rows breaks a bound of its queue or of one above.

        The same as ``QueueUsage.over_limit``: a resource that is not asked for never stands in the
        way. With ``for_ever`` as if nobody held anything.
        """
        found = ~self.within(rows, usage.left(for_ever=for_ever))
        some = self.fixed.take(rows).nonzero()[0]
        if len(some):
            left = usage.left(fixed=True, for_ever=for_ever)
            found[some] |= ~self.within(rows.take(some), left)
        return found

    def add(self, job: JobInfo, user: str = "") -> None:
        """Put a job into its row.

        Args:
            job: it holds nothing.
            user: whose it is; empty where its queue does not ask.
        """
        spec = job.spec
        key = (job.queue, job.shape.id, spec.priority, spec.preemptible, user)
        row = self._by_key.get(key)
        if row is None:
            row = self._by_key[key] = self._new(job, user)
        row.members[spec.uid] = job
        heapq.heappush(row.heap, (spec.created_at, spec.uid))
        if spec.created_at < self.since.item(row.id):
            self.since[row.id] = spec.created_at
            self._order = None
        job.waiting = row
        self.count += 1

    def remove(self, job: JobInfo) -> None:
        """Take a job out of its row."""
        row = job.waiting
        if row is None:
            raise KeyError(job.spec.uid)
        job.waiting = None
        self.count -= 1
        del row.members[job.spec.uid]
        if not row.members:
            key = (row.queue, row.shape.id, row.priority, row.preemptible, row.user)
            del self._by_key[key]
            self.rows[row.id] = None
            self.need[row.id] = 0
            self._spare.append(row.id)
            self._used = self._order = None
            for cls in row.shape.kinds:
                self._classes.release(cls)
            return
        if job.spec.created_at <= self.since[row.id]:
            first = row.first()
            self.since[row.id] = job.spec.created_at if first is None else first.spec.created_at
            self._order = None
        if len(row.heap) > 2 * len(row.members) + 16:
            row.heap = [(job.spec.created_at, uid) for uid, job in row.members.items()]
            heapq.heapify(row.heap)

    def _new(self, job: JobInfo, user: str) -> WaitingRow:
        if not self._spare:
            self._grow()
        self._used = self._order = None
        number = self._spare.pop()
        row = self.rows[number] = WaitingRow(number, job, user)
        first = job.shape.first_step
        cls = job.shape.classes[first[0]]
        self.cls[number] = cls
        self.need[number] = sum(job.shape.classes[index] == cls for index in first)
        self.queue[number] = job.queue
        self.demand[:, number] = job.shape.first
        self.since[number] = job.spec.created_at
        self.priority[number] = job.spec.priority
        self.fixed[number] = job.spec.preemptible is not Preemptibility.YES
        for each in job.shape.kinds:
            self._classes.retain(each)
        return row

    def _grow(self) -> None:
        old = len(self.rows)
        new = max(16, 2 * old)
        for name in ("cls", "need", "queue", "since", "demand", "priority", "fixed"):
            column = getattr(self, name)
            more = np.zeros((*column.shape[:-1], new - old), column.dtype)
            setattr(self, name, np.concatenate([column, more], axis=-1))
        self.rows += [None] * (new - old)
        self._spare += range(new - 1, old - 1, -1)


def narrowed(keys: Counts) -> npt.NDArray[np.integer]:
    """The same keys, none below zero, in a type that sorts faster where they are small."""
    return keys.astype(np.uint16) if int(keys.max(initial=0)) < 1 << 16 else keys
