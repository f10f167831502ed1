"""Upper bounds of each resource that a waiting workload could reclaim or preempt.

Whose work may be taken follows from budgets (other queues), priority (its own queue), and both
together; of a queue the victims are counted in their order for as long as the request lets it be
taken from. It is a bound by sums over all nodes, so what it denies is proved, and what it allows
may still be too scattered.
"""

from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.group_quotas import excess_in_groups
from carrel_scheduler.core.preemption.legality import ReclaimRequest
from carrel_scheduler.core.resources import NONE, Triple

if TYPE_CHECKING:
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.work.jobs import WaitingRow

Key = tuple[object, ...]


class Reclaimable:
    """The amounts that evictions could free after everything that a cycle decided."""

    def __init__(self, cycle: "Cycle") -> None:
        self._cycle = cycle
        self._victims: Victims | None = None
        self._own: dict[tuple[int, int], tuple[Bools, Triple]] = {}
        self._known: dict[Key, Triple] = {}

    def takeable(self, asker: "Preemptor") -> Triple:
        """Upper bounds of each resource that could be freed for a preemptor."""
        victims, key = self._all(), (asker.queue, asker.priority)
        known = self._own.get(key)
        if known is None:
            mine = victims.of_own_queue(*key)
            known = self._own[key] = mine, victims.sums(mine)
        own, gone = known
        excess = self._excess(asker, gone)
        asked = tuple(bool(amount) for amount in asker.demand)
        whole: Key = (*key, asked, None if excess is None else excess.tobytes())
        found = self._known.get(whole)
        if found is None:
            chosen = own
            if excess is not None:
                chosen = own | victims.within(excess, np.array(asked, np.bool_))
            found = self._known[whole] = victims.sums(chosen)
        return found

    def _excess(self, asker: "Preemptor", gone: Triple) -> Counts | None:
        """(Q, 3) what may be taken of other queues; ``None`` where the request does not stand.

        A queue within its fair share is judged as if its own lower priority, which holds ``gone``,
        had left: both rules may be used together.
        """
        cycle, queue_usage = self._cycle, self._cycle.queue_usage
        combined = queue_usage.within(queue_usage.fair[asker.queue], asker.queue, NONE)
        out = gone if combined else NONE
        queue_usage.add(asker.queue, out, sign=-1)
        reclaim = ReclaimRequest(
            queue_usage,
            asker.queue,
            asker.demand,
            NONE if asker.preemptible else asker.demand,
            saturation_milli=cycle.settings.saturation_milli,
        )
        excess = reclaim.budgets().excess if reclaim.may else None
        queue_usage.add(asker.queue, out)
        in_groups = excess_in_groups(cycle, asker.queue, asker.demand)
        if excess is None or in_groups is None:
            return in_groups if excess is None else excess
        return np.maximum(excess, in_groups)

    def _all(self) -> "Victims":
        if self._victims is None:
            self._victims = Victims(self._cycle)
        return self._victims


class Preemptor:
    """The workload that needs capacity: all waiting jobs of a row, or one other job."""

    __slots__ = ("demand", "preemptible", "priority", "queue")

    def __init__(self, queue: int, priority: int, demand: Triple, *, preemptible: bool) -> None:
        self.queue, self.priority = queue, priority
        self.demand, self.preemptible = demand, preemptible

    @classmethod
    def of_row(cls, row: "WaitingRow", *, preemptible: bool) -> "Preemptor":
        """All jobs of a row."""
        return cls(row.queue, row.priority, row.shape.first, preemptible=preemptible)


class Victims:
    """The tasks that may be stopped and were not, queue by queue in the order of victims.

    Attributes:
        queue, priority: (V,); amounts: (3, V); before: (3, V) what those of the same queue that
            go first hold.
    """

    def __init__(self, cycle: "Cycle") -> None:
        state = cycle.state
        tasks, jobs = state.tasks, state.jobs
        rows = np.flatnonzero((tasks.victim >= 0) & ~cycle.moves.evicted)
        slots = tasks.job.take(rows)
        per_job = np.bincount(slots, minlength=len(jobs.queue))
        lost = np.maximum(cycle.now - jobs.since, 0.0) * per_job
        order = np.lexsort(
            (
                slots,
                -jobs.created.take(slots),
                lost.take(slots),
                jobs.priority.take(slots),
                jobs.queue.take(slots),
            )
        )
        rows, slots = rows.take(order), slots.take(order)
        self.amounts: Counts = np.vstack([tasks.gpu.take(rows)[None], tasks.host.take(rows, 1)])
        self.queue: Counts = jobs.queue.take(slots).astype(np.int64)
        self.priority = tasks.priority.take(rows)
        self.before: Counts = self._running_sums()

    def of_own_queue(self, queue: int, priority: int) -> Bools:
        """(V,) the victims of lower priority in the same queue."""
        found: Bools = (self.queue == queue) & (self.priority < priority)
        return found

    def within(self, excess: Counts, asked: Bools) -> Bools:
        """(V,) those that come before what may be taken of their queue is used up.

        Args:
            excess: (Q, 3) what may be taken of each queue.
            asked: (3,) the resources that the request asks for.
        """
        left = excess.T.take(self.queue, 1)
        rows = (self.before < left) & asked[:, None]
        found: Bools = rows[0] | rows[1] | rows[2]
        return found

    def sums(self, chosen: Bools) -> Triple:
        """The amounts that these victims hold together."""
        gpu, cpu, memory = (self.amounts * chosen).sum(axis=1).tolist()
        return gpu, cpu, memory

    def _running_sums(self) -> Counts:
        if not len(self.queue):
            return self.amounts.copy()
        sums = self.amounts.cumsum(axis=1) - self.amounts
        starts = np.flatnonzero(np.diff(self.queue, prepend=-1))
        sizes = np.diff(starts, append=len(self.queue))
        first: Counts = sums - np.repeat(sums.take(starts, 1), sizes, axis=1)
        return first
