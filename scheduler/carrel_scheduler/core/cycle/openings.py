"""Which waiting rows may find room, by counting what fits per class, now and soon.

The counts follow every move, so rows that have lost their chance are passed over at a glance. Only
nodes on which something is being released hold more soon than now: what they will hold is counted
for all classes once, and anew for those that moves touch.
"""

import numpy as np

from carrel_scheduler.core.cycle.barred import barred
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.starving import held_back
from carrel_scheduler.core.layers import LARGEST, Bools, Counts
from carrel_scheduler.core.work.jobs import Job


class Openings:
    """What the waiting rows of a cycle can still reach.

    Attributes:
        has_coming: any room is being released.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        room, waiting, capacity = cycle.room, cycle.state.waiting, cycle.state.capacity
        coming = room.releasing.devices.any(axis=0) | room.releasing.host.any(axis=0)
        self._coming = np.flatnonzero(coming)
        self.has_coming = bool(len(self._coming))
        self._of_node = {node: place for place, node in enumerate(self._coming.tolist())}
        used = waiting.used()
        self._rows = used.compress(~(barred(cycle, used) | held_back(cycle, used)))
        cycle.sync()
        self._classes = capacity.classes
        self._column = capacity.columns_of(waiting.cls)
        self._need = waiting.need
        self._least: Counts | None = None
        self._more = self._more_on(self._coming)
        self._gain: Counts = self._more.sum(axis=0, dtype=np.int64)
        self._log, self._seen = room.log, -1
        self._now = self._soon = self._gain

    def rows(self) -> Counts:
        """Numbers of the rows whose tasks there is room for, now or soon."""
        return self._rows.compress(self.fits(self._rows))

    def fits(self, rows: Counts) -> Bools:
        """(n,) whether there may still be room for the next job of these rows, now or soon."""
        self._look()
        there = self._soon.take(self._column.take(rows))
        return np.asarray(there >= self._need.take(rows))

    def fits_row(self, number: int) -> bool:
        """Whether there may still be room for the next job of a row, now or soon."""
        self._look()
        return bool(self._soon.item(self._column.item(number)) >= self._need.item(number))

    def first(self, rows: Counts, begin: int, end: int) -> int:
        """The first of these places at which a row may still find room, else ``end``."""
        self._look()
        soon, column, need = self._soon.item, self._column.item, self._need.item
        for place in range(begin, end):
            number = rows.item(place)
            if soon(column(number)) >= need(number):
                return place
        return end

    def exhausted(self) -> bool:
        """Whether there is no room any more for any of these rows."""
        self._look()
        if self._least is None:
            self._least = np.full(len(self._soon), LARGEST, np.int64)
            np.minimum.at(self._least, self._column.take(self._rows), self._need.take(self._rows))
        return not (self._soon >= self._least).any()

    def now(self, job: Job, step: tuple[int, ...]) -> bool:
        """Whether the step may still find room at once."""
        self._look()
        row = job.waiting
        if row is not None and not self._cycle.answered(job):
            return bool(self._now.item(self._column.item(row.id)) >= self._need.item(row.id))
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
        """Count what is coming anew on nodes that moves touched."""
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
        capacity, room = self._cycle.state.capacity, self._cycle.room
        more: Counts = capacity.counts_many(room.soon, classes, nodes)
        more -= capacity.rows(nodes)
        return more
