"""Which resource really keeps a workload waiting: the one that would have to change.

A resource is to blame when it could not be had even if nothing else were asked for, or when all
else could be had. What could be had is asked of the actions themselves, tried and undone: free
room, what may be taken back from other projects, what may be taken from lower priority.
"""

from dataclasses import replace

from carrel_scheduler.core.actions import preempt, reclaim
from carrel_scheduler.core.actions.bounds import Bounds
from carrel_scheduler.core.actions.pool import Pool
from carrel_scheduler.core.blame import asked_resources, asking, to_blame
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.workloads import Record, Shape


class Reach:
    """What a waiting workload could have after all actions of a cycle, by any right it has."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._pool: Pool | None = None
        self._bounds = Bounds(cycle)

    def scarce(self, record: Record) -> int:
        """The resource to blame for a workload that cannot be had room for."""
        return to_blame(record.shape, lambda shape: self.could_get(record, shape))

    def others_come_back(self, record: Record, scarce: int) -> bool:
        """Whether another resource that it lacks could be taken back, unlike the scarce one."""
        for other in asked_resources(record.shape):
            shape = asking(record.shape, [other])
            lacking = other != scarce and not self._is_free(shape)
            if lacking and self.could_get(record, shape):
                return True
        return False

    def could_get(self, record: Record, shape: Shape) -> bool:
        """Whether it would get room if it asked for this shape; its rights stay those it has."""
        if self._is_free(shape):
            return True
        if self._pool is None:
            self._pool = Pool(self._cycle)
        trial = replace(record, shape=shape)
        for find in (reclaim.find, preempt.find):
            victims = find(self._cycle, trial, self._pool, self._bounds)
            for victim in victims or ():
                self._cycle.keep(victim)
            if victims is not None:
                return True
        return False

    def _is_free(self, shape: Shape) -> bool:
        counts = self._cycle.room.counts(shape, self._cycle.eligible(shape[4]), soon=True)
        return int(counts.sum()) >= shape[3]
