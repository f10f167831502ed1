"""The order of victims: job by job for the sequential search, by cost for the vectorised one.

Inside a queue the order of victims is the reverse of the order of service: lower priority first,
then what is beyond its minimum, then what has its minimum. Of these what people see as over quota
goes before what they see as covered by the quota. Among equals goes first who loses the least work
since its last checkpoint (since its start, if it never reported one), then the younger.
Between queues the reverse order of service decides; work lost is compared only inside a queue, so
reporting checkpoints, or not reporting any, makes no project a better or worse victim.

Over arrays sums are compared across queues, so what a unit costs is its lost work, over what a GPU
of its queue loses in the mean: queues weigh the same, GPU by GPU, whether their work reports
checkpoints or not, and whether their jobs are large or small. A lower priority within its queue
outweighs any lost work; among a moderate number of units so does being shown as over quota.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.preemption.candidates import VictimTable
from carrel_scheduler.core.preemption.legality import ReclaimRequest, may_lose
from carrel_scheduler.core.preemption.search.model import Candidates
from carrel_scheduler.core.queues.order import VictimOrder, victim_key
from carrel_scheduler.core.queues.rules import RESOURCES
from carrel_scheduler.core.resources import MILLI, Triple, added
from carrel_scheduler.core.work.gang_steps import ReleasedTasks, shed_steps
from carrel_scheduler.core.work.jobs import JobInfo

MILLISECONDS = 1000
DESCENDING = bytes(range(255, -1, -1))
"""Bytes translated by this compare the other way round."""


@dataclass(frozen=True, slots=True)
class EvictionUnit:
    """Tasks of a victim that are evicted together.

    ``core``: nothing of it runs on. ``nodes``: where these tasks lie.
    """

    job: JobInfo
    indices: tuple[int, ...]
    amounts: Triple
    core: bool
    nodes: tuple[int, ...]

    @property
    def carries(self) -> bool:
        """Whether what its job gave before it may be of no use without it."""
        return self.core or len(self.indices) > 1


def lost_work(job: JobInfo, gpu_milli: int, now: float) -> int:
    """Work that stopping it loses, in GPU-milliseconds; work without GPUs counts as on one."""
    gpus = gpu_milli / MILLI if gpu_milli else 1.0
    return int(gpus * max(0.0, (now - job.since) * MILLISECONDS))


def who_may_give(reclaim: ReclaimRequest, victims: Iterable[JobInfo]) -> list[JobInfo]:
    """The jobs, of these, in whose queues a reclaim request may take anything.

    Of the others it never will: what queues have lost only grows while victims are taken.
    """
    known: dict[tuple[int, bool], bool] = {}
    found = []
    for job in victims:
        key = job.queue, not job.rows
        if key not in known:
            levels = reclaim.excess(job.queue, new=not job.rows)
            known[key] = bool(levels) and all(may_lose(left, lost) for _, left, lost in levels)
        if known[key]:
            found.append(job)
    return found


ALL_OF_ONE = (ReleasedTasks((0,), core=True),)
"""The steps of a workload of one task."""


class Victim:
    """A job that is evicted step by step."""

    __slots__ = ("_cycle", "_steps", "job", "left")

    def __init__(self, cycle: Cycle, job: JobInfo, *, core: bool) -> None:
        """``core``: also the tasks without which the job cannot run."""
        self._cycle, self.job = cycle, job
        keeps = not core or (job.spec.preemptible is Preemptibility.SURPLUS and not job.uncovered)
        safe = job.core
        steps: Iterable[ReleasedTasks]
        if job.shape.plain and job.shape.tasks == 1:
            steps = ALL_OF_ONE if cycle.holds(job, 0) else ()
            self.left = len(steps)
        else:
            states = cycle.states_of(job)
            steps = shed_steps(job.shape.structure, states)
            self.left = sum(len(state.running) for state in states)
        self._steps: Iterator[ReleasedTasks] = (
            s for s in steps if not (s.core and keeps) and safe.isdisjoint(s.tasks)
        )

    def next(self) -> EvictionUnit | None:
        """The next unit; ``None`` when there are no more."""
        shed = next(self._steps, None)
        if shed is None:
            return None
        place_of = self._cycle.moves.place_of
        self.left -= len(shed.tasks)
        if len(shed.tasks) == 1:
            place = place_of(self.job, shed.tasks[0])
            return EvictionUnit(self.job, shed.tasks, place.amounts, shed.core, (place.node,))
        places = [place_of(self.job, index) for index in shed.tasks]
        nodes = tuple(dict.fromkeys(place.node for place in places))
        held = added(place.amounts for place in places)
        return EvictionUnit(self.job, shed.tasks, held, shed.core, nodes)


Entry = tuple[tuple[int | float | bytes, ...], int, Victim, EvictionUnit]
"""Key, number, who gives, what."""


class OrderedVictims:
    """The victims of one request, in the order of eviction."""

    def __init__(
        self,
        cycle: Cycle,
        jobs: Iterable[JobInfo],
        protected: Callable[[JobInfo], bool],
    ) -> None:
        """``jobs``: the candidates; ``protected``: those that keep the tasks of their minimum."""
        self._cycle = cycle
        self._heaps: dict[int, list[Entry]] = {}
        self._count = 0
        for job in jobs:
            entry = self._entry(Victim(cycle, job, core=not protected(job)))
            if entry is not None:
                self._heaps.setdefault(job.queue, []).append(entry)
        for heap in self._heaps.values():
            heapq.heapify(heap)

    def units(
        self,
        legal: Callable[[EvictionUnit], bool],
        wholly: Callable[[EvictionUnit], bool] | None = None,
    ) -> Iterator[EvictionUnit]:
        """Units in order; what is yielded counts as given before the next one is looked for.

        Args:
            legal: whether a unit may be taken now; who may not is left out for good.
            wholly: whether all of a unit lies beyond what its queue keeps. Those that would take
                their queue below it come after the others of their queue and priority.
        """
        if len(self._heaps) == 1:  # there are no queues to compare
            (heap,) = self._heaps.values()
            while heap:
                yield from self._first_of(heap, legal, wholly)
            return
        order = VictimOrder(self._cycle.queue_usage, self._head, self._heaps)
        while (leaf := order.pop()) is not None:
            yield from self._first_of(self._heaps[leaf], legal, wholly)
            order.update(leaf)

    def _first_of(
        self,
        heap: list[Entry],
        legal: Callable[[EvictionUnit], bool],
        wholly: Callable[[EvictionUnit], bool] | None,
    ) -> Iterator[EvictionUnit]:
        """The first unit of a queue, if it may be taken now and its turn is not later."""
        key, number, victim, unit = heapq.heappop(heap)
        if not legal(unit):
            return
        if key[1] or wholly is None or wholly(unit):
            yield unit
            self._push(victim)
        else:
            later = (key[0], 1, *key[2:])
            heapq.heappush(heap, (later, number, victim, unit))

    def _head(self, leaf: int) -> Triple | None:
        heap = self._heaps.get(leaf)
        if not heap:
            return None
        return heap[0][3].amounts

    def _push(self, victim: Victim) -> None:
        """Enter the next unit of a victim."""
        entry = self._entry(victim)
        if entry is not None:
            heapq.heappush(self._heaps[victim.job.queue], entry)

    def _entry(self, victim: Victim) -> Entry | None:
        """The next unit of a victim, with its place in its queue."""
        before = victim.left
        unit = victim.next()
        if unit is None:
            return None
        job, spec = victim.job, victim.job.spec
        least = len(job.shape.first_step)
        stage = 2 if before > least else 1
        if job.rows:
            lost = lost_work(job, unit.amounts[0], self._cycle.now)
            kept = not self._cycle.state.over_quota.has(self._cycle.state.queues, job)
        else:  # it would only start in this cycle
            lost, kept = 0, False
        uid = spec.uid.encode(errors="surrogatepass").translate(DESCENDING)
        self._count += 1
        key = (spec.priority, 0, -stage, kept, lost, -spec.created_at, uid)
        return key, self._count, victim, unit


Priorities = npt.NDArray[np.signedinteger]
LOSS_BITS = 20
BELOW_BITS = LOSS_BITS + 4
LEVEL_BITS = BELOW_BITS + 4
MEAN = 1 << 12
"""The weight of one GPU that loses the mean of its queue."""
NEAR = 1 << 16
"""Priorities that lie so near to one another are told apart by counting."""
SHOWN = 100
"""Where at most so many jobs run, what is shown as over quota goes first; beyond, nobody follows
labels."""


def costed(table: VictimTable, plain: Candidates, excess: Counts | None = None) -> Candidates:
    """The victims with the loss of each unit, and its position in the order.

    ``plain``: the same without. ``excess`` (Q, 3): what may be taken of each queue; a unit that
    would take its queue below what it keeps weighs more than any that would not.
    """
    cost = _costs(table)
    if excess is not None:
        cost += _beyond(table, excess) << BELOW_BITS
    return replace(plain, cost=cost, order=_order(table))


def _beyond(table: VictimTable, excess: Counts) -> Counts:
    """(U,) 1 where a unit holds more than its queue may lose, of everything that it may."""
    queue = table.cycle.state.jobs.queue.take(table.slots())
    fits = np.zeros(len(table.first), np.bool_)
    for r in RESOURCES:
        left = excess[:, r].take(queue)
        if left.any():
            held = table.held(r)
            fits |= (held > 0) & (held <= left)
    return 1 - fits.astype(np.int64)


def _costs(table: VictimTable) -> Counts:
    """(U,) the costs; see the module."""
    jobs = table.cycle.state.jobs
    slots = table.slots()
    queue = jobs.queue.take(slots).astype(np.int64)
    priority = jobs.priority.take(slots).astype(np.int64)
    lost = np.maximum(table.cycle.now - jobs.since.take(slots), 0.0)
    gpus = table.held(0) / MILLI
    size = np.where(gpus > 0, gpus, 1.0)
    lost *= size
    held = np.maximum(np.bincount(queue, weights=size), 1e-9)
    mean = np.bincount(queue, weights=lost) / held
    part = lost / np.maximum(mean.take(queue), 1e-9)
    loss = np.minimum(part * MEAN, (1 << LOSS_BITS) - 1).astype(np.int64)
    levels = _levels(queue, priority)
    if len(table.cycle.state.holding) <= SHOWN:
        loss += _covered(table, slots) << LOSS_BITS
    return loss + (levels << LEVEL_BITS)


def _covered(table: VictimTable, slots: Counts) -> Counts:
    """(U,) 1 where a job is shown as covered by its quota while others of its queue are not."""
    state = table.cycle.state
    borrowed = [state.over_quota.has(state.queues, state.jobs.at(slot)) for slot in slots.tolist()]
    shown = np.array(borrowed, np.int64).reshape(-1)
    queue = state.jobs.queue.take(slots)
    some = np.bincount(queue, shown, minlength=1) > 0
    return (1 - shown) * some.take(queue)


def _order(table: VictimTable) -> Counts:
    """(U,) queues in the order of victims; in them lower priority, then the younger."""
    state, queue_usage = table.cycle.state, table.cycle.queue_usage
    slots = table.slots()
    queue, priority = state.jobs.queue.take(slots), state.jobs.priority.take(slots)
    present = np.flatnonzero(np.bincount(queue)).tolist()
    place = np.zeros(len(queue_usage.used), np.int64)
    for number, slot in enumerate(sorted(present, key=lambda slot: _queue_key(table.cycle, slot))):
        place[slot] = number
    ranked = np.argsort(slots, kind="stable") if (slots[1:] < slots[:-1]).any() else None
    created = -state.jobs.created.take(slots if ranked is None else slots.take(ranked))
    by_age = ascending(created)
    ranked = by_age if ranked is None else ranked.take(by_age)
    kinds, level = _kinds(priority)
    group = (place.take(queue) * len(kinds) + level).take(ranked)
    narrow = group.astype(np.uint16) if int(group.max(initial=0)) < 1 << 16 else group
    ranked = ranked.take(np.argsort(narrow, kind="stable"))
    order = np.empty(len(ranked), np.int64)
    order[ranked] = np.arange(len(ranked))
    return order


def _queue_key(cycle: Cycle, slot: int) -> tuple[int, ...]:
    """The place of a queue among victims, worked out once for what it holds."""
    known, used = cycle.places_of_victims, tuple(cycle.queue_usage.used[slot])
    found = known.get(slot)
    if found is None or found[0] != used:
        found = known[slot] = used, victim_key(cycle.queue_usage, slot)
    return found[1]


def _kinds(priority: Priorities) -> tuple[Priorities, Counts]:
    """The distinct priorities, ascending, and (U,) the index of each unit's."""
    if len(priority) and priority.min() == priority.max():
        return priority[:1], np.zeros(len(priority), np.int64)
    if len(priority) and int(priority.max()) - int(priority.min()) < NEAR:
        least = int(priority.min())
        place = priority.astype(np.int64) - least
        present = np.bincount(place) > 0
        return np.flatnonzero(present) + least, (present.cumsum() - 1).take(place)
    kinds, which = np.unique(priority, return_inverse=True)
    return kinds, which.astype(np.int64)


def _levels(queue: Counts, priority: Counts) -> Counts:
    """(U,) how many lower priorities there are among the units of the same queue."""
    kinds, which = _kinds(priority)
    if len(kinds) == 1:
        return which
    table = np.zeros((int(queue.max(initial=0)) + 1, len(kinds)), np.int64)
    table.ravel()[np.flatnonzero(np.bincount(queue.astype(np.int64) * len(kinds) + which))] = 1
    below = table.cumsum(axis=1) - table
    return np.asarray(below[queue, which])


FEW = 4096
"""The most victims that are compared."""
DIGIT = 16
SIGN = (1 << 63) - 1


def ascending(values: npt.NDArray[np.float64]) -> Counts:
    """Positions in ascending order of the values; equal values keep their order."""
    if len(values) <= FEW:
        return np.argsort(values, kind="stable")
    bits = (values + 0.0).view(np.int64)
    bits ^= (bits >> 63) & SIGN
    bits -= bits.min()
    keys, order = bits.view(np.uint64), np.zeros(0, np.int64)
    used = int(np.bitwise_or.reduce(keys))
    empty = max((used & -used).bit_length() - 1, 0)
    keys >>= np.uint64(empty)
    for shift in range(0, (used >> empty).bit_length() or 1, DIGIT):
        digits = (keys >> np.uint64(shift)).astype(np.uint16)
        if shift:
            order = order.take(np.argsort(digits.take(order), kind="stable"))
        else:
            order = np.argsort(digits, kind="stable")
    return order
