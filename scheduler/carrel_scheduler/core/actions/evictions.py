"""Evictions for no other workload: stale gangs, work on draining nodes, moves to better nodes."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.work.gang_steps import shed_steps, stale_tasks
from carrel_scheduler.core.work.jobs import JobInfo

IMPROVE_TRIES = 8
"""The most workloads that one decision tries to move to nodes that they prefer."""


def evict_stale(cycle: Cycle) -> None:
    """Evict stale gangs: those that have run with fewer tasks than their minimum for too long."""
    for uid in sorted(cycle.state.stale):
        job = cycle.state.stale[uid]
        if _is_over(cycle, job) and not cycle.answered(job):
            for index in stale_tasks(job.shape.structure, cycle.states_of(job)):
                fixed = cycle.is_protected(job, [index])
                cycle.moves.evict(job, index, Cause(Token.GANG_INCOMPLETE), fixed=fixed)


def _is_over(cycle: Cycle, job: JobInfo) -> bool:
    own = job.spec.stale_grace_s
    grace = cycle.settings.stale_grace_s if own is None else own
    return grace >= 0 and job.stale_since is not None and cycle.now >= job.stale_since + grace


def drain(cycle: Cycle) -> None:
    """Evict preemptible work from nodes that are being drained.

    It moves where there is capacity; without any it is evicted all the same and waits, because a
    node is drained to become empty. Non-preemptible work stays until it ends by itself.
    """
    state = cycle.state
    draining = np.isin(state.tasks.node, sorted(state.nodes.draining))
    rows = np.flatnonzero(draining & ~state.tasks.stopping)
    by_job: dict[int, list[int]] = {}
    for row in rows.tolist():
        if not cycle.moves.evicted[row]:
            by_job.setdefault(int(state.tasks.job[row]), []).append(int(state.tasks.index[row]))
    jobs = sorted(by_job, key=lambda slot: state.jobs.at(slot).order)
    for slot in jobs:
        _leave(cycle, state.jobs.at(slot), sorted(by_job[slot]))


def _leave(cycle: Cycle, job: JobInfo, indices: list[int]) -> None:
    if job.spec.preemptible is Preemptibility.NO or job.reservation or cycle.answered(job):
        return
    moves, nodes, tasks = cycle.moves, cycle.state.nodes, cycle.state.tasks
    if job.shape.structure.whole:
        indices = job.running()
    left = {nodes.names[tasks.node.item(job.rows[index])] for index in indices}
    cause = Cause(Token.NODE_DRAINED, nodes=tuple(sorted(left)))
    mark = moves.mark()
    fixed = cycle.is_protected(job, indices)
    for index in indices:
        moves.evict(job, index, cause, fixed=fixed)
    if place(cycle, job, indices, soon=True):
        return
    moves.rollback(mark)
    for index in _with_dependents(cycle, job, set(indices)):
        moves.evict(job, index, cause, fixed=cycle.is_protected(job, [index]))


def _with_dependents(cycle: Cycle, job: JobInfo, indices: set[int]) -> list[int]:
    """The tasks ``indices``, and those that fall below the gang's minimum without them."""
    stopping: list[int] = []
    for step in shed_steps(job.shape.structure, cycle.states_of(job)):
        if indices & set(step.tasks):
            if step.core:
                return job.running()
            stopping += step.tasks
    return sorted(stopping)


def improve(cycle: Cycle) -> None:
    """Move a workload that asks for it to nodes that it prefers and that have capacity for it.

    One in each decision, the first in the order of the queue that gains by it. Nothing else moves
    for it, and what others wait for has been decided before.
    """
    preferences = _Preferences(cycle)
    jobs = cycle.state.improvable.values()
    tries = 0
    for job in sorted(jobs, key=lambda job: (job.order, job.spec.uid)):
        if not preferences.may_gain(job):
            continue
        tries += 1
        if _improve(cycle, job, preferences) or tries == IMPROVE_TRIES:
            return


def _improve(cycle: Cycle, job: JobInfo, preferences: "_Preferences") -> bool:
    indices = job.running()
    if len(indices) < len(job.rows) or job.spec.interactive or cycle.is_protected(job, indices):
        return False
    moves = cycle.moves
    if job.reservation or cycle.answered(job) or moves.evicted_of(job):
        return False
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


class _Preferences:
    """The number of tasks' preferences that each node satisfies, wherever they failed before."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._found: dict[int, tuple[Counts, int]] = {}

    def may_gain(self, job: JobInfo) -> bool:
        """Whether one of its tasks would fit on a node that satisfies more of its preferences."""
        return any(
            preferences.item(self._cycle.state.tasks.node.item(row)) < best
            for index, row in job.rows.items()
            for preferences, best in [self._of(job.shape.classes[index])]
        )

    def met(self, job: JobInfo, indices: Iterable[int]) -> int:
        """The number of preferences that these tasks have satisfied where they lie, or will."""
        return sum(
            self._of(job.shape.classes[index])[0].item(self._cycle.moves.place_of(job, index).node)
            for index in indices
        )

    def _of(self, cls: int) -> tuple[Counts, int]:
        """The preferences of a class of tasks by node, and the most where one of them fits now."""
        if cls not in self._found:
            state = self._cycle.state
            counts = self._cycle.counts_kept(cls, soon=True)
            where = replace(state.classes.request(cls).where, avoided=frozenset())
            found = state.eligible.preferred(where)
            preferences = np.zeros(len(counts), np.int64) if found is None else found
            self._found[cls] = preferences, int(preferences[counts > 0].max(initial=0))
        return self._found[cls]
