"""The tasks of a job as the steps of a gang see them."""

from collections.abc import Collection

from carrel_scheduler.core.events import Outcome, Preemptibility
from carrel_scheduler.core.work.jobs import Job
from carrel_scheduler.core.work.steps import LeafState, shed_steps

NONE: frozenset[int] = frozenset()


def leaf_states(
    job: Job, started: Collection[int] = NONE, stopped: Collection[int] = NONE
) -> tuple[LeafState, ...]:
    """Where the tasks of each leaf are.

    Of those that run the protected ones stand first, and what a plan places stands last: what goes
    first is what came last.

    Args:
        job: the workload.
        started: indices of tasks that a plan places; they count as running.
        stopped: indices of running tasks that a plan stops; they count as waiting again.
    """
    rows, out, halted = job.rows, job.out or {}, job.halted
    leaves: list[tuple[list[int], list[int]]] = [([], []) for _ in job.shape.structure.leaves]
    succeeded = [0] * len(leaves)
    for index, leaf in enumerate(job.shape.leaf_of):
        pending, running = leaves[leaf]
        if index in started or (index in rows and index not in halted and index not in stopped):
            running.append(index)
        elif index in out:
            succeeded[leaf] += out[index] is Outcome.SUCCEEDED
        elif index in rows:
            if index not in halted:
                pending.append(index)
        elif job.queued and index not in job.spec.gated:
            pending.append(index)
    if (core := job.core) or started:
        for _, running in leaves:
            running.sort(key=lambda index: (index not in core, index in started))
    return tuple(
        LeafState(tuple(pending), tuple(running), ended)
        for (pending, running), ended in zip(leaves, succeeded, strict=True)
    )


def protected_members(job: Job) -> frozenset[int]:
    """Indices of the placed tasks that are never stopped for others.

    All of a non-preemptible workload, none of a preemptible one, and of a semi-preemptible one
    its core (``changes.cores``).
    """
    if job.spec.preemptible is Preemptibility.YES or not job.rows:
        return NONE
    return job.core if has_core(job) else frozenset(job.rows)


def has_core(job: Job) -> bool:
    """Whether some of its tasks may be protected and others not."""
    return job.spec.preemptible is Preemptibility.SURPLUS and job.shape.elastic


def minimum_of(
    job: Job, started: Collection[int] = NONE, stopped: Collection[int] = NONE
) -> frozenset[int]:
    """Indices of the running tasks without which it would fall below its minimum."""
    core: tuple[int, ...] = ()
    for step in shed_steps(job.shape.structure, leaf_states(job, started, stopped)):
        core = step.tasks if step.core else ()
    return frozenset(core)
