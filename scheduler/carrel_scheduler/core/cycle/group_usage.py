"""Use of groups of nodes by queues in one cycle, and what limits and quotas leave there.

A queue may have a limit of GPUs on the nodes of a group, beside its limit in all, and a quota there
(``group_quotas``). Where the work of a queue lies is known only once it has a place, so what it may
not hold in a group closes nodes to it while places are sought: beyond its limit, and for what may
not be stopped also what is guaranteed to others. Only groups that some queue has a limit or a quota
for are counted; a cycle without any has no ``GroupUsage``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.cycle.group_quotas import GroupQuotas
from carrel_scheduler.core.layers import Bools, Counts, Footprint
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.requests import IN_GROUP

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns

NO_GROUP = -1


@dataclass(frozen=True, slots=True)
class GroupViolation:
    """A limit or quota in a node group that the workload would exceed.

    Attributes:
        group: its name.
        slot: of the queue whose limit or quota it is.
        held: thousandths of GPUs that count against it already.
        bound: the limit; for what may not be stopped the most of such work that it may hold.
        by_quotas: no limit, but what is guaranteed to others there.
    """

    group: str
    slot: int
    held: int
    bound: int
    by_quotas: bool = False


class GroupUsage:
    """GPUs that queues hold or have reserved, by node group, in thousandths.

    Attributes:
        quotas: what is guaranteed to queues in groups; ``None`` where nothing is.
    """

    def __init__(self, state: "Columns") -> None:
        """The usage at the start of the cycle; ``add`` follows the changes."""
        self._lay_out(state)
        fixed = self._count_all(state)
        self._lay_out_quotas(state, fixed)

    @classmethod
    def empty(cls, state: "Columns") -> "GroupUsage":
        """The usage of an empty cluster."""
        usage = object.__new__(cls)
        usage._lay_out(state)
        usage._lay_out_quotas(state, usage._used)
        return usage

    def _lay_out(self, state: "Columns") -> None:
        table = state.queues.table
        self._table, size = table, len(table.names)
        rules = (*table.group_limits, *table.group_quotas)
        self._names = sorted({group for by_group in rules for group in by_group})
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
        self.quotas: GroupQuotas | None = None

    def _lay_out_quotas(self, state: "Columns", fixed: Counts) -> None:
        if any(self._table.group_quotas):
            held = self._used, fixed
            self.quotas = GroupQuotas(state, self._names, self._group, held)

    def _count_all(self, state: "Columns") -> Counts:
        """Count everything; (Q, G) the non-preemptible part of it."""
        tasks, fixed = state.tasks, np.zeros_like(self._used)
        rows = tasks.used()
        group = self._group.take(tasks.node.take(rows))
        counted = (group != NO_GROUP) & ~tasks.stopping.take(rows)
        rows, group = rows[counted], group[counted]
        queue, gpu = state.jobs.queue.take(tasks.job.take(rows)), tasks.gpu.take(rows)
        np.add.at(self._used, (queue, group), gpu)
        np.add.at(fixed, (queue, group), gpu * (tasks.victim.take(rows) < 0))
        for job in state.reserved.values():
            for _, place in job.reservation:
                group_of = self._group.item(place.node)
                if group_of != NO_GROUP:
                    self._used[job.queue, group_of] += place.amounts[0]
                    fixed[job.queue, group_of] += place.amounts[0] * job.reservation_fixed
        self._table.tree.sums(self._used)
        return self._table.tree.sums(fixed)

    def add(self, leaf: int, node: int, gpu: int, *, fixed: bool = False) -> None:
        """Count GPUs on a node in for a queue and all above it, or out where negative."""
        group = self._group.item(node)
        if gpu and group != NO_GROUP:
            for slot in self._table.path[leaf]:
                self._used[slot, group] += gpu
            if self.quotas is not None:
                self.quotas.add(leaf, group, gpu, fixed=fixed)

    def binds(self, leaf: int, *, fixed: bool = False) -> bool:
        """Whether a limit or quota in a node group may affect work of the queue at all."""
        return self._binds[leaf] or (fixed and self.quotas is not None)

    def open_nodes(self, leaf: int, gpu: int, *, fixed: bool = False) -> Bools | None:
        """(N,) the nodes where a queue may hold so much more; ``None``: all."""
        if not gpu or not self.binds(leaf, fixed=fixed):
            return None
        closed = self._room(leaf, fixed=fixed) < gpu
        if not closed.any():
            return None
        return np.append(~closed, True).take(self._group)  # the last one for NO_GROUP

    def allows(self, leaf: int, place: Footprint, *, fixed: bool) -> bool:
        """Whether a queue may hold this place too."""
        gpu, group = place.amounts[0], self._group.item(place.node)
        if not gpu or group == NO_GROUP or not self.binds(leaf, fixed=fixed):
            return True
        return bool(self._room(leaf, fixed=fixed)[group] >= gpu)

    def exceeded(self, leaf: int, places: Iterable[Footprint]) -> bool:
        """Whether a queue holds more than its limit in the group of one of these places."""
        if not self._binds[leaf]:
            return False
        room = self._room(leaf)
        groups = {self._group.item(place.node) for place in places if place.amounts[0]}
        return any(room[group] < 0 for group in groups - {NO_GROUP})

    def fitting(self, leaf: int, counts: Counts, gpu: int, *, fixed: bool = False) -> int:
        """The number of tasks that the bounds admit where ``counts`` (N,) of them fit each node.

        ``gpu``: what each holds.
        """
        inside = self._group != NO_GROUP
        found = int(counts[~inside].sum())
        admitted = self._tasks(leaf, gpu, fixed=fixed)
        return found + int(np.minimum(self._in_groups(counts), admitted).sum())

    def violation(
        self, leaf: int, counts: Counts, gpu: int, *, fixed: bool = False
    ) -> GroupViolation | None:
        """The bound that keeps most tasks from starting where ``counts`` of them fit each node."""
        barred = self._in_groups(counts) - self._tasks(leaf, gpu, fixed=fixed)
        if not len(barred) or barred.max() <= 0:
            return None
        group, path = int(barred.argmax()), self._table.path[leaf]
        slot = min(path, key=lambda one: int(self._limits[one, group] - self._used[one, group]))
        held, bound = self._used.item(slot, group), self._limits.item(slot, group)
        room = int(self._room(leaf, fixed=fixed)[group])
        if self.quotas is not None and room < bound - held:
            mine = self.quotas.of_group[group].fixed[leaf][0]
            return GroupViolation(self._names[group], leaf, mine, mine + room, by_quotas=True)
        return GroupViolation(self._names[group], slot, held, bound)

    def name(self, group: int) -> str:
        """The name of a group."""
        return self._names[group]

    def held(self, slot: int, group: str) -> int:
        """A queue's use in a group, in thousandths."""
        return self._used.item(slot, self._names.index(group))

    def nodes(self, group: str) -> Bools:
        """(N,) the nodes of a group."""
        return np.asarray(self._group == self._names.index(group))

    def group_of(self, node: int) -> int:
        """The number of a node's group if some queue has a quota there, else ``NO_GROUP``."""
        group = self._group.item(node)
        return group if self.quotas is not None and group in self.quotas.of_group else NO_GROUP

    def groups_of(self, nodes: Counts) -> Counts:
        """``group_of`` many nodes."""
        known = [] if self.quotas is None else list(self.quotas.of_group)
        group = self._group.take(nodes)
        return np.where(np.isin(group, known), group, NO_GROUP)

    def _in_groups(self, counts: Counts) -> Counts:
        inside = self._group != NO_GROUP
        groups = len(self._names)
        return np.bincount(self._group[inside], counts[inside], groups).astype(np.int64)

    def _tasks(self, leaf: int, gpu: int, *, fixed: bool) -> Counts:
        """(G,) so many tasks the bounds still admit in each group."""
        return np.maximum(self._room(leaf, fixed=fixed), 0) // gpu

    def _room(self, leaf: int, *, fixed: bool = False) -> Counts:
        """(G,) how much more a queue may hold in each group, negative where it holds too much."""
        path = list(self._table.path[leaf])
        room: Counts = (self._limits[path] - self._used[path]).min(axis=0)
        if fixed and self.quotas is not None:
            np.minimum(room, self.quotas.room_for_fixed(leaf, len(room)), out=room)
        return room
