"""Evictions for no other workload: stale gangs, and work on draining nodes."""

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.work.gang_steps import shed_steps, stale_tasks
from carrel_scheduler.core.work.jobs import JobInfo


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
