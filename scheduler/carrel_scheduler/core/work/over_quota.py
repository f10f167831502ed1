"""The running work that is over the GPU quota of its queue.

A label that people see on a job and on the map, not a rule of eviction: who is evicted follows
from the budgets of a reclaim and the order of victims. It is computed queue by queue, for queues
that are asked about, and kept until work comes or goes or rules change.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.queues.queues import QueueColumns
from carrel_scheduler.core.queues.rules import RuleTable
from carrel_scheduler.core.requests import IN_GROUP
from carrel_scheduler.core.resources import UNLIMITED
from carrel_scheduler.core.work.jobs import JobInfo, JobTable
from carrel_scheduler.core.work.tasks import TaskColumns


class OverQuota:
    """The over-quota workloads of a state."""

    def __init__(self, jobs: JobTable, tasks: TaskColumns, nodes: NodeColumns) -> None:
        self._jobs, self._tasks, self._nodes = jobs, tasks, nodes
        self._as_of: tuple[int, int, RuleTable | None] = (-1, -1, None)
        self._by_queue: dict[int, frozenset[str]] = {}
        self._slots: Counts | None = None
        self._queues: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    def has(self, queues: QueueColumns, job: JobInfo) -> bool:
        """Whether a workload is over the quota of its queue.

        The queue's running workloads are ordered: non-preemptible first, higher priority first,
        earlier start first, terminating ones last. Those that reach beyond the quota in this order
        are over quota; those that lie within the queue's quotas in groups of nodes come first.
        """
        if not job.rows or queues.rule(job.queue).quota.gpu_milli == UNLIMITED:
            return False
        as_of = (queues.changes, self._nodes.version, queues.table)
        if self._as_of != as_of:
            self._as_of = as_of
            self._by_queue.clear()
            self._slots = None
        found = self._by_queue.get(job.queue)
        if found is None:
            found = self._by_queue[job.queue] = self._find(queues, job.queue)
        return job.spec.uid in found

    def _find(self, queues: QueueColumns, slot: int) -> frozenset[str]:
        quota, held = queues.rule(slot).quota.gpu_milli, 0
        if int(queues.used[slot, 0] + queues.releasing[slot, 0]) <= quota:
            return frozenset()
        beyond, ordered = [], sorted(self._members(slot), key=_order)
        covered = self._in_groups(ordered, dict(queues.rule(slot).group_quotas))
        for job in sorted(ordered, key=lambda job: job.slot not in covered):
            gpu = self._gpu_held(job)
            held += gpu
            if gpu and held > quota:
                beyond.append(job.spec.uid)
        return frozenset(beyond)

    def _in_groups(self, ordered: Sequence[JobInfo], left: dict[str, int]) -> set[int]:
        """Slots of the jobs that lie within quotas in groups; ``left``: these quotas."""
        covered = set[int]()
        for job in ordered if left else ():
            held = Counter[str]()
            for row in job.rows.values():
                place = self._tasks.footprint(row)
                held[self._group_of(place.node)] += place.amounts[0]
            if all(gpu <= left.get(group, 0) for group, gpu in held.items()):
                covered.add(job.slot)
                left |= {group: left.get(group, 0) - gpu for group, gpu in held.items()}
        return covered

    def _group_of(self, node: int) -> str:
        return dict(self._nodes.fact(node).labels).get(IN_GROUP, "")

    def _members(self, slot: int) -> list[JobInfo]:
        """The jobs of a queue that hold GPUs."""
        if self._slots is None:
            self._slots = self._tasks.job.take(np.flatnonzero(self._tasks.mask))
            self._queues = self._jobs.queue.take(self._slots)
        mine = self._slots.compress(self._queues == slot).tolist()
        return [self._jobs.at(job) for job in dict.fromkeys(mine)]

    def _gpu_held(self, job: JobInfo) -> int:
        """GPU thousandths that all tasks of the job hold, terminating ones included."""
        held = int(self._jobs.gpu[job.slot])
        for index in job.halted:
            held += self._tasks.footprint(job.rows[index]).amounts[0]
        return held


def _order(job: JobInfo) -> tuple[bool, bool, int, float, str]:
    spec = job.spec
    preemptible = spec.preemptible is not Preemptibility.NO
    return (bool(job.halted), preemptible, -spec.priority, job.started, spec.uid)
