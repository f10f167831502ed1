"""A question to the reasons: what some workload asks for next, and with which rights."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.explaining.possible import needs
from carrel_scheduler.core.resources import NONE, Triple
from carrel_scheduler.core.work.shapes import Shape

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.work.jobs import Job
    from carrel_scheduler.core.work.waiting import WaitingRow


@dataclass(frozen=True)
class Case:
    """One question.

    Attributes:
        queue: the slot of its queue.
        shape, step: the tasks that are looked for together.
        demand: what they count for; ``fixed_demand`` the non-preemptible part.
        kind, priority: of the workload.
        fresh: none of its tasks holds room.
    """

    queue: int
    shape: Shape
    step: tuple[int, ...]
    demand: Triple
    fixed_demand: Triple
    kind: Preemptibility
    priority: int
    fresh: bool

    @classmethod
    def of_row(cls, row: "WaitingRow") -> "Case":
        """What all jobs of a row ask."""
        shape, kind = row.shape, row.preemptible
        fixed = NONE if kind is Preemptibility.YES else shape.first
        return cls(
            row.queue, shape, shape.first_step, shape.first, fixed, kind, row.priority, fresh=True
        )

    @classmethod
    def of_job(cls, cycle: "Cycle", job: "Job", step: tuple[int, ...]) -> "Case":
        """What one job asks for its next step."""
        spec, demand = job.spec, cycle.demand(job, step)
        fixed = demand if cycle.is_fixed(job) else NONE
        fresh = not job.rows
        return cls(
            job.queue, job.shape, step, demand, fixed, spec.preemptible, spec.priority, fresh
        )

    @cached_property
    def needs(self) -> dict[int, int]:
        """Class -> how many tasks of it are looked for."""
        return needs(self.shape, self.step)

    def project(self, state: "Columns") -> str:
        """The name of its queue."""
        return state.queues.rule(self.queue).name
