"""What queues hold in groups of nodes in one cycle, and what their limits there leave.

A queue may have a limit of GPUs on the nodes of a group, beside its limit in all. Where the work of
a queue lies is known only once it has a place, so these limits close nodes to a queue while places
are sought. Only groups that some queue has a limit for are counted; a cycle without such limits
has no ``GroupUsage``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.requests import IN_GROUP

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns

NO_GROUP = -1


@dataclass(frozen=True, slots=True)
class GroupViolation:
    """A limit in a node group that the workload would exceed.

    Attributes:
        group: its name.
        slot: of the queue whose limit it is.
        held: thousandths of GPUs that this queue holds there.
        bound: the limit.
    """

    group: str
    slot: int
    held: int
    bound: int


class GroupUsage:
    """GPUs that queues hold or have reserved, by node group, in thousandths."""

    def __init__(self, state: "Columns") -> None:
        """The usage at the start of the cycle; ``add`` follows the changes."""
        self._lay_out(state)
        self._count_all(state)

    @classmethod
    def empty(cls, state: "Columns") -> "GroupUsage":
        """The usage of an empty cluster."""
        usage = object.__new__(cls)
        usage._lay_out(state)
        return usage

    def _lay_out(self, state: "Columns") -> None:
        table = state.queues.table
        self._table, size = table, len(table.names)
        self._names = sorted({group for limits in table.group_limits for group in limits})
        self._limits: Counts = np.full((size, len(self._names)), NO_BOUND, np.int64)
        for slot, limits in enumerate(table.group_limits):
            for group, limit in limits.items():
                self._limits[slot, self._names.index(group)] = limit
        bound = self._limits.min(axis=1, initial=NO_BOUND) < NO_BOUND
        self._binds = [any(bound[list(path)]) for path in table.path]
        self._group: Counts = np.full(len(state.nodes.schedulable), NO_GROUP, np.int64)
        for number, name in enumerate(self._names):
            self._group[state.eligible.labelled(IN_GROUP, name)] = number
        self._used: Counts = np.zeros_like(self._limits)

    def _count_all(self, state: "Columns") -> None:
        tasks = state.tasks
        rows = tasks.used()
        group = self._group.take(tasks.node.take(rows))
        counted = (group != NO_GROUP) & ~tasks.stopping.take(rows)
        rows, group = rows[counted], group[counted]
        queue = state.jobs.queue.take(tasks.job.take(rows))
        np.add.at(self._used, (queue, group), tasks.gpu_of(rows))
        self._table.tree.sums(self._used)
        for job in state.reserved.values():
            for _, place in job.reservation:
                self.add(job.queue, place.node, place.amounts[0])

    def add(self, leaf: int, node: int, gpu: int) -> None:
        """Count GPUs on a node in for a queue and all above it, or out where negative."""
        group = self._group.item(node)
        if gpu and group != NO_GROUP:
            for slot in self._table.path[leaf]:
                self._used[slot, group] += gpu

    def binds(self, leaf: int) -> bool:
        """Whether a limit in a node group may affect work of the queue at all."""
        return self._binds[leaf]

    def open_nodes(self, leaf: int, gpu: int) -> Bools | None:
        """(N,) the nodes where a queue may hold so much more; ``None``: all."""
        if not gpu or not self._binds[leaf]:
            return None
        closed = self._room(leaf) < gpu
        if not closed.any():
            return None
        return np.append(~closed, True).take(self._group)  # the last one for NO_GROUP

    def allows(self, leaf: int, place: Footprint) -> bool:
        """Whether a queue may hold this place too."""
        gpu, group = place.amounts[0], self._group.item(place.node)
        if not gpu or group == NO_GROUP or not self._binds[leaf]:
            return True
        return bool(self._room(leaf)[group] >= gpu)

    def exceeded(self, leaf: int, places: Iterable[Footprint]) -> bool:
        """Whether a queue holds more than it may in the group of one of these places."""
        if not self._binds[leaf]:
            return False
        room = self._room(leaf)
        groups = {self._group.item(place.node) for place in places if place.amounts[0]}
        return any(room[group] < 0 for group in groups - {NO_GROUP})

    def fitting(self, leaf: int, counts: Counts, gpu: int) -> int:
        """How many tasks the limits admit where ``counts`` (N,) of them fit each node.

        ``gpu``: what each holds.
        """
        inside = self._group != NO_GROUP
        found = int(counts[~inside].sum())
        return found + int(np.minimum(self._in_groups(counts), self._tasks(leaf, gpu)).sum())

    def violation(self, leaf: int, counts: Counts, gpu: int) -> GroupViolation | None:
        """The limit that keeps most tasks from starting where ``counts`` of them fit each node."""
        barred = self._in_groups(counts) - self._tasks(leaf, gpu)
        if not len(barred) or barred.max() <= 0:
            return None
        group, path = int(barred.argmax()), self._table.path[leaf]
        slot = min(path, key=lambda one: int(self._limits[one, group] - self._used[one, group]))
        held, bound = self._used.item(slot, group), self._limits.item(slot, group)
        return GroupViolation(self._names[group], slot, held, bound)

    def nodes(self, group: str) -> Bools:
        """(N,) the nodes of a group."""
        return np.asarray(self._group == self._names.index(group))

    def _in_groups(self, counts: Counts) -> Counts:
        inside = self._group != NO_GROUP
        groups = len(self._names)
        return np.bincount(self._group[inside], counts[inside], groups).astype(np.int64)

    def _tasks(self, leaf: int, gpu: int) -> Counts:
        """(G,) so many tasks the limits still admit in each group."""
        return np.maximum(self._room(leaf), 0) // gpu

    def _room(self, leaf: int) -> Counts:
        """(G,) how much more a queue may hold in each group, negative where it holds too much."""
        path = list(self._table.path[leaf])
        room: Counts = (self._limits[path] - self._used[path]).min(axis=0)
        return room
