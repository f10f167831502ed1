"""Recounts from single tasks and jobs, to check what is kept and what is decided.

Nothing here reads a sum that deciding relies on: capacity, quotas and minima are counted again from
the places of tasks, from reservations and from a plan's decisions. Slow and plain on purpose.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.events import Outcome, Preemptibility, QueueSet
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.resources import Triple
from carrel_scheduler.core.work.jobs import JobInfo, minimum_of


@dataclass(frozen=True, slots=True)
class TaskAllocation:
    """A task that holds an allocation."""

    job: JobInfo
    index: int
    row: int
    place: Footprint

    @property
    def stopping(self) -> bool:
        """Whether the task is terminating."""
        return self.index in self.job.halted

    @property
    def stuck(self) -> bool:
        """Whether the task is stuck: it has not ended in time after its stop."""
        return self.index in self.job.stuck

    @property
    def name(self) -> str:
        """The task's name in messages."""
        return f"{self.job.uid}[{self.index}]"


def jobs_of(state: Columns) -> list[JobInfo]:
    """All jobs, by uid."""
    return [state.jobs.by_uid[uid] for uid in sorted(state.jobs.by_uid)]


def held_by(state: Columns, job: JobInfo) -> list[TaskAllocation]:
    """The tasks of a job that hold allocations."""
    return [
        TaskAllocation(job, index, row, state.tasks.footprint(row))
        for index, row in sorted(job.rows.items())
    ]


def all_held(state: Columns) -> list[TaskAllocation]:
    """All tasks that hold allocations."""
    return [held for job in jobs_of(state) for held in held_by(state, job)]


def path_names(state: Columns, slot: int) -> Iterator[QueueSet]:
    """The rules from a queue up to the top, found by name."""
    rule: QueueSet | None = state.queues.rule(slot)
    while rule is not None:
        yield rule
        rule = state.queues.rule(state.queues.slots[rule.parent]) if rule.parent else None


class Uses:
    """Amounts by queue name, each counted in every queue above too."""

    def __init__(self, state: Columns) -> None:
        self._state = state
        self._paths: dict[int, tuple[str, ...]] = {}
        self.of: dict[str, list[int]] = {name: [0, 0, 0] for name in state.queues.slots}

    def add(self, leaf: int, amounts: Triple, sign: int = 1) -> None:
        """Count amounts of a leaf's work in, or out."""
        for name in self.path(leaf):
            mine = self.of[name]
            for r in range(3):
                mine[r] += sign * amounts[r]

    def path(self, leaf: int) -> tuple[str, ...]:
        """Names from a leaf up."""
        if leaf not in self._paths:
            self._paths[leaf] = tuple(rule.name for rule in path_names(self._state, leaf))
        return self._paths[leaf]


def met(group: Group, there: Iterable[bool]) -> bool:
    """Whether a gang tree has its minima; ``there`` marks the tasks that count."""
    return _met(group, iter(there))


def _met(group: Group, there: Iterator[bool]) -> bool:
    if group.is_leaf:
        return sum(next(there) for _ in group.requests) >= group.least
    return sum([_met(child, there) for child in group.groups]) >= group.least


def below_minimum(group: Group, there: Iterable[bool]) -> bool:
    """Whether some tasks are there although a group that they belong to lacks its minimum."""
    flags = list(there)
    if any(flags) and not met(group, flags):
        return True
    begin = 0
    for child in group.groups:
        size = tasks_in(child)
        if below_minimum(child, flags[begin : begin + size]):
            return True
        begin += size
    return False


def tasks_in(group: Group) -> int:
    """The number of tasks of a tree."""
    return len(group.requests) if group.is_leaf else sum(map(tasks_in, group.groups))


def counting(job: JobInfo, started: Iterable[int] = (), stopped: Iterable[int] = ()) -> list[bool]:
    """For each task whether it counts towards the minima: running, or succeeded."""
    out, on, off = job.out or {}, set(started), set(stopped)
    return [
        i in on
        or (i in job.rows and i not in job.halted and i not in off)
        or out.get(i) is Outcome.SUCCEEDED
        for i in range(job.shape.tasks)
    ]


def core_of(
    job: JobInfo, started: Iterable[int] = (), stopped: Iterable[int] = ()
) -> frozenset[int]:
    """Indices of running tasks that count as non-preemptible.

    With ``started`` and ``stopped``, by a plan: what is left of the core, or the minimum that the
    plan fills.
    """
    on, off = set(started), set(stopped)
    if job.spec.preemptible is Preemptibility.YES:
        return frozenset()
    if job.spec.preemptible is Preemptibility.NO or not job.shape.elastic:
        return frozenset({i for i in job.running() if i not in off} | on)
    if not on or job.uncovered or met(job.shape.group, counting(job, (), off)):
        return job.core - off
    return minimum_of(job, on, off)
