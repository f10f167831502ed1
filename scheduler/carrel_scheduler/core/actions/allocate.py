"""Allocate: waiting work takes room that is free, in the order of service.

What does not fit now but does once running stops have finished gets those places held. What fits
nowhere blocks nobody: later work is still tried (backfill). Work whose room is on its way starts
elsewhere at once when other room has become free. Beyond its minimum a job grows step by step, each
time at the end of its queue's line.
"""

import numpy as np

from carrel_scheduler.core.barred import barred
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.jobs import Job
from carrel_scheduler.core.layers import LARGEST, Bools, Counts, Footprint
from carrel_scheduler.core.offers import Answer, Offers
from carrel_scheduler.core.placing import place
from carrel_scheduler.core.starving import held_back, is_held_back


def run(cycle: Cycle) -> None:
    """Start what fits now, hold room for what fits soon."""
    reach = Reach(cycle)
    partial = cycle.state.partial
    singles = [
        job
        for uid in sorted(partial)
        if not cycle.started(job := partial[uid])
        and not _waits_for_its_own(cycle, job)
        and (uid in cycle.moves.held or not is_held_back(cycle, job))
    ]
    offers = Offers(cycle, reach.rows(), singles, reach.fits)
    offers.run(lambda job, step: _attempt(cycle, reach, job, step), exhausted=reach.exhausted)


class Reach:
    """Which waiting rows may find room, by counting what fits per class, now and soon.

    The counts follow every move, so rows that have lost their chance are never offered. Only nodes
    on which something is being released hold more soon than now.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        room, waiting = cycle.room, cycle.state.waiting
        coming = room.releasing.devices.any(axis=0) | room.releasing.host.any(axis=0)
        self._coming = np.flatnonzero(coming)
        self._of_node = {node: place for place, node in enumerate(self._coming.tolist())}
        used = np.flatnonzero(waiting.need)
        self._rows = used[~(barred(cycle, used) | held_back(cycle, used))]
        cls = waiting.cls.take(self._rows)
        self._need = waiting.need.take(self._rows)
        self._distinct = np.flatnonzero(np.bincount(cls))
        self._place = np.full(int(cls.max(initial=0)) + 1, -1, np.int64)
        self._place[self._distinct] = np.arange(len(self._distinct))
        self._class = self._place.take(cls)
        self._least = np.full(len(self._distinct), LARGEST, np.int64)
        np.minimum.at(self._least, self._class, self._need)
        cycle.sync()
        self._columns = cycle.state.capacity.columns_of(self._distinct)
        self._more = self._more_on(self._coming)
        self._gain: Counts = self._more.sum(axis=0, dtype=np.int64)
        self._seen = -1
        self._now = self._soon = self._gain
        self._any = True

    @property
    def has_coming(self) -> bool:
        """Whether any room is being released."""
        return bool(len(self._coming))

    def rows(self) -> Counts:
        """Numbers of the rows whose tasks there is room for, now or soon."""
        self._look()
        rows: Counts = self._rows[self._soon.take(self._class) >= self._need]
        return rows

    def fits(self, rows: Counts) -> Bools:
        """(n,) whether there may still be room for the next job of these rows, now or soon."""
        self._look()
        if not self._any:
            return np.zeros(len(rows), np.bool_)
        waiting = self._cycle.state.waiting
        places = self._place.take(waiting.cls.take(rows))
        return np.asarray(self._soon.take(places) >= waiting.need.take(rows))

    def exhausted(self) -> bool:
        """Whether there is no room any more for any of these rows."""
        self._look()
        return not self._any

    def now(self, job: Job, step: tuple[int, ...]) -> bool:
        """Whether the step may still find room at once."""
        self._look()
        row = job.waiting
        if row is not None and not self._cycle.answered(job):
            place = self._place.item(job.shape.classes[step[0]])
            return bool(self._now.item(place) >= self._cycle.state.waiting.need.item(row.id))
        cycle = self._cycle
        cycle.sync()
        return cycle.state.capacity.total(job.shape.classes[step[0]]) > 0

    def soon(self, job: Job) -> bool:
        """Whether the step may still find room that is coming."""
        if not self.has_coming:
            return False
        row = job.waiting
        if row is None or self._cycle.answered(job):
            return True
        place = self._place.item(job.shape.classes[0])
        return bool(self._soon.item(place) >= self._cycle.state.waiting.need.item(row.id))

    def _look(self) -> None:
        """Count again, unless nothing has moved since."""
        log = self._cycle.room.log
        if len(log) == self._seen:
            return
        moved = {self._of_node[node] for node in log[max(self._seen, 0) :] if node in self._of_node}
        self._seen = len(log)
        if moved:
            places = np.array(sorted(moved), np.int64)
            self._gain -= self._more.take(places, 0).sum(axis=0)
            self._more[places] = self._more_on(self._coming.take(places))
            self._gain += self._more.take(places, 0).sum(axis=0)
        self._cycle.sync()
        self._now = self._cycle.state.capacity.totals_of(self._columns)
        self._soon = self._now + self._gain
        self._any = bool((self._soon >= self._least).any())

    def _more_on(self, nodes: Counts) -> Counts:
        """(n, c) how many more tasks fit on each node when what stops has stopped."""
        distinct = self._distinct
        if not len(nodes) or not len(distinct):
            return np.zeros((len(nodes), len(distinct)), np.int64)
        capacity, room = self._cycle.state.capacity, self._cycle.room
        more: Counts = capacity.counts_many(room.soon, distinct, nodes)
        more -= capacity.counts_many(room.idle, distinct, nodes)
        return more


def _attempt(cycle: Cycle, reach: Reach, job: Job, step: tuple[int, ...]) -> Answer:
    if job.spec.uid in cycle.moves.held:
        return _start_elsewhere(cycle, job)
    if cycle.barrier(job, step) is not None:
        return Answer.NO
    if reach.now(job, step) and place(cycle, job, step, soon=False):
        return Answer.SERVED
    if reach.soon(job) and place(cycle, job, step, soon=True):
        return Answer.SERVED
    return Answer.NO


def _start_elsewhere(cycle: Cycle, job: Job) -> Answer:
    places = cycle.moves.held[job.spec.uid]
    held = sorted(places)
    if any(index in job.rows for index in held):
        return Answer.NOT_THIS  # it moves, and has not stopped yet
    fixed = cycle.is_fixed(job)
    mark = cycle.moves.mark()
    for index in held:
        cycle.moves.lift(job, index, fixed=fixed)
    if place(cycle, job, held, soon=False) and cycle.grows(job):
        return Answer.SERVED
    cycle.moves.rollback(mark)
    return Answer.NOT_THIS


def _waits_for_its_own(cycle: Cycle, job: Job) -> bool:
    """Whether a single task has room held and finds none elsewhere, which is plain at once."""
    places = cycle.moves.held.get(job.spec.uid)
    if places is None or job.shape.tasks > 1 or cycle.state.capacity.total(job.shape.cls) > 0:
        return False
    return not _has_own(cycle, places[0])


def _has_own(cycle: Cycle, held: Footprint) -> bool:
    """Whether a task may find room on the node where its room is held, by what is free there."""
    free, node = cycle.room.free, held.node
    if any(amount > free.host.item(row, node) for row, amount in enumerate(held.host) if amount):
        return False
    there = free.devices[:, node].tolist()
    suited = sum(milli >= held.share for milli in there)
    return bool(suited >= len(held.devices))
