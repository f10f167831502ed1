"""Allocate: waiting work takes room that is free, in the order of service.

What does not fit now but does once running stops have finished gets those places held. What fits
nowhere blocks nobody: later work is still tried (backfill). Work whose room is on its way starts
elsewhere at once when other room has become free. Beyond its minimum a job grows step by step, each
time at the end of its queue's line.
"""

import numpy as np

from carrel_scheduler.decision.barred import barred
from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.layers import Counts
from carrel_scheduler.decision.offers import Answer, Offers
from carrel_scheduler.decision.placing import place
from carrel_scheduler.decision.waiting import WaitingRow


def run(cycle: Cycle) -> None:
    """Start what fits now, hold room for what fits soon."""
    reach = Reach(cycle)
    partial = cycle.state.partial
    singles = [partial[uid] for uid in sorted(partial) if not cycle.started(partial[uid])]
    offers = Offers(cycle, reach.rows(), singles, reach.fits)
    offers.run(lambda job, step: _attempt(cycle, reach, job, step))


class Reach:
    """Which waiting rows may find room at all, by counting what fits per class.

    Asked again after every move, for all rows at once, so that rows that have lost their chance
    are never offered.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        room, waiting = cycle.room, cycle.state.waiting
        coming = room.releasing.devices.any(axis=0) | room.releasing.host.any(axis=0)
        self._coming = np.flatnonzero(coming)
        used = np.flatnonzero(waiting.need)
        self._rows = used[~barred(cycle, used)]
        self._distinct, self._class = np.unique(waiting.cls.take(self._rows), return_inverse=True)
        self._need = waiting.need.take(self._rows)
        self._place = np.full(len(waiting.need), -1, np.int64)
        self._place[self._rows] = np.arange(len(self._rows))
        self._more = self._more_soon()
        self._seen = -1
        self._now = self._soon = b""

    @property
    def has_coming(self) -> bool:
        """Whether any room is being released."""
        return bool(len(self._coming))

    def rows(self) -> list[WaitingRow]:
        """The rows whose tasks there is room for, now or soon."""
        self._look()
        rows = self._cycle.state.waiting.rows
        fits = np.frombuffer(self._soon, np.bool_)
        return [row for number in self._rows[fits].tolist() if (row := rows[number]) is not None]

    def fits(self, row: WaitingRow) -> bool:
        """Whether there may still be room for the next job of a row, now or soon."""
        self._look()
        return bool(self._soon[self._place[row.id]])

    def now(self, job: Job, step: tuple[int, ...]) -> bool:
        """Whether the step may still find room at once."""
        self._look()
        row = job.waiting
        if row is not None and self._place[row.id] >= 0 and not self._cycle.answered(job):
            return bool(self._now[self._place[row.id]])
        cycle = self._cycle
        cycle.sync()
        return cycle.state.capacity.total(job.shape.classes[step[0]]) > 0

    def _look(self) -> None:
        """Compare needs with what fits, unless nothing has moved since."""
        moved = len(self._cycle.room.log)
        if moved != self._seen:
            self._seen = moved
            self._cycle.sync()
            total = self._cycle.state.capacity.totals_of(self._distinct)
            self._now = (total.take(self._class) >= self._need).tobytes()
            self._soon = ((total + self._more).take(self._class) >= self._need).tobytes()

    def _more_soon(self) -> Counts:
        """(c,) how many more tasks of each class fit when what stops has stopped."""
        distinct = self._distinct
        if not self.has_coming or not len(distinct):
            return np.zeros_like(distinct)
        capacity, room = self._cycle.state.capacity, self._cycle.room
        soon = capacity.counts_many(room.soon, distinct, self._coming).sum(axis=0, dtype=np.int64)
        now = capacity.counts_many(room.idle, distinct, self._coming).sum(axis=0, dtype=np.int64)
        more: Counts = soon - now
        return more


def _attempt(cycle: Cycle, reach: Reach, job: Job, step: tuple[int, ...]) -> Answer:
    if job.spec.uid in cycle.moves.held:
        return _start_elsewhere(cycle, job)
    if cycle.barrier(job, step) is not None:
        return Answer.NO
    if reach.now(job, step) and place(cycle, job, step, soon=False):
        return Answer.SERVED
    if reach.has_coming and place(cycle, job, step, soon=True):
        return Answer.SERVED
    return Answer.NO


def _start_elsewhere(cycle: Cycle, job: Job) -> Answer:
    held = sorted(cycle.moves.held[job.spec.uid])
    fixed = cycle.is_fixed(job)
    mark = cycle.moves.mark()
    for index in held:
        cycle.moves.lift(job, index, fixed=fixed)
    if place(cycle, job, held, soon=False):
        return Answer.SERVED
    cycle.moves.rollback(mark)
    return Answer.NOT_THIS
