"""Who asks for room: a job enters and leaves the waiting rows, or the partial jobs."""

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.resources import NONE, added
from carrel_scheduler.core.work.jobs import Job


def ask(state: Columns, job: Job) -> None:
    """Enter a job among those that ask for room, where it belongs now."""
    if job.fresh and not job.promise:
        job.asked = job.shape.total
        state.waiting.add(job)
    else:
        pending = job.pending()
        if not pending:
            if job.spec.gated and job.queued and not job.rows:
                state.gated[job.spec.uid] = job
            return
        job.asked = added(job.shape.amounts[index] for index in pending)
        state.partial[job.spec.uid] = job
        for cls in job.shape.kinds:
            state.classes.retain(cls)
    state.queues.add(Sum.WAITING, job.queue, job.asked)


def stop_asking(state: Columns, job: Job) -> None:
    """The opposite of ``ask``; nothing for a job that does not ask."""
    state.gated.pop(job.spec.uid, None)
    if job.waiting is not None:
        state.waiting.remove(job)
    elif state.partial.pop(job.spec.uid, None) is not None:
        for cls in job.shape.kinds:
            state.classes.release(cls)
    else:
        return
    state.queues.add(Sum.WAITING, job.queue, job.asked, sign=-1)
    job.asked = NONE
