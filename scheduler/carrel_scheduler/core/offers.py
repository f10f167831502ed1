"""Waiting work offered one by one in the order of service.

Inside a queue: higher priority first, then jobs below their minimum, then those just at it, then
those above it; then the older. Between queues the tree decides (``order``). Jobs that look alike
stand in rows: when one of them cannot be served, none of the row can, and the row is left out
without looking at the rest.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto

import numpy as np

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.jobs import Job
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.order import Service
from carrel_scheduler.core.resources import Triple
from carrel_scheduler.core.waiting import WaitingRow


class Answer(Enum):
    """What became of an offer."""

    SERVED = auto()
    NO = auto()
    """Neither this job nor any that looks like it."""
    PLAINLY_NO = auto()
    """Like ``NO``, found out at a glance."""
    NOT_THIS = auto()
    """Others that look like it may still be served."""


MISSES = 8
"""After so many offers in vain all rows are looked at together."""
REFUSED = (Answer.NO, Answer.PLAINLY_NO)
SEARCHED = (Answer.NO, Answer.NOT_THIS)


def answered(found: bool) -> Answer:
    """The answer of a search."""
    return Answer.SERVED if found else Answer.NO


Key = tuple[int, int, float, str]


class Line:
    """Jobs of one queue that look alike, or one job by itself."""

    __slots__ = ("_rest", "job", "row", "step")

    def __init__(self, job: Job, row: WaitingRow | None, step: tuple[int, ...]) -> None:
        self.job = job
        self.row = row
        self.step = step
        self._rest: Iterator[Job] | None = None

    def next(self, cycle: Cycle) -> bool:
        """Go on to the next job of the row; whether there is one."""
        if self.row is None:
            return False
        if self._rest is None:
            self._rest = iter(self.row.in_order())
        for job in self._rest:
            if job is not self.job and self._after(job) and not cycle.answered(job):
                self.job = job
                return True
        return False

    def _after(self, job: Job) -> bool:
        mine, other = self.job.spec, job.spec
        return (other.created_at, other.uid) > (mine.created_at, mine.uid)

    def key(self, *, stage: int) -> Key:
        """Its place in the queue."""
        spec = self.job.spec
        return (-spec.priority, stage, spec.created_at, spec.uid)


class Offers:
    """All that waits and may be worth trying, by queue.

    Rows stand sorted in columns and become lines only when their turn is near: of thousands few are
    ever looked at.
    """

    def __init__(
        self,
        cycle: Cycle,
        rows: Counts,
        singles: Iterable[Job],
        fits: Callable[[Counts], Bools] | None = None,
    ) -> None:
        """What is offered, in the room as it is now.

        Args:
            cycle: the cycle.
            rows: numbers of waiting rows that fit now.
            singles: jobs that stand in no row.
            fits: a quick look at rows, (n,) numbers; those to which it says no are dropped when
                their turn comes.
        """
        self._cycle = cycle
        self._fits = fits
        self._singles = 0
        self._missed = 0
        self._sorted_at = len(cycle.room.log)
        self._heaps: dict[int, list[tuple[Key, Line]]] = {}
        self._sort(rows)
        for job in singles:
            self._push_single(job)

    def run(
        self,
        attempt: Callable[[Job, tuple[int, ...]], Answer],
        *,
        touches_all: bool = False,
        most: int | None = None,
        served: int | None = None,
        exhausted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Offer everything to ``attempt``.

        Args:
            attempt: tries to serve the next step of a job.
            touches_all: what it serves changes other queues too.
            most: it ends after so many searches in vain.
            served: and after so many that were served.
            exhausted: whether no row can be served any more.
        """
        service = Service(self._cycle.standings, self._head, self._heaps)
        left, more = -1 if most is None else most, -1 if served is None else served
        while left and more and (leaf := service.pop()) is not None:
            _, line = heapq.heappop(self._heaps[leaf])
            if line.row is None:
                self._singles -= 1
            elif not self._singles and exhausted():
                return
            answer = attempt(line.job, line.step)
            job = line.job if answer is Answer.SERVED else None
            left -= answer in SEARCHED
            self._missed += job is None
            if self._missed >= MISSES and self._fits is not None:
                self._prune(service)
            more -= job is not None
            if answer not in REFUSED and line.next(self._cycle):
                self._push(line, stage=0)
            if job is not None and job.shape.elastic:
                self._push_single(job)
            if touches_all and job is not None:
                service.update_all()
            service.update(leaf)

    def _sort(self, rows: Counts) -> None:
        """Rows of each queue by priority and submission, so far only as numbers."""
        waiting = self._cycle.state.waiting
        leaf, since = waiting.queue.take(rows), waiting.since.take(rows)
        above = -waiting.priority.take(rows)
        order = np.lexsort((since, above, leaf))
        self._numbers = rows.take(order)
        self._above, self._since = above.take(order).tolist(), since.take(order).tolist()
        self._leaves = leaves = leaf.take(order)
        first = np.flatnonzero(np.diff(leaves, prepend=-1))
        ends = [*first.tolist(), len(leaves)][1:]
        self._next: dict[int, int] = dict(
            zip(leaves.take(first).tolist(), first.tolist(), strict=True)
        )
        self._ends = dict(zip(self._next, ends, strict=True))
        self._heaps = {slot: [] for slot in self._next}

    def _prune(self, service: Service) -> None:
        """Leave out, all at once, the queues of which no row fits any more."""
        self._missed = 0
        if self._fits is None or self._singles:
            return
        left = set(self._leaves.compress(self._fits(self._numbers)).tolist())
        service.forget([leaf for leaf in self._next if leaf not in left])

    def _push_single(self, job: Job) -> None:
        step = self._cycle.next_step(job)
        if step:
            self._push(Line(job, None, step), stage=self._cycle.stage(job))
            self._singles += 1

    def _push(self, line: Line, *, stage: int) -> None:
        heap = self._heaps.setdefault(line.job.queue, [])
        heapq.heappush(heap, (line.key(stage=stage), line))

    def _pull(self, leaf: int, heap: list[tuple[Key, Line]]) -> None:
        """Make lines of the rows that may come before what stands in the heap."""
        place, end = self._next.get(leaf, 0), self._ends.get(leaf, 0)
        cycle = self._cycle
        while place < end:
            if heap:
                above, stage, since, _ = heap[0][0]
                if (above, stage, since) < (self._above[place], 0, self._since[place]):
                    break
            place = self._next_fitting(place, end)
            if place >= end:
                break
            row = cycle.state.waiting.rows[self._numbers.item(place)]
            place += 1
            job = None if row is None else row.first()
            if job is not None:
                line = Line(job, row, job.shape.first_step)
                if not cycle.answered(job) or line.next(cycle):
                    self._push(line, stage=0)
        self._next[leaf] = place

    def _next_fitting(self, place: int, end: int) -> int:
        if self._fits is None or len(self._cycle.room.log) == self._sorted_at:
            return place
        fits = self._fits(self._numbers[place:end])
        first = int(fits.argmax())
        return place + first if fits[first] else end

    def _head(self, leaf: int) -> Triple | None:
        heap, fits = self._heaps[leaf], self._fits
        while True:
            self._pull(leaf, heap)
            if not heap:
                return None
            line = heap[0][1]
            if fits is None or line.row is None or fits(np.array([line.row.id]))[0]:
                return self._cycle.demand(line.job, line.step)
            heapq.heappop(heap)
