"""Placement of the tasks of a step, all or none.

The tree of groups is walked from the root: a group with a level is tried in the sets of nodes that
the topology offers, in their order; inside a set its children and tasks take their places one after
the other, equal tasks together. What leads nowhere is undone.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.core.work.jobs import JobInfo


class Placing:
    """An attempt to place the tasks of a job's step.

    Nodes are compared by what is idle on them even where the capacity of terminating tasks counts,
    so that this is used up before what is free.

    Every task that finds a place is started, or with ``soon`` has its places reserved.
    """

    def __init__(self, cycle: Cycle, job: JobInfo, indices: Sequence[int], *, soon: bool) -> None:
        self._cycle, self._job, self._soon = cycle, job, soon
        self._wanted = set(indices)
        self._fixed = cycle.is_fixed(job)

    def run(self, score: Counts | None = None) -> bool:
        """Whether all tasks have found a place; nothing has changed when not."""
        moves = self._cycle.moves
        mark = moves.mark()
        nodes = self._cycle.state.nodes
        everywhere = np.ones(len(nodes.schedulable), np.bool_)
        if self._group(self._job.shape.group, 0, everywhere, score):
            return True
        moves.rollback(mark)
        return False

    def _group(self, group: Group, first: int, within: Bools, score: Counts | None) -> bool:
        """Place the wanted tasks of a group, whose tasks begin at index ``first``."""
        indices = [i for i in range(first, first + _size(group)) if i in self._wanted]
        if not indices:
            return True
        if group.level is None:
            return self._inside(group, first, indices, within, score)
        moves = self._cycle.moves
        for nodes in self._candidates(group, group.level, first, indices, within):
            mark = moves.mark()
            gathered = self._preferred(group.level, nodes, indices, score)
            if self._inside(group, first, indices, nodes, gathered):
                return True
            moves.rollback(mark)
        return False

    def _inside(
        self, group: Group, first: int, indices: list[int], within: Bools, score: Counts | None
    ) -> bool:
        if group.is_leaf:
            return self._leaf(indices, within, score)
        for child in group.groups:
            if not self._group(child, first, within, score):
                return False
            first += _size(child)
        return True

    def _leaf(self, indices: list[int], within: Bools, score: Counts | None) -> bool:
        classes = self._job.shape.classes
        for cls, run in groupby(indices, key=lambda index: classes[index]):
            if not self._alike(cls, list(run), within, score):
                return False
        return True

    def _alike(self, cls: int, indices: list[int], within: Bools, score: Counts | None) -> bool:
        """Places for equal tasks."""
        cycle, chooser = self._cycle, self._cycle.state.chooser
        apart = cycle.state.classes.request(cls).where.apart
        if apart:
            return self._apart(cls, indices, within, score, apart)
        if len(indices) > 1 and cycle.limited_by_group(self._job):
            return all(self._alike(cls, [index], within, score) for index in indices)
        view = cycle.free_capacity.idle
        counts = cycle.counts(cls, soon=self._soon)
        if len(indices) == 1:
            may = self._within_limits(indices[0], within)
            node = chooser.pick(cls, counts, view, may, self._score(cls, score))
            return node >= 0 and self._take(cls, indices, node)
        spread = chooser.spread(
            cls, len(indices), counts, view, within, score=self._score(cls, score)
        )
        if spread is None:
            return False
        begin = 0
        for node, count in spread:
            if not self._take(cls, indices[begin : begin + count], node):
                return False
            begin += count
        return True

    def _apart(
        self, cls: int, indices: list[int], within: Bools, score: Counts | None, key: str
    ) -> bool:
        """Places on different values of a label, also different from where members are already."""
        cycle = self._cycle
        domains = cycle.state.topologies.domains(key, len(within))
        left = within & (domains >= 0)
        requests = self._job.shape.requests
        members = [i for i, request in enumerate(requests) if request.where.apart == key]
        taken = np.unique(domains[cycle.nodes_of(self._job, members)])
        left &= ~np.isin(domains, taken)
        for index in indices:
            view = cycle.free_capacity.idle
            counts = cycle.counts(cls, soon=self._soon)
            may = self._within_limits(index, left)
            node = cycle.state.chooser.pick(cls, counts, view, may, self._score(cls, score))
            if node < 0 or not self._take(cls, [index], node):
                return False
            left = left & (domains != domains[node])
        return True

    def _within_limits(self, index: int, within: Bools) -> Bools:
        """The nodes, of these, on which limits in node groups admit the task."""
        may = self._cycle.open_nodes(self._job, index)
        return within if may is None else within & may

    def _take(self, cls: int, indices: Sequence[int], node: int) -> bool:
        """Put tasks on a node."""
        moves = self._cycle.moves
        move = moves.reserve if self._soon else moves.start
        for done, index in enumerate(indices):
            place = self._cycle.footprint(cls, node, soon=self._soon, tasks=len(indices) - done)
            if place is None or not self._cycle.within_group_limits(self._job, place):
                return False
            move(self._job, index, place, fixed=self._fixed)
        return True

    # Scores and sets of nodes

    def _score(self, cls: int, score: Counts | None) -> Counts | None:
        """The score of nodes; with ``soon``, nodes with idle capacity come first."""
        if not self._soon:
            return score
        idle = (self._cycle.counts(cls, soon=False) > 0).astype(np.int64)
        return idle if score is None else 2 * score + idle

    def _candidates(
        self, group: Group, level: Level, first: int, indices: list[int], within: Bools
    ) -> Iterator[Bools]:
        cycle, shape = self._cycle, self._job.shape
        members = range(first, first + _size(group))
        pinned = cycle.nodes_of(self._job, members)
        running = pinned if pinned.any() else None
        classes = {shape.classes[index] for index in indices}
        topologies = cycle.state.topologies
        view = cycle.free_capacity.soon if self._soon else cycle.free_capacity.idle
        if len(classes) == 1:
            counts = cycle.counts(classes.pop(), soon=self._soon)
            free = view.devices.sum(axis=0, dtype=np.int64)
            return topologies.candidates(level, within, counts, len(indices), running, free)
        demand = np.zeros(1 + len(view.host), np.int64)
        for index in indices:
            host = cycle.state.classes.host(shape.classes[index])
            demand[0] += shape.amounts[index][0]
            demand[1 : 1 + len(host)] += host
        free = np.vstack([view.devices.sum(axis=0, dtype=np.int64), view.host])
        return topologies.candidates_unlike(level, within, demand, free, running)

    def _preferred(
        self, level: Level, within: Bools, indices: list[int], score: Counts | None
    ) -> Counts | None:
        """Members gather in few domains of the preferred level where one does not hold them all."""
        if not level.preferred or level.preferred == HOST:
            return score
        counts = self._cycle.counts(self._job.shape.classes[indices[0]], soon=self._soon)
        found = self._cycle.state.topologies.node_scores(level, within, counts, len(indices))
        return found if score is None else score * (int(found.max(initial=0)) + 1) + found


def _size(group: Group) -> int:
    return len(group.requests) if group.is_leaf else sum(_size(child) for child in group.groups)


def place(
    cycle: Cycle, job: JobInfo, indices: Sequence[int], *, soon: bool, score: Counts | None = None
) -> bool:
    """Start these tasks, or with ``soon`` reserve capacity for them; all, or nothing happens.

    ``score`` (N,): nodes with more are taken first.
    """
    if len(indices) == 1 and job.shape.plain and score is None:
        return _place_one(cycle, job, indices[0], soon=soon)
    return Placing(cycle, job, indices, soon=soon).run(score)


def _place_one(cycle: Cycle, job: JobInfo, index: int, *, soon: bool) -> bool:
    """``place`` for the most frequent case: one task without a topology."""
    cls, state = job.shape.cls, cycle.state
    view, within = cycle.free_capacity.idle, cycle.open_nodes(job, index)
    if soon:
        node = state.chooser.pick(cls, cycle.counts_kept(cls, soon=False), view, within)
        if node < 0:
            node = state.chooser.pick(cls, cycle.counts_kept(cls, soon=True), view, within)
    else:
        cycle.sync()
        node = state.chooser.pick(cls, state.capacity.column(cls), view, within)
    footprint = cycle.footprint(cls, node, soon=soon) if node >= 0 else None
    if footprint is None or not cycle.within_group_limits(job, footprint):
        return False
    move = cycle.moves.reserve if soon else cycle.moves.start
    move(job, index, footprint, fixed=cycle.is_fixed(job))
    return True
