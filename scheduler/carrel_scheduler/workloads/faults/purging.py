"""Taking a workload out of the core in whatever state it is there."""

from carrel_scheduler.core.events import Outcome, TaskReleased, WorkloadGone
from carrel_scheduler.core.state import State


def purge(state: State, uid: str) -> None:
    """Release all that a workload holds, and end its waiting; nothing where it is unknown."""
    job = state.jobs.by_uid.get(uid)
    if job is None:
        return
    for index in sorted(job.rows):
        state.apply(TaskReleased(uid, index, Outcome.GONE))
    state.apply(WorkloadGone(uid))
