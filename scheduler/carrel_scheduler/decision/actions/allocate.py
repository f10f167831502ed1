"""Allocate: waiting work takes room that is free, in the order of service.

What does not fit now but does once running stops have finished gets those places held. What fits
nowhere blocks nobody: later work is still tried (backfill). Work whose room is on its way starts
elsewhere at once when other room has become free. Beyond its minimum a job grows step by step, each
time at the end of its queue's line.
"""

import numpy as np

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
    offers = Offers(cycle, reach.rows(), singles)
    offers.run(lambda job, step: _attempt(cycle, reach, job, step))


class Reach:
    """Which waiting rows may find room at all, by counting what fits per class."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        room = cycle.room
        coming = (room.releasing.devices.any(axis=0)) | (room.releasing.host.any(axis=0))
        self._coming = np.flatnonzero(coming)

    @property
    def has_coming(self) -> bool:
        """Whether any room is being released."""
        return bool(len(self._coming))

    def rows(self) -> list[WaitingRow]:
        """The rows whose tasks are there room for, now or soon."""
        cycle, waiting = self._cycle, self._cycle.state.waiting
        used = np.flatnonzero(waiting.need)
        if not len(used):
            return []
        cycle.sync()
        classes = waiting.cls.take(used)
        total = cycle.state.capacity.totals_of(classes) + self._more_soon(classes)
        fits = used.compress(total >= waiting.need.take(used))
        return [row for number in fits.tolist() if (row := waiting.rows[number]) is not None]

    def now(self, job: Job, step: tuple[int, ...]) -> bool:
        """Whether the step may still find room at once."""
        cycle, classes = self._cycle, job.shape.classes
        cycle.sync()
        first = classes[step[0]]
        need = len(step) if job.shape.plain else 1
        return cycle.state.capacity.total(first) >= need

    def _more_soon(self, classes: Counts) -> Counts:
        if not self.has_coming:
            return np.zeros_like(classes)
        capacity, room = self._cycle.state.capacity, self._cycle.room
        distinct, places = np.unique(classes, return_inverse=True)
        soon = capacity.counts_many(room.soon, distinct, self._coming).sum(axis=0, dtype=np.int64)
        now = capacity.counts_many(room.idle, distinct, self._coming).sum(axis=0, dtype=np.int64)
        more: Counts = (soon - now).take(places)
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
    if any(index in job.rows for index in held):
        return Answer.NOT_THIS
    fixed = cycle.moves.held_as_fixed(job)
    mark = cycle.moves.mark()
    for index in held:
        cycle.moves.lift(job, index, fixed=fixed)
    if place(cycle, job, held, soon=False):
        return Answer.SERVED
    cycle.moves.rollback(mark)
    return Answer.NOT_THIS
