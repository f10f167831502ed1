"""Stale gangs: who has run with fewer members than its minimum for too long gives its room back."""

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.work.gang_steps import stale_tasks
from carrel_scheduler.core.work.jobs import Job


def run(cycle: Cycle) -> None:
    """Stop the tasks that hold room in vain."""
    for uid in sorted(cycle.state.stale):
        job = cycle.state.stale[uid]
        if _is_over(cycle, job) and not cycle.answered(job):
            for index in stale_tasks(job.shape.structure, cycle.states_of(job)):
                fixed = cycle.is_protected(job, [index])
                cycle.moves.evict(job, index, Cause(Token.GANG_INCOMPLETE), fixed=fixed)


def _is_over(cycle: Cycle, job: Job) -> bool:
    own = job.spec.stale_grace_s
    grace = cycle.settings.stale_grace_s if own is None else own
    return grace >= 0 and job.stale_since is not None and cycle.now >= job.stale_since + grace
