"""Moves of running work to nodes, or to GPUs of a node, that satisfy more of what it prefers.

Mostly nothing better is free, so that is found out first, for each class of requests and not for
each workload. On a node whose GPUs are unlike, a task satisfies as much as the least preferred one
of its GPUs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import nsmallest

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.devices.classes import GpuForm
from carrel_scheduler.core.devices.device_choice import share_on
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import NodeConstraint
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.work.jobs import JobInfo

IMPROVE_TRIES = 8
"""The most workloads that one decision tries to move to what they prefer."""
_Labels = tuple[tuple[str, frozenset[str]], ...]


def improve(cycle: Cycle) -> None:
    """Move a workload that asks for it to what it prefers, where there is capacity for all of it.

    One in each decision, the first in the order of the queue that gains by it. Nothing else moves
    for it, and what others wait for has been decided before.
    """
    preferences = _MetPreferences(cycle)
    shapes = {job.shape.id: job.shape for job in cycle.state.improvable.values()}
    gaining = {
        id_ for id_, shape in shapes.items() if any(map(preferences.may_be_met, shape.kinds))
    }
    if not gaining:
        return
    jobs = (job for job in cycle.state.improvable.values() if job.shape.id in gaining)
    found = nsmallest(
        IMPROVE_TRIES,
        (job for job in jobs if _may_move(cycle, job) and preferences.may_gain(job)),
        key=lambda job: (job.order, job.spec.uid),
    )
    for job in found:
        if _improve(cycle, job, preferences):
            return


def _may_move(cycle: Cycle, job: JobInfo) -> bool:
    """Whether all of it runs and may be evicted; else it takes no turn of others."""
    indices = job.running()
    if len(indices) < len(job.rows) or job.spec.interactive or cycle.is_protected(job, indices):
        return False
    return not (job.reservation or cycle.answered(job) or cycle.moves.evicted_of(job))


def _improve(cycle: Cycle, job: JobInfo, preferences: "_MetPreferences") -> bool:
    indices, moves = job.running(), cycle.moves
    before = preferences.met(job, indices)
    names = cycle.state.nodes.names
    left = {names[moves.place_of(job, index).node] for index in indices}
    cause = Cause(Token.IMPROVED, nodes=tuple(sorted(left)))
    mark = moves.mark()
    for index in indices:
        moves.evict(job, index, cause)
    if place(cycle, job, indices, soon=True) and preferences.met(job, indices) > before:
        return True
    moves.rollback(mark)
    return False


class _MetPreferences:
    """The number of preferences of tasks that places satisfy, wherever the tasks failed before."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._met: dict[int, Counts] = {}
        self._best_of: dict[int, int] = {}
        self._better: dict[_Labels, tuple[Counts, Counts]] = {}

    def may_be_met(self, cls: int) -> bool:
        """Whether anything is free now of what a class of tasks prefers."""
        return self._best_node(cls) > 0 or any(
            self._best_on(cls, node, need=1) for node in self._unlike
        )

    def may_gain(self, job: JobInfo) -> bool:
        """Whether one of its tasks might fit where more of its preferences are satisfied."""
        tasks, classes = self._cycle.state.tasks, job.shape.classes
        for index, row in job.rows.items():
            cls, node = classes[index], tasks.node.item(row)
            own = tasks.footprint(row).devices if node in self._unlike else ()
            if self._at(cls, node, own) < self._best(cls, node, own):
                return True
        return False

    def met(self, job: JobInfo, indices: Iterable[int]) -> int:
        """The number of preferences that these tasks have satisfied where they lie, or will."""
        places = ((job.shape.classes[i], self._cycle.moves.place_of(job, i)) for i in indices)
        return sum(self._at(cls, where.node, where.devices) for cls, where in places)

    def _best(self, cls: int, node: int, own: Sequence[int]) -> int:
        """The most preferences that a place satisfies at which a task might fit now.

        It may keep what it has: its ``own`` devices on its node, where GPUs are unlike.
        """
        found = self._best_node(cls)
        for other in self._unlike:
            found = max(found, self._best_on(cls, other, own if other == node else ()))
        return found

    def _best_node(self, cls: int) -> int:
        """The most preferences that a node with equal GPUs satisfies on which a task fits."""
        if cls not in self._best_of:
            state = self._cycle.state
            nodes, with_gpus = self._better_nodes(cls)
            if state.classes.kinds[cls].form in (GpuForm.WHOLE, GpuForm.SHARE):
                nodes = with_gpus
            self._best_of[cls] = 0
            if len(nodes):
                counts = state.capacity.counts(self._cycle.free_capacity.soon, cls, nodes)
                self._best_of[cls] = int(self._of(cls).take(nodes)[counts > 0].max(initial=0))
        return self._best_of[cls]

    def _best_on(self, cls: int, node: int, own: Sequence[int] = (), need: int = 0) -> int:
        """The most preferences that free GPUs of a node satisfy whose GPUs are unlike.

        Only GPUs are looked at: a task may have what else it needs there.

        Args:
            cls: of the task.
            node: where.
            own: devices that it has there.
            need: so many GPUs; 0: as many as it asks for.
        """
        state = self._cycle.state
        kind, fact = state.classes.kinds[cls], state.nodes.fact(node)
        many, share = kind.amount, MILLI
        if kind.form is not GpuForm.WHOLE:
            many, share = kind.devices, share_on(kind, fact.gpu_memory_mib)
        if not share or not self._of(cls).item(node):
            return 0
        free = self._cycle.free_capacity.soon.devices[: fact.devices, node] >= share
        free[list(own)] = True
        where = state.classes.request(cls).where
        ranks = [
            _rank(where, (one,)) for one, is_free in zip(fact.types, free, strict=True) if is_free
        ]
        return max(
            (one for one in ranks if sum(r >= one for r in ranks) >= (need or many)), default=0
        )

    def _at(self, cls: int, node: int, devices: Sequence[int]) -> int:
        """The number of preferences of a task that a place satisfies."""
        found = self._of(cls).item(node)
        if found and node in self._unlike:
            types = self._cycle.state.nodes.fact(node).types
            where = self._cycle.state.classes.request(cls).where
            return min(found, _rank(where, [types[device] for device in devices]))
        return found

    def _of(self, cls: int) -> Counts:
        """(N,) the number of preferences of a class of tasks that each node satisfies."""
        if cls not in self._met:
            state = self._cycle.state
            where = replace(state.classes.request(cls).where, avoided=frozenset())
            found = state.eligible.preferred(where)
            self._met[cls] = self._none if found is None else found
        return self._met[cls]

    @cached_property
    def _none(self) -> Counts:
        return np.zeros(len(self._cycle.state.nodes.schedulable), np.int64)

    @cached_property
    def _unlike(self) -> frozenset[int]:
        """The nodes whose GPUs are of several types."""
        return frozenset(np.flatnonzero(self._cycle.state.nodes.types.any(axis=0)).tolist())

    def _better_nodes(self, cls: int) -> tuple[Counts, Counts]:
        """The nodes that satisfy any preference of a class, and those of them with GPUs to give.

        Only those whose GPUs are alike.
        """
        preferred = self._cycle.state.classes.request(cls).where.preferred
        known = self._better.get(preferred)
        if known is None:
            better = self._of(cls) > 0
            better[sorted(self._unlike)] = False
            nodes = np.flatnonzero(better)
            free = self._cycle.free_capacity.soon.devices.take(nodes, 1)
            known = self._better[preferred] = nodes, nodes[free.any(axis=0)]
        return known


def _rank(where: NodeConstraint, types: Iterable[str]) -> int:
    """The number of preferences that GPUs of these types satisfy, as of the least preferred one."""
    wanted = where.device_types or ()
    ranks = (
        next((len(wanted) - 1 - place for place, named in enumerate(wanted) if one in named), 0)
        for one in types
    )
    return min(ranks, default=0)
