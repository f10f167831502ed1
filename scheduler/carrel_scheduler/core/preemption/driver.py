"""The driver of the four actions that evict or move running work: one rule object for each.

Who may ask is offered in the order of service (``cycle/offers``). For each the rule finds victims,
unless the same search was in vain before and nothing has changed since. A plain step (equal tasks
without a level) is searched over arrays, and one by one as well where few may go; any other step
one by one only.
"""

from collections.abc import Callable
from dataclasses import dataclass

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Answer, Find, unless_failed_before
from carrel_scheduler.core.cycle.offers import Offers
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.preemption import preemptors
from carrel_scheduler.core.work.jobs import Job

Step = tuple[int, ...]


def not_delayed(cycle: Cycle, job: Job, _step: Step) -> Answer | None:
    """Its preemption delay must be over."""
    return Answer.NOT_THIS if cycle.delayed(job) else None


def not_delayed_reclaim(cycle: Cycle, job: Job, _step: Step) -> Answer | None:
    """Its preemption delay and the reclaim delay must be over."""
    return Answer.NOT_THIS if cycle.delayed(job, reclaiming=True) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """One action.

    Attributes:
        name: of the action, and of its searches in the failed-search cache.
        rows: numbers of the waiting rows that may ask.
        find: makes room for a step of a job; leaves no trace where it finds none.
        refuses: the answer to who may not ask now; ``None``: it may.
        applies: whether the action runs in this cycle.
        singles: jobs that stand in no row and may ask.
        most: after so many offers in vain the action ends, given the number of rows.
    """

    name: str
    rows: Callable[[Cycle], Counts]
    find: Find
    refuses: Callable[[Cycle, Job, Step], Answer | None] = not_delayed
    applies: Callable[[Cycle], bool] = lambda _: True
    singles: Callable[[Cycle], list[Job]] = preemptors.singles
    most: Callable[[Cycle, int], int] = lambda cycle, _: cycle.most_failed_searches

    def run(self, cycle: Cycle) -> None:
        """Make room for those who may ask, in the order of service."""
        if not (cycle.has_victims and self.applies(cycle)):
            return
        rows = self.rows(cycle)
        Offers(cycle, rows, self.singles(cycle)).run(
            lambda job, step: self.attempt(cycle, job, step),
            touches_all=True,
            most=self.most(cycle, len(rows)),
            served=cycle.most_served,
        )

    def attempt(self, cycle: Cycle, job: Job, step: Step) -> Answer:
        """Make room for a step of a job, if it may ask now."""
        refused = self.refuses(cycle, job, step)
        if refused is not None:
            return refused
        return unless_failed_before(cycle, self.name, job, step, self.find)
