"""The reasons of one decision and the order of service, made when somebody looks.

A decision costs nothing for them: what is asked about is looked into then, and jobs that look alike
share their facts.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from carrel_scheduler.core.cycle.user_usage import UserUsage
from carrel_scheduler.core.explaining.explain import Explainer
from carrel_scheduler.core.queues.order import ServiceOrder
from carrel_scheduler.core.queues.usage import QueueUsage
from carrel_scheduler.core.reasons import Reason, ReasonClass
from carrel_scheduler.core.resources import Triple
from carrel_scheduler.core.work.jobs import JobInfo

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.cycle.cycle import Cycle


class Reasons(Mapping[str, Reason]):
    """Reasons by uid of all that asks for capacity, also of what starts, grows or is gated.

    Read it before the state changes.
    """

    def __init__(self, cycle: "Cycle") -> None:
        self._cycle = cycle
        self._explainer = Explainer(cycle)
        self._ahead: dict[int, dict[str, tuple[int, int]]] = {}
        self._made: dict[str, Reason] = {}
        self._count: int | None = None

    @override
    def __getitem__(self, uid: str) -> Reason:
        found = self._made.get(uid)
        if found is None:
            job = self._cycle.state.jobs.by_uid.get(uid)
            if job is None or not _asks(self._cycle.state, job):
                raise KeyError(uid)
            found = self._made[uid] = self._make(job)
        return found

    @override
    def __iter__(self) -> Iterator[str]:
        return (job.spec.uid for job in self._jobs())

    @override
    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self._jobs())
        return self._count

    @override
    def __contains__(self, uid: object) -> bool:
        job = self._cycle.state.jobs.by_uid.get(uid) if isinstance(uid, str) else None
        return job is not None and _asks(self._cycle.state, job)

    def _make(self, job: JobInfo) -> Reason:
        reason = self._explainer.of(job)
        if reason.cls is ReasonClass.STARTING or job.rows:
            return reason
        ahead, passed = self._places(job.queue).get(job.spec.uid, (0, 0))
        usage = self._cycle.user_usage
        if passed and usage is not None:
            held, _ = usage.held(job.queue, job.spec.user)
            reason = replace(reason, passed_by=passed, user_gpus=held)
        return replace(reason, ahead=ahead) if ahead else reason

    def _places(self, queue: int) -> dict[str, tuple[int, int]]:
        """For each job that does not start, how many jobs of its queue are served before it.

        The second number is how many of them come before it only because their users hold less.
        """
        found = self._ahead.get(queue)
        if found is None:
            cycle = self._cycle
            mine = [job for job in _queue_jobs(cycle.state, queue) if not cycle.started(job)]
            found = {job.spec.uid: (place, 0) for place, job in enumerate(mine)}
            if cycle.user_usage is not None and cycle.user_usage.counts(queue):
                found = _with_passing(cycle.user_usage.in_turn(queue, mine))
            self._ahead[queue] = found
        return found

    def _jobs(self) -> Iterator[JobInfo]:
        state = self._cycle.state
        for row in state.waiting:
            yield from row.members.values()
        for uid in sorted(state.partial):
            yield state.partial[uid]
        for uid in sorted(state.gated):
            yield state.gated[uid]


def _with_passing(jobs: Sequence[JobInfo]) -> dict[str, tuple[int, int]]:
    """The place of each in this order, and how many before it were submitted after it."""
    found: dict[str, tuple[int, int]] = {}
    orders: list[tuple[int, float, str]] = []
    for place, job in enumerate(jobs):
        found[job.spec.uid] = place, len(orders) - bisect_left(orders, job.order)
        insort(orders, job.order)
    return found


def _asks(state: "Columns", job: JobInfo) -> bool:
    uid = job.spec.uid
    return job.waiting is not None or uid in state.partial or uid in state.gated


def _queue_jobs(state: "Columns", queue: int) -> list[JobInfo]:
    """The jobs of one queue that wait and hold nothing, in the order inside the queue."""
    waiting = state.waiting
    rows = np.flatnonzero((waiting.need > 0) & (waiting.queue == queue)).tolist()
    found = [job for number in rows for job in _members(state, number)]
    found += [job for job in state.partial.values() if job.queue == queue and not job.rows]
    return sorted(found, key=lambda job: job.order)


def _members(state: "Columns", number: int) -> list[JobInfo]:
    row = state.waiting.rows[number]
    return [] if row is None else list(row.members.values())


def service_order(state: "Columns", total: Triple) -> tuple[str, ...]:
    """The waiting uids in the order in which they would start if capacity came one by one.

    Each is counted as served before the next is chosen, so equal queues alternate.

    Args:
        state: before anything of the plan is carried out.
        total: what the cluster shares out.
    """
    queue_usage = QueueUsage(state.queues, state.division, total)
    lines: dict[int, list[JobInfo]] = {}
    for row in state.waiting:
        lines.setdefault(row.queue, []).extend(row.members.values())
    for job in state.partial.values():
        if not job.rows:
            lines.setdefault(job.queue, []).append(job)
    users = UserUsage(state) if any(state.queues.table.fair_users) else None
    for line, jobs in lines.items():
        jobs.sort(key=lambda job: job.order, reverse=True)
        if users is not None and users.counts(line):
            lines[line] = users.in_turn(line, jobs)[::-1]

    def head(leaf: int) -> Triple | None:
        line = lines[leaf]
        return line[-1].shape.first if line else None

    order: list[str] = []
    service = ServiceOrder(queue_usage, head, lines)
    while (leaf := service.pop()) is not None:
        job = lines[leaf].pop()
        queue_usage.add(leaf, job.shape.first)
        order.append(job.spec.uid)
        service.update(leaf)
    return tuple(order)
