"""Which running work lies beyond its queue's GPU quota: a name for it, not a rule of eviction.

Who gives way is decided by claims and by the order of victims; this is the label that people see on
a job and on the map. It is worked out queue by queue, for those that are asked about, and kept
until work comes or goes or rules change.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.resources import UNLIMITED

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.queues.rules import RuleTable
    from carrel_scheduler.core.work.jobs import Job


class Borrowed:
    """The borrowed work of a state as it is now."""

    def __init__(self) -> None:
        self._as_of: tuple[int, RuleTable | None] = (-1, None)
        self._by_queue: dict[int, frozenset[str]] = {}
        self._slots: Counts | None = None
        self._queues: npt.NDArray[np.int32] = np.zeros(0, np.int32)

    def has(self, state: "Columns", job: "Job") -> bool:
        """Whether a workload lies beyond the quota of its queue.

        The queue's running workloads stand in the order non-preemptible first, higher priority
        first, earlier start first, those told to stop last; those that reach beyond the quota in
        this order are borrowed.
        """
        if not job.rows or state.queues.rule(job.queue).quota.gpu_milli == UNLIMITED:
            return False
        as_of = (state.queues.changes, state.queues.table)
        if self._as_of != as_of:
            self._as_of = as_of
            self._by_queue.clear()
            self._slots = None
        found = self._by_queue.get(job.queue)
        if found is None:
            found = self._by_queue[job.queue] = self._look(state, job.queue)
        return job.spec.uid in found

    def _look(self, state: "Columns", slot: int) -> frozenset[str]:
        quota, held = state.queues.rule(slot).quota.gpu_milli, 0
        if int(state.queues.used[slot, 0] + state.queues.releasing[slot, 0]) <= quota:
            return frozenset()
        beyond = []
        for job in sorted(self._members(state, slot), key=_most_rightful_first):
            gpu = gpu_held(state, job)
            held += gpu
            if gpu and held > quota:
                beyond.append(job.spec.uid)
        return frozenset(beyond)

    def _members(self, state: "Columns", slot: int) -> list["Job"]:
        """The jobs of a queue that hold GPUs."""
        if self._slots is None:
            self._slots = state.tasks.job.take(np.flatnonzero(state.tasks.mask))
            self._queues = state.jobs.queue.take(self._slots)
        mine = self._slots.compress(self._queues == slot).tolist()
        return [state.jobs.at(job) for job in dict.fromkeys(mine)]


def gpu_held(state: "Columns", job: "Job") -> int:
    """GPU thousandths of all its tasks that hold room, those told to stop included."""
    held = int(state.jobs.gpu[job.slot])
    for index in job.halted:
        held += state.tasks.footprint(job.rows[index]).amounts[0]
    return held


def _most_rightful_first(job: "Job") -> tuple[bool, bool, int, float, str]:
    spec = job.spec
    may_stop = spec.preemptible is not Preemptibility.NO
    return (bool(job.halted), may_stop, -spec.priority, job.started, spec.uid)
