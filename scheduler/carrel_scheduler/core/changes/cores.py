"""The core of elastic semi-preemptible work: the members that are protected, as tasks come and go.

The core is the minimum that would be left if all surplus went. It never counts for more than it
did, except through tasks that were placed to fill the minimum, for these had to be within quota.
When members end, surplus takes their place in the core if it asks for no more; larger surplus does
not, since what borrowed would then be beyond reclaim. Where nothing else makes up a minimum, the
workload is ``uncovered``: preemptible as a whole until it starts anew.
"""

from collections.abc import Iterable

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.resources import Triple, added
from carrel_scheduler.core.work.jobs import NOTHING, Job
from carrel_scheduler.core.work.members import has_core, leaf_states, minimum_of
from carrel_scheduler.core.work.steps import satisfied


def next_is_fixed(job: Job) -> bool:
    """Whether its next tasks, once placed, count as non-preemptible."""
    if job.spec.preemptible is not Preemptibility.SURPLUS:
        return job.spec.preemptible is Preemptibility.NO
    return not (job.uncovered or has_minimum(job))


def has_minimum(job: Job) -> bool:
    """Whether its running tasks make up its minimum."""
    return satisfied(job.shape.structure, [state.there for state in leaf_states(job)])


def settle_core(state: Columns, job: Job, new: frozenset[int] = NOTHING) -> None:
    """Set the core after a change of a job's tasks; ``new`` was placed to fill the minimum."""
    if not has_core(job):
        return
    if not job.rows:
        job.core, job.uncovered = NOTHING, False
        return
    before, job.core = job.core | new, NOTHING
    rights = added((job.fixed, _sum(state, job, new)))
    if job.uncovered:
        return
    minimum = minimum_of(job)
    if _within(_sum(state, job, minimum), rights):
        job.core = minimum
        return
    rest = before.intersection(job.running())
    if _suffices(job, rest):
        job.core = rest
    else:
        job.uncovered = True


def _suffices(job: Job, members: frozenset[int]) -> bool:
    """Whether these running tasks alone make up the minimum."""
    others = [index for index in job.running() if index not in members]
    there = [state.there for state in leaf_states(job, stopped=others)]
    return satisfied(job.shape.structure, there)


def _sum(state: Columns, job: Job, indices: Iterable[int]) -> Triple:
    footprint = state.tasks.footprint
    return added(footprint(job.rows[index]).amounts for index in indices)


def _within(amounts: Triple, most: Triple) -> bool:
    return all(amount <= bound for amount, bound in zip(amounts, most, strict=True))
