"""Kueue's generator files: which queues there are, and what is submitted to them when.

A cohort of the file is only a set of queues here: all lend to all, as projects do. Each set of
workloads of each queue is created one by one, an interval apart.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml


class WorkloadClass(msgspec.Struct, frozen=True, rename="camel"):
    """What one workload asks for; ``request`` in units of a queue's quota."""

    class_name: str
    runtime_ms: int
    priority: int
    request: int


class WorkloadSet(msgspec.Struct, frozen=True, rename="camel"):
    """``count`` times all of ``workloads``."""

    count: int
    creation_interval_ms: int
    workloads: list[WorkloadClass]


class QueueSet(msgspec.Struct, frozen=True, rename="camel"):
    """``count`` equal queues; one may borrow ``borrowing_limit`` beyond its quota."""

    class_name: str
    count: int
    nominal_quota: int
    borrowing_limit: int
    workloads_sets: list[WorkloadSet]


class Cohort(msgspec.Struct, frozen=True, rename="camel"):
    """``count`` times the same sets of queues."""

    class_name: str
    count: int
    queues_sets: list[QueueSet]


class Queue(msgspec.Struct, frozen=True):
    """One queue, which is a project with us."""

    name: str
    quota: int
    limit: int


class Arrival(msgspec.Struct, frozen=True, order=True):
    """One workload that comes ``at`` seconds after the beginning."""

    at: float
    name: str
    queue: str
    kind: WorkloadClass


class Generator:
    """A file of Kueue's; raises ``msgspec.ValidationError`` for one that is something else."""

    def __init__(self, path: Path) -> None:
        found: Any = yaml.safe_load(path.read_text())
        cohorts = msgspec.convert(found["cohorts"], list[Cohort])
        sets = [queues for cohort in cohorts for queues in cohort.queues_sets * cohort.count]
        self.queues: list[Queue] = []
        self.arrivals: list[Arrival] = []
        for queues in sets:
            for _ in range(queues.count):
                self._add(queues)
        self.arrivals.sort()

    def _add(self, queues: QueueSet) -> None:
        name = f"queue-{len(self.queues)}"
        limit = queues.nominal_quota + queues.borrowing_limit
        self.queues.append(Queue(name, queues.nominal_quota, limit))
        self.arrivals += _arrivals(name, queues)

    @property
    def capacity(self) -> int:
        """Units of all queues together."""
        return sum(queue.quota for queue in self.queues)

    @property
    def ideal_seconds(self) -> float:
        """A lower bound: all work over all capacity, or the end of the last arrival."""
        work = sum(one.kind.request * one.kind.runtime_ms / 1000 for one in self.arrivals)
        last = max(one.at + one.kind.runtime_ms / 1000 for one in self.arrivals)
        return max(work / self.capacity, last)


def _arrivals(queue: str, queues: QueueSet) -> Iterator[Arrival]:
    for place, some in enumerate(queues.workloads_sets):
        for number in range(some.count):
            at = number * some.creation_interval_ms / 1000
            for kind in some.workloads:
                yield Arrival(at, f"{kind.class_name}-{place}-{number}", queue, kind)
