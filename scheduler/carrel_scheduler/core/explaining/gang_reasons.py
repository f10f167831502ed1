"""What is special about a workload that has begun, or whose tasks do not all ask for room."""

from typing import TYPE_CHECKING

from carrel_scheduler.core.reasons import Reason, ReasonClass, Token

if TYPE_CHECKING:
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.work.jobs import Job


def gang_reason(cycle: "Cycle", job: "Job", step: tuple[int, ...]) -> Reason | None:
    """Whether it grows, waits for members or is gated; ``None`` when it just starts.

    Args:
        cycle: after all actions.
        job: it has tasks that are not placed.
        step: the tasks that it asks a place for next.
    """
    spec, tasks = job.spec, job.shape.tasks
    states = cycle.states_of(job)
    there = sum(state.there for state in states)
    if job.rows and cycle.grows(job):
        return Reason(
            ReasonClass.NOT_NOW, Token.GROWING, project=spec.project, tasks=tasks, there=there
        )
    if step:
        return None
    may = there + sum(len(state.pending) for state in states)
    if not may and spec.gated:
        return Reason(ReasonClass.HELD_BACK, Token.GATED, project=spec.project, tasks=tasks)
    return Reason(
        ReasonClass.HELD_BACK,
        Token.WAITS_FOR_GANG,
        resource="tasks",
        requested=len(job.shape.first_step),
        short=max(0, len(job.shape.first_step) - may),
        bound=may,
        project=spec.project,
        tasks=tasks,
        there=may,
    )
