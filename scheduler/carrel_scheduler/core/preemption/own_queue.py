"""Victims of lower priority in a preemptor's own queue, beside those of its reclaim request.

What leaves the preemptor's queue is counted out of it, so the request is allowed where the queue
would otherwise end beyond its fair share, and may take more where its queues then stay within their
quotas. All of that work lies in one queue, so the budgets follow from its sum alone; more of it
never gives smaller ones.

How much has to leave is known only once the places are found, since victims may be of the own queue
as well: those who left and whom neither the request nor its places need stay after all (``spare``).
Their places must not have been given to others meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from msgspec.structs import replace

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import TAKEN, Cause, ManyEvicted, Move
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.layers import Counts, Footprint
from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from carrel_scheduler.core.preemption.legality import (
    Budgets,
    ReclaimRequest,
    preempt_protects_s,
)
from carrel_scheduler.core.preemption.priority_guarantees import PriorityGuarantees
from carrel_scheduler.core.preemption.victim_order import EvictionUnit, OrderedVictims
from carrel_scheduler.core.queues.rules import NO_BOUND, RESOURCES
from carrel_scheduler.core.queues.usage import QueueUsage
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import NONE, Triple, added
from carrel_scheduler.core.work.jobs import JobInfo


class OwnQueue:
    """The usage of the preemptor's queue before any eviction.

    Attributes:
        cycle, preemptor, step: who asks, and for which tasks.
        demand: what that is in all.
        most: what may leave its queue at most; minimum run times are not looked at.
    """

    def __init__(self, cycle: Cycle, preemptor: JobInfo, step: tuple[int, ...]) -> None:
        """Take the present usage."""
        self.cycle, self.preemptor, self.step = cycle, preemptor, step
        self.demand = cycle.demand(preemptor, step)
        self._rows = _lower(cycle, preemptor)
        self._new = _given_now(cycle, preemptor)
        self.most = self._most()
        self._found: list[EvictionUnit] = []
        self._further: Iterator[EvictionUnit] | None = None
        self._before, self._given = cycle.queue_usage.copy(), cycle.given
        self._kept = PriorityGuarantees(cycle) if cycle.several_priorities else None
        self._known: dict[Triple, tuple[ReclaimRequest, Budgets | None]] = {}
        self._budgets: dict[tuple[object, ...], Budgets] = {}

    def _units(self) -> Iterator[EvictionUnit]:
        """The units that may be evicted from the preemptor's queue, in the order of victims."""
        cycle, queue = self.cycle, self.preemptor.queue
        jobs, preemptors = cycle.state.jobs, cycle.moves.preemptors()
        slots = np.unique(cycle.state.tasks.job.take(self._rows)).tolist()
        found = {slot: jobs.at(slot) for slot in slots} | {job.slot: job for job in self._new}
        lower = [job for job in found.values() if cycle.is_left_alone(job, preemptors)]
        least = preempt_protects_s(cycle.queue_usage.table, queue, cycle.settings.min_runtime_s)
        giving = OrderedVictims(cycle, lower, lambda job: job.started + least > cycle.now)
        return giving.units(lambda _: True)

    def _first(self, most: int) -> list[EvictionUnit]:
        """The first units that may be evicted, so many of them; fewer, if there are no more."""
        if self._further is None:
            self._further = self._units()
        self._found += islice(self._further, max(0, most - len(self._found)))
        return self._found[:most]

    @property
    def gone(self) -> Triple:
        """The amounts that left its queue since, once the preemptor has got what it asks for."""
        slot, demand = self.preemptor.queue, self.demand
        used, now = self._before.used[slot], self.cycle.queue_usage.used[slot]
        gpu, cpu, memory = (used[r] + demand[r] - now[r] for r in RESOURCES)
        return gpu, cpu, memory

    def reclaim(self, gone: Triple) -> ReclaimRequest:
        """The request, had its queue had so much less; it counts only what ``take`` tells it."""
        queue_usage = self._before.copy()
        queue_usage.add(self.preemptor.queue, gone, sign=-1)
        return self._request(queue_usage)

    def _request(self, queue_usage: QueueUsage) -> ReclaimRequest:
        cycle, preemptor = self.cycle, self.preemptor
        return ReclaimRequest(
            queue_usage,
            preemptor.queue,
            self.demand,
            self.demand if cycle.is_fixed(preemptor) else NONE,
            saturation_milli=cycle.settings.saturation_milli,
            given=self._given,
            priorities=self._kept,
        )

    def budgets(self, gone: Triple) -> Budgets | None:
        """The budgets of other queues once so much has left; ``None``: the request is refused."""
        return self.entitled(gone)[1]

    def entitled(self, gone: Triple) -> tuple[ReclaimRequest, Budgets | None]:
        """The reclaim request (read only) and its budgets, after ``gone`` has left the queue."""
        known = self._known.get(gone)
        if known is None:
            reclaim = self._request(self._before.without(self.preemptor.queue, gone))
            budgets = None
            if reclaim.may:
                standing = self._standing(gone)
                budgets = self._budgets.get(standing)
                if budgets is None:
                    budgets = self._budgets[standing] = reclaim.budgets()
            known = self._known[gone] = reclaim, budgets
        return known

    def _standing(self, gone: Triple) -> tuple[object, ...]:
        """The part of the state that budgets depend on: which queues are within quota, and how far.

        What other queues hold is not changed by what leaves its own.
        """
        before, found = self._before, list[object]()
        more = [self.demand[r] - gone[r] for r in RESOURCES]
        for slot in before.table.path[self.preemptor.queue]:
            found.append(before.within(before.quota[slot], slot, more))
            used, fair = before.used[slot], before.fair[slot]
            found += [max(used[r] + more[r] - fair[r], 0) for r in RESOURCES]
        return tuple(found)

    def gives(self, gone: Triple, budgets: Budgets | None) -> bool:
        """Whether at least so much may be taken of others once ``gone`` has left."""
        found = self.budgets(gone)
        if found is None or budgets is None:
            return False
        return found is budgets or bool(
            (found.excess >= budgets.excess).all() and (found.most >= budgets.most).all()
        )

    def least(self, enough: Callable[[Triple], bool]) -> tuple[EvictionUnit, ...]:
        """The fewest units, in order, whose sum is enough; all of them, if that is none."""
        low, high = 0, 1
        while len(some := self._first(high)) == high and not enough(sum_of(some)):
            low, high = high + 1, 2 * high
        high = len(some)
        while low < high:
            middle = (low + high) // 2
            if enough(sum_of(some[:middle])):
                high = middle
            else:
                low = middle + 1
        return tuple(some[:low])

    def causes(self, gone: Triple) -> tuple[Cause, Cause]:
        """The causes of evictions in other queues, and in the preemptor's own."""
        leaf, demand = self.preemptor.queue, self.demand
        used, quota = self._before.used[leaf], self._before.quota[leaf]
        within = all(used[r] - gone[r] + demand[r] <= quota[r] for r in RESOURCES)
        return Cause(Token.RECLAIMED, self.preemptor, within), Cause(
            Token.PREEMPTED, self.preemptor
        )

    def _most(self) -> Triple:
        tasks, rows = self.cycle.state.tasks, self._rows
        gpu, (cpu, memory) = tasks.gpu.take(rows), tasks.host[:2].take(rows, 1).sum(axis=1).tolist()
        return added([(int(gpu.sum()), cpu, memory), *(job.shape.total for job in self._new)])


def sum_of(units: Iterable[EvictionUnit]) -> Triple:
    """The amounts that units hold together."""
    return added(unit.amounts for unit in units)


def reaches_others(budgets: Budgets) -> bool:
    """Whether anything may be taken of any other queue."""
    return bool(((budgets.excess > 0) & (budgets.excess < NO_BOUND)).any())


def _lower(cycle: Cycle, preemptor: JobInfo) -> Counts:
    """Rows of the tasks of lower priority in the preemptor's queue that may be stopped."""
    tasks = cycle.state.tasks
    mine = (tasks.victim == preemptor.queue) & (tasks.priority < preemptor.spec.priority)
    return np.flatnonzero(mine & ~cycle.moves.evicted)


def _given_now(cycle: Cycle, preemptor: JobInfo) -> list[JobInfo]:
    """Preemptible jobs of lower priority in the queue that start in this cycle."""
    jobs = map(cycle.state.jobs.get, sorted({*cycle.moves.started, *cycle.moves.reserved}))
    return [
        job
        for job in jobs
        if job.queue == preemptor.queue
        and job.spec.priority < preemptor.spec.priority
        and job.spec.preemptible is not Preemptibility.NO
    ]


Overdrawn = list[int]
"""The amounts by which the places of a unit are overcommitted."""


def overcommitted(own: OwnQueue, leaving: Sequence[EvictionUnit]) -> list[Overdrawn]:
    """The amounts by which the places of each unit are overcommitted before it is evicted."""
    return [own.cycle.free_capacity.overdrawn(_places(own, unit)) for unit in leaving]


def others_lose(own: OwnQueue, mark: int) -> bool:
    """Whether another queue has lost anything since ``mark``; only then budgets matter."""
    queue = own.preemptor.queue
    for move in own.cycle.moves.log[mark:]:
        if isinstance(move, ManyEvicted):
            if any(leaf != queue for leaf, _ in move.sums):
                return True
        elif isinstance(move, Move) and move.kind in TAKEN and move.job.queue != queue:
            return True
    return False


def spare(
    own: OwnQueue,
    leaving: Sequence[EvictionUnit],
    before: Sequence[Overdrawn],
    budgets: Budgets | None,
) -> None:
    """Spare evicted units that neither the request nor its places need, the last taken first.

    Of a job that gave in several steps the earlier ones stay only if the later ones do: what runs
    on must be whole.

    Args:
        own: the preemptor.
        leaving: who left.
        before: their ``overcommitted``.
        budgets: those that were used; ``None`` where nothing was taken of other queues.
    """
    needed = set[int]()
    for unit, was in zip(reversed(leaving), reversed(before), strict=True):
        slot = unit.job.slot
        if slot in needed or not _stays(own, unit, was, budgets):
            needed.add(slot)


def _stays(own: OwnQueue, unit: EvictionUnit, before: Overdrawn, budgets: Budgets | None) -> bool:
    """Reserve the places of a unit for the unit itself again, if its queue may hold them."""
    cycle, job, gone = own.cycle, unit.job, own.gone
    less = (gone[0] - unit.amounts[0], gone[1] - unit.amounts[1], gone[2] - unit.amounts[2])
    places = _places(own, unit)
    may = cycle.over_limit(job, unit.indices) is None and (
        budgets is None or own.gives(less, budgets)
    )
    if not may or len(places) < len(unit.indices) or not _has_slots(cycle.free_capacity, places):
        return False
    mark = cycle.moves.mark()
    for index, place in zip(unit.indices, places, strict=True):
        if not cycle.within_group_limits(job, place):
            cycle.moves.rollback(mark)
            return False
        cycle.moves.reserve(job, index, place, fixed=False)
    after = cycle.free_capacity.overdrawn(places)
    if any(now > then for now, then in zip(after, before, strict=True)):
        cycle.moves.rollback(mark)
        return False
    return True


def _places(own: OwnQueue, unit: EvictionUnit) -> list[Footprint]:
    """The places of the unit's running tasks."""
    rows = unit.job.rows
    tasks = own.cycle.state.tasks
    return [tasks.footprint(rows[index]) for index in unit.indices if index in rows]


def _has_slots(capacity: FreeCapacity, places: Sequence[Footprint]) -> bool:
    """Whether the nodes of these places take work, and their memory slots are free."""
    bare = [replace(place, share=0, host=()) for place in places]
    return capacity.has(bare, soon=True)
