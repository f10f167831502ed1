"""Waiting work offered one by one in the order of service.

Inside a queue: higher priority first, then jobs below their minimum, then those just at it, then
those above it; then the older. Between queues the tree decides (``order``). Jobs that look alike
stand in rows: when one of them cannot be served, none of the row can, and the row is left out
without looking at the rest.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto

from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.order import Service
from carrel_scheduler.decision.resources import Triple
from carrel_scheduler.decision.waiting import WaitingRow


class Answer(Enum):
    """What became of an offer."""

    SERVED = auto()
    NO = auto()
    """Neither this job nor any that looks like it."""
    NOT_THIS = auto()
    """Others that look like it may still be served."""


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
    """All that waits and may be worth trying, by queue."""

    def __init__(
        self,
        cycle: Cycle,
        rows: Iterable[WaitingRow],
        singles: Iterable[Job],
        fits: Callable[[WaitingRow], bool] | None = None,
    ) -> None:
        """``fits``: a quick look; rows for which it says no are dropped when their turn comes."""
        self._cycle = cycle
        self._fits = fits
        self._heaps: dict[int, list[tuple[Key, Line]]] = {}
        for row in rows:
            job = row.first()
            if job is not None:
                line = Line(job, row, job.shape.first_step)
                if not cycle.answered(job) or line.next(cycle):
                    self._push(line, stage=0)
        for job in singles:
            self._push_single(job)

    def run(
        self,
        attempt: Callable[[Job, tuple[int, ...]], Answer],
        *,
        touches_all: bool = False,
        most: int | None = None,
    ) -> None:
        """Offer everything to ``attempt``.

        Args:
            attempt: tries to serve the next step of a job.
            touches_all: what it serves changes other queues too.
            most: it ends after so many offers in vain.
        """
        service = Service(self._cycle.standings, self._head, self._heaps)
        left = -1 if most is None else most
        while left and (leaf := service.pop()) is not None:
            _, line = heapq.heappop(self._heaps[leaf])
            answer = attempt(line.job, line.step)
            served = line.job if answer is Answer.SERVED else None
            left -= served is None
            if answer is not Answer.NO and line.next(self._cycle):
                self._push(line, stage=0)
            if served is not None and served.shape.elastic:
                self._push_single(served)
            if touches_all and served is not None:
                service.update_all()
            service.update(leaf)

    def _push_single(self, job: Job) -> None:
        step = self._cycle.next_step(job)
        if step:
            self._push(Line(job, None, step), stage=self._cycle.stage(job))

    def _push(self, line: Line, *, stage: int) -> None:
        heap = self._heaps.setdefault(line.job.queue, [])
        heapq.heappush(heap, (line.key(stage=stage), line))

    def _head(self, leaf: int) -> Triple | None:
        heap, fits = self._heaps.get(leaf), self._fits
        while heap:
            line = heap[0][1]
            if fits is None or line.row is None or fits(line.row):
                return self._cycle.demand(line.job, line.step)
            heapq.heappop(heap)
        return None
