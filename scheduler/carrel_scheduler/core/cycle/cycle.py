"""The state of one scheduling cycle: overlays, the moves on them, and questions about both.

Actions read the columns, try moves and leave the decided ones in the log; the state does not
change. Capacity rows belong to the state and follow the overlay during the cycle: nodes that
moves touched are marked and counted again, also when another cycle looked in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.cycle.group_quotas import GroupQuotas
from carrel_scheduler.core.cycle.group_usage import GroupUsage
from carrel_scheduler.core.cycle.moves import ManyEvicted, ManyReserved, Move, Moves
from carrel_scheduler.core.cycle.user_usage import UserUsage
from carrel_scheduler.core.devices.classes import GpuForm
from carrel_scheduler.core.devices.device_choice import (
    Choice,
    DeviceCapacity,
    Hardware,
    choose,
    hardware_of,
)
from carrel_scheduler.core.devices.preferred_devices import Preferences, choose_preferred
from carrel_scheduler.core.events import NodeSet, Preemptibility
from carrel_scheduler.core.layers import LARGEST, Bools, Counts, Footprint, Layer
from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from carrel_scheduler.core.queues.usage import LimitViolation, QueueUsage, QueueUsageColumns
from carrel_scheduler.core.resources import MILLI, NONE, Triple, added
from carrel_scheduler.core.scoring.chooser import NOWHERE
from carrel_scheduler.core.settings import Settings
from carrel_scheduler.core.work.gang_steps import LeafState, next_step, satisfied, stale_tasks
from carrel_scheduler.core.work.jobs import JobInfo, leaf_states, protected_members

FEW_MOVES = 256
SMALL = 60
SMALL_CLUSTER = 2000
"""The number of placed tasks up to which a cluster is looked at as a whole."""
MANY_ROWS = 1_000
"""Where more rows wait, a small cluster is looked at as a large one: so many ask in each cycle."""
MANY_TASKS = 32
"""A step of more tasks is worth looking at everybody."""


@dataclass(frozen=True, slots=True)
class FailedInCycle:
    """A search for victims that failed: the last move then, and the answer."""

    last: Move | ManyEvicted | ManyReserved | None
    plainly: bool
    not_found: bool


class Cycle:
    """The working state of one call of ``decide``.

    Attributes:
        asked: the workload that a question is about, if one is.
        time_asked: somebody asked what time it is, since this was last unset.
        queue_usage, moves: the overlay of the queues and the log.
        group_usage: what queues hold by group of nodes; ``None`` where no queue has a limit or a
            quota there.
        confined: slot of a job -> the only nodes, (N,), on which it may get places for now.
        user_usage: what users hold; ``None`` where no queue orders its work by it.
        starving: see ``starving``; ``None`` before the first look.
        failed_searches: searches of this cycle that failed, by what was asked.
        not_found: numbers of waiting rows whose search for victims ended at its limits.
        places_of_victims: queue -> what it held and its ``victim_key`` then.
    """

    def __init__(self, state: Columns, now: float, asked: str | None = None) -> None:
        """``asked``: the uid of the workload in a what-if question."""
        self.state = state
        self.free_capacity = FreeCapacity(state.nodes)
        self._seen = 0
        self._kept: dict[tuple[int, bool], tuple[int, Counts]] = {}
        state.capacity.forget_tried()
        self.asked = None if asked is None else state.job(asked)
        self._now, self.time_asked = now, False
        total, table = state.nodes.total(state.tasks.counted_on), state.queues.table
        self.queue_usage = QueueUsage(state.queues, state.division, total)
        self.queue_columns = QueueUsageColumns(self.queue_usage, state.queues)
        in_groups = any(table.group_limits) or any(table.group_quotas)
        self.group_usage = GroupUsage(state) if in_groups else None
        self.confined: dict[int, Bools] = {}
        self.user_usage = UserUsage(state) if any(table.fair_users) else None
        self.moves = Moves(state, self.free_capacity, self.queue_usage, self.group_usage)
        self.moves.user_usage = self.user_usage
        self.settings: Settings = state.settings
        self.not_found: set[int] = set()
        self.failed_searches: dict[tuple[object, ...], FailedInCycle] = {}
        self.starving: tuple[JobInfo, ...] | None = None
        self.places_of_victims: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._preemptible: dict[bytes, tuple[Counts, Counts]] = {}
        self._given: tuple[object, dict[int, Triple]] = (None, {})
        self._lowest: tuple[object, Counts | None] = (None, None)

    @property
    def now(self) -> float:
        """Epoch seconds."""
        self.time_asked = True
        return self._now

    # Jobs as the moves leave them

    def states_of(self, job: JobInfo) -> tuple[LeafState, ...]:
        """The states of the job's leaves, with the starts and evictions of this cycle."""
        uid, moves = job.spec.uid, self.moves
        placed = {**moves.started.get(uid, {}), **moves.reserved.get(uid, {})}
        return leaf_states(job, placed, moves.evicted_of(job) if job.rows else ())

    def holds(self, job: JobInfo, index: int) -> bool:
        """Whether a task has a place and is neither terminating nor evicted."""
        uid, moves = job.spec.uid, self.moves
        if index in moves.started.get(uid, ()) or index in moves.reserved.get(uid, ()):
            return True
        row = job.rows.get(index)
        return row is not None and index not in job.halted and not moves.evicted.item(row)

    def next_step(self, job: JobInfo) -> tuple[int, ...]:
        """Indices of the tasks to place next."""
        if job.waiting is not None and not self.answered(job):
            return job.shape.first_step
        step = next_step(job.shape.structure, self.states_of(job))
        return tuple(index for leaf in step for index in leaf)

    def answered(self, job: JobInfo) -> bool:
        """Whether the cycle starts or reserves capacity for some of the job's tasks."""
        uid = job.spec.uid
        moves = self.moves
        return uid in moves.started or uid in moves.reserved or uid in moves.reserved_many

    def started(self, job: JobInfo) -> bool:
        """Whether some of the job's tasks start in this cycle."""
        return job.spec.uid in self.moves.started

    def grows(self, job: JobInfo) -> bool:
        """Whether the job has its minimum, so that its pending tasks are surplus."""
        states = self.states_of(job)
        return satisfied(job.shape.structure, [state.there for state in states])

    def works(self, job: JobInfo, indices: Sequence[int]) -> bool:
        """Whether it has its minimum, and none of these tasks waits without effect for others."""
        states = self.states_of(job)
        if not satisfied(job.shape.structure, [state.there for state in states]):
            return False
        return set(indices).isdisjoint(stale_tasks(job.shape.structure, states))

    def stage(self, job: JobInfo) -> int:
        """0 below its minimum, 1 just at it, 2 above: who has less is served first."""
        if not job.shape.elastic:
            return 0
        states = self.states_of(job)
        there = [state.there for state in states]
        if not satisfied(job.shape.structure, there):
            return 0
        return 1 if sum(there) <= len(job.shape.first_step) else 2

    def is_fixed(self, job: JobInfo) -> bool:
        """Whether the tasks that it is given next may not be stopped for others later."""
        kind = job.spec.preemptible
        if kind is Preemptibility.YES:
            return False
        return kind is Preemptibility.NO or not (job.uncovered or self.grows(job))

    def is_protected(self, job: JobInfo, indices: Sequence[int]) -> bool:
        """Whether these running tasks count as non-preemptible."""
        kind = job.spec.preemptible
        if kind is Preemptibility.SURPLUS:
            return bool(set(indices) & protected_members(job))
        return kind is Preemptibility.NO

    @property
    def given(self) -> dict[int, Triple]:
        """The amounts that this cycle has given every queue, at all levels, by slot."""
        moves = self.moves
        if self._given[0] is not moves.last:
            by_leaf: dict[int, list[Triple]] = {}
            for places in (moves.started, moves.reserved):
                for uid, by_index in places.items():
                    if uid in self.state.reserved and places is moves.reserved:
                        continue
                    amounts = by_leaf.setdefault(self.state.jobs.get(uid).queue, [])
                    amounts += [place.amounts for place in by_index.values()]
            found: dict[int, list[Triple]] = {}
            for leaf, each in by_leaf.items():
                together = added(each)
                for slot in self.queue_usage.table.path[leaf]:
                    found.setdefault(slot, []).append(together)
            self._given = (moves.last, {slot: added(each) for slot, each in found.items()})
        return self._given[1]

    def waited_s(self, job: JobInfo) -> float:
        """Seconds for which the job has waited since its submission or last eviction."""
        return self.now - self._since(job)

    def within_share(self, job: JobInfo, indices: Sequence[int]) -> bool:
        """Whether the job's queue stays within its fair share with these tasks."""
        queue_usage = self.queue_usage
        return queue_usage.within(queue_usage.fair[job.queue], job.queue, self.demand(job, indices))

    def demand(self, job: JobInfo, indices: Sequence[int]) -> Triple:
        """The amounts of these tasks."""
        amounts = job.shape.amounts
        if len(indices) == len(amounts):
            return job.shape.total
        return added(amounts[index] for index in indices)

    def over_limit(self, job: JobInfo, indices: Sequence[int]) -> LimitViolation | None:
        """The limit or quota that keeps these tasks from starting, if there is one."""
        demand = self.demand(job, indices)
        fixed = demand if self.is_fixed(job) else NONE
        return self.queue_usage.over_limit(job.queue, demand, fixed)

    @property
    def group_quotas(self) -> GroupQuotas | None:
        """The quotas of queues in groups of nodes; ``None`` where there are none."""
        return None if self.group_usage is None else self.group_usage.quotas

    def limited_by_group(self, job: JobInfo) -> bool:
        """Whether limits or quotas in node groups may close nodes to the job's queue."""
        usage = self.group_usage
        return usage is not None and (
            job.slot in self.confined or usage.binds(job.queue, fixed=self.is_fixed(job))
        )

    def open_nodes(self, job: JobInfo, index: int) -> Bools | None:
        """(N,) nodes where limits and quotas in groups of nodes admit a task; ``None``: all."""
        if self.group_usage is None:
            return None
        gpu, only = job.shape.amounts[index][0], self.confined.get(job.slot)
        found = self.group_usage.open_nodes(job.queue, gpu, fixed=self.is_fixed(job))
        return found if only is None else only if found is None else found & only

    def within_group_limits(self, job: JobInfo, place: Footprint) -> bool:
        """Whether the queue of a job may hold this place too."""
        usage, only = self.group_usage, self.confined.get(job.slot)
        return usage is None or (
            (only is None or only.item(place.node))
            and usage.allows(job.queue, place, fixed=self.is_fixed(job))
        )

    # Preemptors and victims

    def open_singles(self) -> list[JobInfo]:
        """The jobs without a row that have pending tasks, also those that have just started.

        But none that has a reservation, and none that is evicted.
        """
        asking = dict(self.state.partial)
        for uid in self.moves.started:
            job = self.state.jobs.get(uid)
            if job.shape.elastic:
                asking[uid] = job
        reserved, evicted_of = self.moves.reserved, self.moves.evicted_of
        jobs = [asking[uid] for uid in sorted(asking) if uid not in reserved]
        return [job for job in jobs if not evicted_of(job)]

    def delayed(self, job: JobInfo, *, reclaiming: bool = False) -> bool:
        """Whether evictions for the job are still delayed; ``reclaiming``: in other queues."""
        delay = self._delay_s(job, reclaiming=reclaiming)
        return delay > 0 and self.now < self._since(job) + delay

    def delayed_until(self, job: JobInfo, *, reclaiming: bool = False) -> float:
        """The time until which evictions for the job are delayed."""
        return self._since(job) + self._delay_s(job, reclaiming=reclaiming)

    def _since(self, job: JobInfo) -> float:
        return max(job.spec.created_at, job.evicted_at or 0.0)

    def _delay_s(self, job: JobInfo, *, reclaiming: bool) -> float:
        delay = job.spec.preemption_delay_s
        if reclaiming and job.spec.preemptible is Preemptibility.YES:
            return max(delay, self.settings.reclaim_delay_s)
        return delay

    @property
    def asks(self) -> bool:
        """Whether anything that asks for capacity got none, or may still grow."""
        state, moves = self.state, self.moves
        given = (moves.started, moves.reserved, moves.reserved_many)
        if state.partial or state.waiting.count > sum(map(len, given)):
            return True
        jobs = [state.jobs.get(uid) for uid in {*chain(*given)}]
        whole = (job for job in jobs if job.waiting is not None and not job.shape.elastic)
        return state.waiting.count > sum(1 for _ in whole)

    @cached_property
    def late(self) -> Counts:
        """Rows of large work that has waited longer than its queue's reservation delay."""
        waiting, default = self.state.waiting, self.settings.reservation_delay_s
        rows = waiting.used() if default >= 0 else waiting.used()[:0]
        delay = self.queue_usage.table.reservation_delay_s(default).take(waiting.queue.take(rows))
        late = waiting.since.take(rows) + delay < self.now
        late &= (waiting.demand[0].take(rows) > MILLI) | (waiting.need.take(rows) > 1)
        return rows.compress(late)

    @property
    def has_victims(self) -> bool:
        """Whether any running or starting work may be evicted."""
        if self.state.tasks.victims:
            return True
        moves, get = self.moves, self.state.jobs.get
        new = chain(moves.started, moves.reserved, moves.reserved_many)
        return any(get(uid).spec.preemptible is not Preemptibility.NO for uid in new)

    @property
    def several_priorities(self) -> bool:
        """Whether work of several priorities in one queue may be evicted."""
        return any(len(counts) > 1 for counts in self.state.tasks.victims.values())

    @property
    def lowest(self) -> Counts:
        """(Q,) lowest priority of what may be stopped of a queue, or is to start there."""
        moves, known = self.moves, self._lowest
        found = known[1] if known[0] is moves.last else None
        if found is None:
            found = np.full(len(self.queue_usage.used), LARGEST, np.int64)
            for queue, counts in self.state.tasks.victims.items():
                found[queue] = min(counts)
            for uid in (*moves.started, *moves.reserved):
                job = self.state.jobs.get(uid)
                found[job.queue] = min(int(found[job.queue]), job.spec.priority)
            self._lowest = moves.last, found
        return found

    @property
    def is_small(self) -> bool:
        """Whether so few tasks may be stopped that all of them can be looked at."""
        return self.state.tasks.victims_in_all + len(self.moves.started) <= SMALL

    def looks_at_all(self, tasks: int) -> bool:
        """Whether a step of so many tasks is sought on all nodes."""
        if tasks > MANY_TASKS:
            return True
        few = self.state.tasks.count <= SMALL_CLUSTER
        return few and len(self.state.waiting.used()) <= MANY_ROWS

    def evictable(self) -> list[JobInfo]:
        """Jobs of which something may be stopped and that were left alone so far.

        Also those to which this cycle gave capacity: nothing starts that would be evicted at once.
        Reservations of earlier cycles are not taken back, nor those for which others are evicted.
        """
        moves, preemptors = self.moves, self.moves.preemptors()
        jobs = dict(self.state.holding)
        for uid in (*moves.started, *moves.reserved):
            jobs[uid] = self.state.jobs.get(uid)
        return [
            job
            for uid, job in jobs.items()
            if (job.evictable or uid not in self.state.holding)
            and job.spec.preemptible is not Preemptibility.NO
            and self.is_left_alone(job, preemptors)
        ]

    def is_left_alone(self, job: JobInfo, preemptors: set[str]) -> bool:
        """Whether nothing of a job is evicted, and it has no reservation of an earlier cycle.

        ``preemptors``: uids of those for whom others are evicted; they keep what they got.
        """
        uid = job.spec.uid
        return not (uid in self.state.reserved or uid in preemptors or self.moves.evicted_of(job))

    @cached_property
    def over_quota_queues(self) -> Bools:
        """(Q,) queues beyond what they keep against a reclaim, when this was first asked."""
        return np.asarray((self.queue_columns.used > self.queue_columns.kept).any(axis=1))

    def preemptible_on_nodes(self, giving: Bools) -> tuple[Counts, Counts]:
        """(N,) GPU thousandths and millicores that evictions in these queues, (Q,), free at most.

        As of the beginning of the cycle; what it has evicted since is counted once more in
        ``free_capacity``.
        """
        key = giving.tobytes()
        found = self._preemptible.get(key)
        if found is None:
            gpu, cpu = self.state.tasks.preemptible_usage.of(
                giving, len(self.state.nodes.schedulable)
            )
            found = self._preemptible[key] = (gpu, cpu)
        return found

    # Free capacity as the moves leave it

    def free_in_all(self) -> Triple:
        """The free capacity of all nodes together, including that of terminating tasks."""
        view = self.free_capacity.soon
        devices = int(view.devices.sum(dtype=np.int64))
        return devices, int(view.host[0].sum()), int(view.host[1].sum())

    def sync(self) -> None:
        """Bring the capacity rows up to date with the moves."""
        log, capacity = self.free_capacity.log, self.state.capacity
        if not capacity.sees(self.free_capacity.idle):
            self._seen = 0
        if self._seen < len(log):
            capacity.mark_tried(log[self._seen :])
            self._seen = len(log)
        elif capacity.follows(self.free_capacity.idle):
            return
        capacity.sync(self.free_capacity.idle)

    def counts(self, cls: int, *, soon: bool) -> Counts:
        """(N,) how many tasks of a class fit on each node, at once or soon."""
        if soon:
            return self.state.capacity.counts(self.free_capacity.soon, cls)
        self.sync()
        return self.state.capacity.column(cls).astype(np.int64)

    def counts_kept(self, cls: int, *, soon: bool) -> Counts:
        """``counts``, kept for the cycle and brought up to date. Do not change it."""
        log, view = (
            self.free_capacity.log,
            self.free_capacity.soon if soon else self.free_capacity.idle,
        )
        seen, found = self._kept.get((cls, soon), (0, None))
        if found is None or len(log) - seen > FEW_MOVES:
            found = self.state.capacity.counts(view, cls)
        elif seen < len(log):
            self.state.capacity.recount(found, view, cls, set(log[seen:]))
        self._kept[cls, soon] = len(log), found
        return found

    def footprint(self, cls: int, node: int, *, soon: bool, tasks: int = 1) -> Footprint | None:
        """The footprint of a task of this class on a node, or ``None`` where it does not fit."""
        state = self.state
        view = self.free_capacity.soon if soon else self.free_capacity.idle
        host = state.classes.host(cls)
        for row, amount in enumerate(host):
            if amount and amount > view.host.item(row, node):
                return None
        kind = state.classes.kinds[cls]
        counted = state.classes.request(cls).counted_milli
        if kind.form is GpuForm.NONE:
            return Footprint(node, (), 0, host, counted=counted)
        choice = self._devices_on(node, cls, view, soon=soon, tasks=tasks)
        if choice is None:
            return None
        return Footprint(node, choice.devices, choice.milli, host, choice.slots, counted)

    def _devices_on(
        self, node: int, cls: int, view: Layer, *, soon: bool, tasks: int
    ) -> Choice | None:
        """The devices of a node that a task of this class takes, or ``None``."""
        state, kind = self.state, self.state.classes.kinds[cls]
        fact, idle = state.nodes.fact(node), self.free_capacity.idle
        where = state.classes.request(cls).where
        valued = NOWHERE
        if not soon and kind.form is GpuForm.SHARE:
            valued = state.chooser.device(cls, view, node)
        hardware = self._hardware(node, fact)
        there = DeviceCapacity(view.devices[:, node], view.slots[:, node])
        now = DeviceCapacity(idle.devices[:, node], idle.slots[:, node]) if soon else None
        warm = state.warm.by_device(node, fact.devices) if fact.mig_model else ()
        if valued < 0 and not where.avoided_devices and where.device_types is None:
            return choose(kind, hardware, there, idle=now, warm=warm, tasks=tasks)
        preferences = Preferences.of(where, fact, valued)
        return choose_preferred(
            kind, hardware, there, preferences, idle=now, warm=warm, tasks=tasks
        )

    def _hardware(self, node: int, fact: NodeSet) -> Hardware:
        """``hardware_of`` a node, cached until the node changes."""
        known = self.state.cache.hardware.get(node)
        if known is None or known[0] is not fact:
            known = self.state.cache.hardware[node] = fact, hardware_of(fact)
        return known[1]

    def nodes_of(self, job: JobInfo, indices: Sequence[int]) -> Bools:
        """(N,) where tasks of a job run or are reserved, among ``indices`` of it."""
        mask = np.zeros(len(self.state.nodes.schedulable), np.bool_)
        uid, moves = job.spec.uid, self.moves
        for index in indices:
            row = job.rows.get(index)
            if row is not None and index not in job.halted and not moves.evicted[row]:
                mask[self.state.tasks.node[row]] = True
            for places in (moves.started.get(uid), moves.reserved.get(uid)):
                if places and index in places:
                    mask[places[index].node] = True
        return mask
