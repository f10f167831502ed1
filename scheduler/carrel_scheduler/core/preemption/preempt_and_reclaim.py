"""Combine: work takes both, lower priority in its own queue and what other queues borrowed.

For work that fits by neither of the two rules alone. What leaves its own queue is counted out of
it, so the claim on others stands where the queue ends within its fair share. Each victim gives way
by its own rule: those of the own queue as for ``preempt``, the others as for ``reclaim``. A queue
that is beyond its fair share already takes from nobody, so no more of its own work has to leave for
the sake of the claim than is claimed.
"""

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Answer, answered, unless_failed_before
from carrel_scheduler.core.cycle.offers import Offers
from carrel_scheduler.core.preemption import preemptors, vectorised
from carrel_scheduler.core.preemption.combining import make_room
from carrel_scheduler.core.preemption.node_prefilter import enough_in_all
from carrel_scheduler.core.preemption.own_queue import OwnSide, reaches_others
from carrel_scheduler.core.preemption.search.model import GangRequest
from carrel_scheduler.core.resources import NONE
from carrel_scheduler.core.work.jobs import Job


def run(cycle: Cycle) -> None:
    """Evict by both rules, in the order of service."""
    if not (cycle.has_victims and preemptors.combines(cycle)):
        return
    growing = [job for job in preemptors.singles(cycle) if not cycle.grows(job)]
    rows = preemptors.for_combine(cycle)
    offers = Offers(cycle, rows, growing)
    offers.run(
        lambda job, step: attempt(cycle, job, step),
        touches_all=True,
        most=max(cycle.most_failed_searches, len(rows)),
        served=cycle.most_served,
    )


def attempt(cycle: Cycle, job: Job, step: tuple[int, ...]) -> Answer:
    """Make room for a step by both rules, once it may make others give way."""
    if cycle.delayed(job, reclaiming=True):
        return Answer.NOT_THIS
    return unless_failed_before(cycle, "combine", job, step, find)


def find(cycle: Cycle, job: Job, step: tuple[int, ...]) -> Answer:
    """Make room for a step by what may be taken inside its queue and from others."""
    queue_usage, wish = cycle.queue_usage, vectorised.wish_of(cycle, job, step)
    if not queue_usage.within(queue_usage.fair[job.queue], job.queue, NONE):
        return Answer.PLAINLY_NO
    if wish is not None and not _in_reach(cycle, job, wish):
        return Answer.PLAINLY_NO
    own = OwnSide(cycle, job, step)
    rights = own.rights(own.most) if own.most != NONE else None
    if rights is None or not reaches_others(rights):
        return Answer.PLAINLY_NO
    return answered(make_room(own, wish))


def _in_reach(cycle: Cycle, job: Job, wish: GangRequest) -> bool:
    """Whether by sums its own queue and all that borrow could give enough."""
    giving = cycle.borrowers.copy()
    giving[job.queue] = True
    return cycle.is_small or enough_in_all(cycle, job.shape.cls, wish.tasks, giving)
