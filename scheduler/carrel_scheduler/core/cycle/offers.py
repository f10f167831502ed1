"""Pending work in the order of service, and which of it can still find capacity.

Inside a queue: higher priority, then jobs below their minimum, at it, above it; then the older. In
a queue that is shared between its users, the work of who holds less comes before the older.
Between queues ``order`` decides. Equal jobs share a row: when one of them cannot be served, the
whole row is skipped. ``FeasibleRows`` counts per class how many tasks fit now and soon, follows
every move, and so skips rows that no longer fit without trying them.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import REFUSED, SEARCHED, OfferResult
from carrel_scheduler.core.cycle.starvation import held_back
from carrel_scheduler.core.layers import LARGEST, Bools, Counts
from carrel_scheduler.core.queues.order import ServiceOrder
from carrel_scheduler.core.queues.user_order import Key, UserOrder
from carrel_scheduler.core.resources import Triple
from carrel_scheduler.core.work.jobs import JobInfo, WaitingRow

MISSES = 8
"""The number of failed offers after which all rows are looked at together."""
FEW = 3
"""The number of rows of a queue that are looked at one by one before the rest together."""


class FeasibleRows:
    """The waiting rows of a cycle that may still find capacity.

    Attributes:
        has_coming: tasks are terminating.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        free, waiting, capacity = cycle.free_capacity, cycle.state.waiting, cycle.state.capacity
        coming = free.releasing.devices.any(axis=0) | free.releasing.host.any(axis=0)
        self._coming = np.flatnonzero(coming)
        self.has_coming = bool(len(self._coming))
        self._of_node = {node: place for place, node in enumerate(self._coming.tolist())}
        used = waiting.used()
        barred = waiting.over_limit(used, cycle.queue_columns)
        if len(cycle.late):
            barred |= held_back(cycle, used)
        self._rows = used.compress(~barred)
        cycle.sync()
        self._classes = capacity.classes
        self._column = capacity.columns_of(waiting.cls)
        self._need = waiting.need
        self._columns = self._needs = used[:0]
        self._least: Counts | None = None
        self._more = self._more_on(self._coming)
        self._gain: Counts = self._more.sum(axis=0, dtype=np.int64)
        self._log, self._seen = free.log, -1
        self._now = self._soon = self._gain

    def rows(self) -> Counts:
        """Numbers of the rows whose tasks fit on idle capacity, or on capacity being released."""
        return self._rows.compress(self.fits(self._rows))

    def fits(self, rows: Counts) -> Bools:
        """(n,) whether there may still be capacity for the next job of these rows, now or soon."""
        self._look()
        there = self._soon.take(self._column.take(rows))
        return np.asarray(there >= self._need.take(rows))

    def fits_row(self, number: int) -> bool:
        """Whether there may still be capacity for the next job of a row, now or soon."""
        self._look()
        return bool(self._soon.item(self._column.item(number)) >= self._need.item(number))

    def order(self, rows: Counts) -> None:
        """Let ``first`` be about these rows, by their place."""
        self._columns, self._needs = self._column.take(rows), self._need.take(rows)

    def first(self, begin: int, end: int) -> int:
        """The first place at which a row may still find capacity, else ``end``."""
        self._look()
        soon, column, need = self._soon.item, self._columns.item, self._needs.item
        some = min(begin + FEW, end)
        for place in range(begin, some):
            if soon(column(place)) >= need(place):
                return place
        if some == end:
            return end
        fits = self._soon.take(self._columns[some:end]) >= self._needs[some:end]
        place = int(fits.argmax())
        return some + place if fits.item(place) else end

    def exhausted(self) -> bool:
        """Whether none of these rows can find capacity any more."""
        self._look()
        if self._least is None:
            self._least = np.full(len(self._soon), LARGEST, np.int64)
            np.minimum.at(self._least, self._column.take(self._rows), self._need.take(self._rows))
        return not (self._soon >= self._least).any()

    def now(self, job: JobInfo, step: tuple[int, ...]) -> bool:
        """Whether the step may still find capacity at once."""
        self._look()
        row = job.waiting
        if row is not None and not self._cycle.answered(job):
            return bool(self._now.item(self._column.item(row.id)) >= self._need.item(row.id))
        cycle = self._cycle
        cycle.sync()
        return cycle.state.capacity.total(job.shape.classes[step[0]]) > 0

    def soon(self, job: JobInfo) -> bool:
        """Whether the step may still fit on capacity that is being released."""
        if not self.has_coming:
            return False
        row = job.waiting
        if row is None or self._cycle.answered(job):
            return True
        return bool(self._soon.item(self._column.item(row.id)) >= self._need.item(row.id))

    def _look(self) -> None:
        """Count again, unless nothing has moved since."""
        log = self._log
        if len(log) == self._seen:
            return
        self._cycle.sync()
        if self.has_coming:
            self._follow(log[max(self._seen, 0) :])
        self._seen = len(log)
        self._now = self._soon = self._cycle.state.capacity.totals
        if self.has_coming:
            self._soon = self._now + self._gain

    def _follow(self, moved: list[int]) -> None:
        """Recount the capacity being released on nodes that moves changed."""
        touched = {self._of_node[node] for node in moved if node in self._of_node}
        if touched:
            places = np.array(sorted(touched), np.int64)
            self._gain -= self._more.take(places, 0).sum(axis=0)
            self._more[places] = self._more_on(self._coming.take(places))
            self._gain += self._more.take(places, 0).sum(axis=0)

    def _more_on(self, nodes: Counts) -> Counts:
        """(n, C) how many more tasks fit on each node when what stops has stopped."""
        classes = self._classes
        if not len(nodes) or not len(classes):
            return np.zeros((len(nodes), len(classes)), np.int64)
        capacity, free = self._cycle.state.capacity, self._cycle.free_capacity
        more: Counts = capacity.counts_many(free.soon, classes, nodes)
        more -= capacity.rows(nodes)
        return more


class Candidate:
    """Equal jobs of one queue, or one job alone."""

    __slots__ = ("_rest", "job", "row", "step")

    def __init__(self, job: JobInfo, row: WaitingRow | None, step: tuple[int, ...]) -> None:
        self.job = job
        self.row = row
        self.step = step
        self._rest: Iterator[JobInfo] | None = None

    def next(self, cycle: Cycle) -> bool:
        """Go on to the next job of the row; returns whether there is one."""
        if self.row is None:
            return False
        if self._rest is None:
            self._rest = iter(self.row.in_order())
        for job in self._rest:
            if job is not self.job and self._after(job) and not cycle.answered(job):
                self.job = job
                return True
        return False

    def _after(self, job: JobInfo) -> bool:
        mine, other = self.job.spec, job.spec
        return (other.created_at, other.uid) > (mine.created_at, mine.uid)

    def key(self, *, stage: int) -> Key:
        """The position in the queue."""
        spec = self.job.spec
        return (-spec.priority, stage, spec.created_at, spec.uid)


class Offers:
    """The pending work that may be worth trying, by queue.

    Rows are sorted as columns and become candidates only when their turn is near: of thousands of
    rows few are ever tried. The first candidates of all queues are read from the columns at once.
    """

    def __init__(
        self,
        cycle: Cycle,
        rows: Counts,
        singles: Iterable[JobInfo],
        feasible: FeasibleRows | None = None,
        reserved: Iterable[JobInfo] = (),
    ) -> None:
        """Collect the candidates, with the present free capacity.

        Args:
            cycle: the cycle.
            rows: numbers of waiting rows that fit now.
            singles: jobs that stand in no row.
            feasible: tells which rows may still find capacity; those that may not are dropped when
                their turn comes.
            reserved: jobs to be offered other places than those that are reserved for them.
        """
        self._cycle, self._feasible = cycle, feasible
        self._singles = 0
        self._missed = 0
        self._first: dict[int, Triple] = {}
        self._heaps: dict[int, list[tuple[Key, Candidate]]] = {}
        self._turns: dict[int, UserOrder[Candidate]] = {}
        self._numbers = self._above = self._leaves = rows[:0]
        self._since = np.zeros(0, np.float64)
        self._next: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        if len(rows):
            self._sort(rows)
        for job in singles:
            self._push_single(job, cycle.next_step(job))
        for job in reserved:
            self._push_single(job, tuple(sorted(cycle.moves.reserved[job.uid])))

    def run(
        self,
        attempt: Callable[[JobInfo, tuple[int, ...]], OfferResult],
        *,
        touches_all: bool = False,
        most: int | None = None,
        served: int | None = None,
    ) -> None:
        """Offer everything to ``attempt``.

        Args:
            attempt: tries to serve the next step of a job.
            touches_all: what it serves changes other queues too.
            most: it ends after so many failed searches.
            served: and after so many that were served.
        """
        leaves = self._next.keys() | self._heaps.keys() | self._turns.keys()
        if not leaves:
            return
        service = ServiceOrder(self._cycle.queue_usage, self._head, leaves)
        left, more = -1 if most is None else most, -1 if served is None else served
        while left and more and (leaf := service.pop()) is not None:
            candidate = self._take(leaf)
            if candidate is None and self._is_exhausted():
                return
            answer = (
                OfferResult.PLAINLY_NO
                if candidate is None
                else attempt(candidate.job, candidate.step)
            )
            left -= answer in SEARCHED
            if candidate is None or answer is not OfferResult.SERVED:
                self._miss(service)
            more -= answer is OfferResult.SERVED
            if not (left and more):
                return
            if candidate is not None and answer not in REFUSED:
                self._go_on(candidate, service, answer, touches_all=touches_all)
            service.update(leaf)

    def _go_on(
        self, candidate: Candidate, service: ServiceOrder, answer: OfferResult, *, touches_all: bool
    ) -> None:
        """Offer the next job of a row, and what more a job that was served asks for."""
        job = candidate.job
        if candidate.next(self._cycle):
            self._push(candidate, stage=0)
        if answer is OfferResult.SERVED:
            if job.shape.elastic:
                self._push_single(job, self._cycle.next_step(job))
            if touches_all:
                service.update_all()

    def _take(self, leaf: int) -> Candidate | None:
        """The candidate of a queue; ``None`` where it no longer fits, or is evicted."""
        if self._first_is_missed(leaf):
            return None
        candidate = self._next_of(leaf)
        if candidate.row is None:
            self._singles -= 1
            return None if self._cycle.moves.evicted_of(candidate.job) else candidate
        if self._feasible is not None and not self._feasible.fits_row(candidate.row.id):
            return None
        return candidate

    def _first_is_missed(self, leaf: int) -> bool:
        """Go past the first row of a queue if it has not become a candidate and no longer fits."""
        if self._feasible is None or leaf not in self._first:
            return False
        place = self._next[leaf]
        if self._feasible.fits_row(self._numbers.item(place)):
            return False
        del self._first[leaf]
        self._next[leaf] = place + 1
        return True

    def _next_of(self, leaf: int) -> Candidate:
        turns = self._turns.get(leaf)
        if turns is not None and (candidate := turns.pop()) is not None:
            return candidate
        heap = self._heaps.setdefault(leaf, [])
        if self._first.pop(leaf, None) is not None:
            place = self._next[leaf]
            self._next[leaf] = place + 1
            self._candidate_of(place)
        return heapq.heappop(heap)[1]

    def _is_exhausted(self) -> bool:
        return not self._singles and self._feasible is not None and self._feasible.exhausted()

    def _sort(self, rows: Counts) -> None:
        """Rows of each queue by priority and submission, so far only as numbers."""
        waiting = self._cycle.state.waiting
        rows = self._without_shared(rows)
        self._numbers = waiting.in_order(rows)
        if self._feasible is not None:
            self._feasible.order(self._numbers)
        self._above = -waiting.priority.take(self._numbers)
        self._since = waiting.since.take(self._numbers)
        self._leaves = leaves = waiting.queue.take(self._numbers)
        starts = np.ones(len(leaves), np.bool_)
        np.not_equal(leaves[1:], leaves[:-1], out=starts[1:])
        first = starts.nonzero()[0]
        slots = leaves.take(first).tolist()
        self._next = dict(zip(slots, first.tolist(), strict=True))
        self._ends = dict(zip(slots, [*first.tolist(), len(leaves)][1:], strict=True))
        alone = first.compress(~self._tied().take(first))
        demand = waiting.demand.take(self._numbers.take(alone), 1).tolist()
        triples = zip(*demand, strict=True)
        self._first = dict(zip(leaves.take(alone).tolist(), triples, strict=True))
        for leaf in self._served_leaves():
            self._forget_first(leaf)

    def _without_shared(self, rows: Counts) -> Counts:
        """The rows of queues that are not shared between users; those of others take their turns.

        Whose turn it is changes with every start, so these become candidates at once.
        """
        if self._cycle.user_usage is None:
            return rows
        shared = np.array(self._cycle.queue_usage.table.fair_users, np.bool_)
        mine = shared.take(self._cycle.state.waiting.queue.take(rows))
        for number in rows.compress(mine).tolist():
            self._enter(number)
        return rows.compress(~mine)

    def _tied(self) -> Bools:
        """(r,) whether only uids tell which of a row and the next one of its queue comes first."""
        kept = (self._leaves, self._above, self._since)
        found = np.zeros(len(self._leaves), np.bool_)
        found[:-1] = np.logical_and.reduce([column[1:] == column[:-1] for column in kept])
        return found

    def _served_leaves(self) -> set[int]:
        """Queues of those in rows whom this cycle has served: their first may be another by now."""
        moves, state = self._cycle.moves, self._cycle.state
        served = {*moves.started, *moves.reserved, *moves.reserved_many} - state.reserved.keys()
        return {state.jobs.get(uid).queue for uid in served}

    def _miss(self, service: ServiceOrder) -> None:
        """Leave out, after many failed offers, all queues of which no row fits any more."""
        self._missed += 1
        if self._missed < MISSES or self._feasible is None:
            return
        self._missed = 0
        if not self._singles:
            left = self._leaves.compress(self._feasible.fits(self._numbers))
            has_some = np.bincount(left, minlength=max(self._next, default=0) + 1).tolist()
            service.forget([leaf for leaf in self._next if not has_some[leaf]])

    def _push_single(self, job: JobInfo, step: tuple[int, ...]) -> None:
        if step:
            self._forget_first(job.queue)
            self._push(Candidate(job, None, step), stage=self._cycle.stage(job))
            self._singles += 1

    def _forget_first(self, leaf: int) -> None:
        """Let the first row of a queue be compared with what does not stand in rows."""
        self._first.pop(leaf, None)

    def _push(self, candidate: Candidate, *, stage: int) -> None:
        job, usage, key = candidate.job, self._cycle.user_usage, candidate.key(stage=stage)
        if usage is None or not usage.counts(job.queue):
            heapq.heappush(self._heaps.setdefault(job.queue, []), (key, candidate))
            return
        turns = self._turns.get(job.queue)
        if turns is None:
            turns = self._turns[job.queue] = UserOrder(partial(usage.held, job.queue))
        turns.push(job.spec.user, key, candidate)

    def _pull(self, leaf: int, heap: list[tuple[Key, Candidate]]) -> None:
        """Make candidates of the rows that may come before what stands in the heap."""
        place, end = self._next.get(leaf, 0), self._ends.get(leaf, 0)
        feasible = self._feasible
        while place < end:
            if heap:
                above, stage, since, _ = heap[0][0]
                if (above, stage, since) < (self._above.item(place), 0, self._since.item(place)):
                    break
            if feasible is not None:
                place = feasible.first(place, end)
                if place >= end:
                    break
            self._candidate_of(place)
            place += 1
        self._next[leaf] = place

    def _candidate_of(self, place: int) -> None:
        """Enter the candidate of the row at a place."""
        self._enter(self._numbers.item(place))

    def _enter(self, number: int) -> None:
        """Enter the candidate of a row, unless all of its jobs have been answered."""
        row = self._cycle.state.waiting.rows[number]
        job = None if row is None else row.first()
        if job is not None:
            candidate = Candidate(job, row, job.shape.first_step)
            if not self._cycle.answered(job) or candidate.next(self._cycle):
                self._push(candidate, stage=0)

    def _head(self, leaf: int) -> Triple | None:
        first = self._first.get(leaf)
        if first is not None:
            return first
        if leaf in self._turns:
            return self._head_in_turn(self._turns[leaf])
        heap, feasible = self._heaps.setdefault(leaf, []), self._feasible
        while True:
            self._pull(leaf, heap)
            if not heap:
                return None
            candidate = heap[0][1]
            if feasible is None or candidate.row is None or feasible.fits_row(candidate.row.id):
                return self._cycle.demand(candidate.job, candidate.step)
            heapq.heappop(heap)

    def _head_in_turn(self, turns: UserOrder[Candidate]) -> Triple | None:
        feasible = self._feasible
        while (candidate := turns.first()) is not None:
            if feasible is None or candidate.row is None or feasible.fits_row(candidate.row.id):
                return self._cycle.demand(candidate.job, candidate.step)
            turns.pop()
        return None
