"""Preempt: work takes the place of its own queue's work of strictly lower priority.

Only preemptible work gives way, so interactive work that may not be stopped never does. What the
queue holds in all does not grow, except into free room, so no other queue is touched.
"""

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Answer, answered, unless_failed_before
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.offers import Offers
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.preemption import preemptors, vectorised
from carrel_scheduler.core.preemption.mig_instances import in_the_way
from carrel_scheduler.core.preemption.minimum_runtimes import preempt_protects_s
from carrel_scheduler.core.preemption.node_prefilter import promising
from carrel_scheduler.core.preemption.sequential import Search
from carrel_scheduler.core.preemption.victim_order import Giving
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.work.jobs import Job


def run(cycle: Cycle) -> None:
    """Evict inside queues, in the order of service."""
    if cycle.has_victims:
        offers = Offers(cycle, preemptors.for_preempt(cycle), preemptors.singles(cycle))
        offers.run(
            lambda job, step: attempt(cycle, job, step),
            touches_all=True,
            most=cycle.most_failed_searches,
            served=cycle.most_served,
        )


def find(cycle: Cycle, job: Job, step: tuple[int, ...]) -> Answer:
    """Make room for a step by what may be taken inside its queue."""
    wish = vectorised.wish_of(cycle, job, step)
    if wish is None or cycle.over_limit(job, step) is not None:
        return answered(_one_by_one(cycle, job, step))
    own = _own(cycle, job)
    least = preempt_protects_s(cycle.queue_usage.table, job.queue, cycle.settings.min_runtime_s)
    alone = np.full(len(own), least) if least else None
    budgets, cause = vectorised.open_budgets(cycle), Cause(Token.PREEMPTED, job)
    found = vectorised.offer(
        cycle, job, wish, own, budgets, below=job.spec.priority, protected_s=alone
    )
    if found.table is None:
        return Answer.PLAINLY_NO
    return answered(
        vectorised.make_room(
            cycle, job, wish, found.table, budgets, cause, lambda: _one_by_one(cycle, job, step)
        )
    )


def _own(cycle: Cycle, job: Job) -> Bools:
    own = np.zeros(len(cycle.queue_usage.used), np.bool_)
    own[job.queue] = True
    return own


def _one_by_one(cycle: Cycle, job: Job, step: tuple[int, ...]) -> bool:
    victims = [
        victim
        for victim in promising(cycle, job, step, _own(cycle, job))
        if victim.spec.priority < job.spec.priority
    ]
    if not victims:
        return False
    least = preempt_protects_s(cycle.queue_usage.table, job.queue, cycle.settings.min_runtime_s)
    search = Search(cycle, job, step, Cause(Token.PREEMPTED, job))
    few = in_the_way(cycle, job, step, victims, lambda _, __: True)
    for some in (few, victims):
        giving = Giving(cycle, some, lambda victim: victim.started + least > cycle.now)
        if search.run(giving.shares(lambda _: True)):
            return True
    return False


def attempt(cycle: Cycle, job: Job, step: tuple[int, ...]) -> Answer:
    """Make room for a step by what may be taken inside its queue, once it may make others."""
    if cycle.delayed(job):
        return Answer.NOT_THIS
    return unless_failed_before(cycle, "preempt", job, step, find)
