"""Those who may give way, as arrays: what ``clearing`` searches when there are many.

Units are whole jobs; of elastic jobs only their surplus members stand here, one by one. What a unit
costs is its lost work, relative to the mean of its queue: within a queue those who lose least go
first, and a queue as a whole weighs the same whether its work reports checkpoints or not. A lower
priority within its queue outweighs any lost work; among a moderate number of units so does being
shown as borrowed.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.clearing.claims import Ground, Victims
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.jobs import Job
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.members import leaf_states
from carrel_scheduler.core.order import victim_key
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.sorting import ascending
from carrel_scheduler.core.steps import shed_steps

Times = npt.NDArray[np.float64]
Priorities = npt.NDArray[np.signedinteger]
LOSS_BITS = 20
BELOW_BITS = LOSS_BITS + 4
LEVEL_BITS = BELOW_BITS + 4
MEAN = 1 << 12
"""What a loss of its queue's mean counts as."""
NEAR = 1 << 16
"""Priorities that lie so near to one another are told apart by counting."""
SHOWN = 500
"""Where at most so many jobs run, what is shown as borrowed goes first; beyond, nobody follows
labels."""


@dataclass(frozen=True, slots=True)
class VictimTable:
    """Rows of tasks that may be stopped, and the units in which they go.

    Attributes:
        rows: (V,) rows of the task columns.
        job: (V,) their jobs' slots.
        unit: (V,) index of the unit.
        first: (U,) position in ``rows`` of a task of each unit.
        left_out: some jobs have more to give than stands here.
        nodes: (K,) slots of the only nodes that were looked at; ``None``: all.
    """

    cycle: Cycle
    rows: Counts
    job: Counts
    unit: Counts
    first: Counts
    left_out: bool
    nodes: Counts | None = None

    def plain(self) -> Victims:
        """Without costs: every unit like the other."""
        zeros = np.zeros(len(self.first), np.int64)
        return self._victims(zeros, np.arange(len(self.first)))

    def costed(self, plain: Victims, excess: Counts | None = None) -> Victims:
        """With what each unit loses, and its place in the order of victims.

        ``plain``: the same without. ``excess`` (Q, 3): what may be taken of each queue; a unit that
        would take its queue below what it keeps weighs more than any that would not.
        """
        cost = self._costs()
        if excess is not None:
            cost += self._beyond(excess) << BELOW_BITS
        return replace(plain, cost=cost, order=self._order())

    def _beyond(self, excess: Counts) -> Counts:
        """(U,) 1 where a unit holds more than its queue may lose, of everything that it may."""
        tasks, rows = self.cycle.state.tasks, self.rows
        gpu = tasks.share.take(rows) * np.bitwise_count(tasks.mask.take(rows)).astype(np.int64)
        units = len(self.first)
        left = excess.take(self.cycle.state.jobs.queue.take(self.job.take(self.first)), 0)
        fits = np.zeros(units, np.bool_)
        for r, column in enumerate((gpu, tasks.host[0].take(rows), tasks.host[1].take(rows))):
            held = np.bincount(self.unit, column, minlength=units).astype(np.int64)
            fits |= (held > 0) & (held <= left[:, r])
        return 1 - fits.astype(np.int64)

    def jobs(self) -> list[Job]:
        """The workloads, those to which this cycle gave room included."""
        state, moves = self.cycle.state, self.cycle.moves
        found = {slot: state.jobs.at(slot) for slot in np.unique(self.job).tolist()}
        queues = {job.queue for job in found.values()}
        for uid in (*moves.started, *moves.held):
            job = state.jobs.get(uid)
            if job.spec.preemptible is Preemptibility.YES and job.queue in queues:
                found[job.slot] = job
        claimers = moves.claimers()
        return [job for job in found.values() if self.cycle.is_left_alone(job, claimers)]

    def that_hold(self, excess: Counts) -> "VictimTable":
        """Only units that hold something of which their queue may lose any: (Q, 3) ``excess``."""
        tasks, rows = self.cycle.state.tasks, self.rows
        gpu = tasks.share.take(rows) * np.bitwise_count(tasks.mask.take(rows)).astype(np.int64)
        open_ = excess.take(self.cycle.state.jobs.queue.take(self.job), 0) > 0
        useful = open_[:, 0] & (gpu > 0)
        useful |= open_[:, 1] & (tasks.host[0].take(rows) > 0)
        useful |= open_[:, 2] & (tasks.host[1].take(rows) > 0)
        if useful.all():
            return self
        units = np.zeros(len(self.first), np.bool_)
        units[self.unit[useful]] = True
        kept = units.take(self.unit)
        _, first, unit = np.unique(self.unit[kept], return_index=True, return_inverse=True)
        return replace(self, rows=rows[kept], job=self.job[kept], unit=unit, first=first)

    def rows_of(self, units: Counts) -> Counts:
        """Rows of all tasks of these units."""
        chosen = np.zeros(len(self.first), np.bool_)
        chosen[units] = True
        return self.rows[chosen.take(self.unit)]

    def _victims(self, cost: Counts, order: Counts) -> Victims:
        tasks, rows = self.cycle.state.tasks, self.rows
        return Victims(
            node=self._places(tasks.node.take(rows)),
            mask=tasks.mask.take(rows),
            share=tasks.share.take(rows).astype(np.int64),
            cpu_milli=tasks.host[0].take(rows),
            memory_mib=tasks.host[1].take(rows),
            queue=self.cycle.state.jobs.queue.take(self.job).astype(np.int64),
            unit=self.unit,
            cost=cost,
            order=order,
        )

    def _places(self, node: Counts) -> Counts:
        """(V,) columns of these nodes on the ground; the last one stands for all others."""
        if self.nodes is None:
            return node
        places = np.full(len(self.cycle.state.nodes.schedulable), len(self.nodes), np.int64)
        places[self.nodes] = np.arange(len(self.nodes))
        return places.take(node)

    def ground(self, cls: int) -> Ground:
        """The room that is coming on the nodes looked at, where a class may run.

        CPU and memory may be below zero where a node reports less than is held: what is freed
        first makes up for that.
        """
        state, room = self.cycle.state, self.cycle.room
        soon = room.soon
        host = room.free.host[:2] + room.releasing.host[:2] - room.promised.host[:2]
        eligible, rank = state.eligible.of(state.classes.request(cls)), state.nodes.rank
        if self.nodes is None:
            return Ground(eligible, soon.devices, host, rank)
        some = np.append(self.nodes, 0)
        eligible = eligible.take(some)
        eligible[-1] = False
        rank = rank.take(some)
        rank[-1] = len(state.nodes.names) + 1
        return Ground(eligible, soon.devices.take(some, 1), host.take(some, 1), rank)

    def _costs(self) -> Counts:
        """(U,) see the head of this module."""
        jobs = self.cycle.state.jobs
        slots = self.job.take(self.first)
        queue = jobs.queue.take(slots).astype(np.int64)
        priority = jobs.priority.take(slots).astype(np.int64)
        lost = np.maximum(self.cycle.now - jobs.since.take(slots), 0.0)
        tasks, rows = self.cycle.state.tasks, self.rows
        gpu = tasks.share.take(rows) * np.bitwise_count(tasks.mask.take(rows)).astype(np.int64)
        gpus = np.bincount(self.unit, gpu, minlength=len(self.first)) / MILLI
        lost *= np.where(gpus > 0, gpus, 1.0)
        sums = np.bincount(queue, weights=lost)
        mean = sums / np.maximum(np.bincount(queue), 1)
        part = lost / np.maximum(mean.take(queue), 1e-9)
        loss = np.minimum(part * MEAN, (1 << LOSS_BITS) - 1).astype(np.int64)
        levels = _levels(queue, priority)
        if len(self.cycle.state.holding) <= SHOWN:
            loss += self._covered(slots) << LOSS_BITS
        return loss + (levels << LEVEL_BITS)

    def _covered(self, slots: Counts) -> Counts:
        """(U,) 1 where a job is shown as covered by its quota while others of its queue are not."""
        state = self.cycle.state
        borrowed = [state.borrowed.has(state, state.jobs.at(slot)) for slot in slots.tolist()]
        shown = np.array(borrowed, np.int64).reshape(-1)
        queue = state.jobs.queue.take(slots)
        some = np.bincount(queue, shown, minlength=1) > 0
        return (1 - shown) * some.take(queue)

    def _order(self) -> Counts:
        """(U,) queues in the order of victims; in them lower priority, then the younger."""
        state, standings = self.cycle.state, self.cycle.standings
        slots = self.job.take(self.first)
        queue, priority = state.jobs.queue.take(slots), state.jobs.priority.take(slots)
        present = np.flatnonzero(np.bincount(queue)).tolist()
        place = np.zeros(len(standings.used), np.int64)
        for number, slot in enumerate(sorted(present, key=self._queue_key)):
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

    def _queue_key(self, slot: int) -> tuple[int, ...]:
        """The place of a queue among victims, worked out once for what it holds."""
        known, used = self.cycle.places_of_victims, tuple(self.cycle.standings.used[slot])
        found = known.get(slot)
        if found is None or found[0] != used:
            found = known[slot] = used, victim_key(self.cycle.standings, slot)
        return found[1]


def _kinds(priority: Priorities) -> tuple[Priorities, Counts]:
    """The different priorities, ascending, and (U,) which of them each unit has."""
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


def victims_of(
    cycle: Cycle,
    giving: Bools,
    below: int | None = None,
    *,
    members: bool = False,
    protected_s: Times | None = None,
    nodes: Counts | None = None,
) -> VictimTable:
    """Tasks that may be stopped, of these queues.

    Args:
        cycle: the cycle; tasks that it has stopped already are left out.
        giving: (Q,) queues.
        below: only workloads of lower priority.
        protected_s: (Q,) a job is left alone for so long after its start.
        members: every task by itself, whatever it is part of.
        nodes: (K,) only jobs with tasks on these; ``None``: everywhere.
    """
    state = cycle.state
    tasks, jobs = state.tasks, state.jobs
    among = np.arange(len(tasks.node)) if nodes is None else _whole_jobs(cycle, nodes)
    legal = np.append(giving, False).take(tasks.victim.take(among))
    if cycle.moves.log:
        legal &= ~cycle.moves.stopped.take(among)
    if below is not None:
        legal &= tasks.priority.take(among) < below
    mixed = _mixed(cycle, among)
    left_out = bool((legal & mixed).any())
    rows = among.compress(legal & ~mixed)
    job = tasks.job.take(rows)
    whole = jobs.whole.take(job)
    if protected_s is not None:
        until = jobs.started.take(job) + protected_s.take(jobs.queue.take(job))
        old = until <= cycle.now
        rows, job, whole = rows[old], job[old], whole[old]
    if members:
        each = np.arange(len(rows))
        return VictimTable(cycle, rows, job, each, each, left_out=False, nodes=nodes)
    surplus = np.zeros(len(rows), np.bool_)
    if not whole.all():
        surplus = _surplus(cycle, job[~whole]).take(rows)
        left_out |= bool((~whole & ~surplus).any())
        kept = whole | surplus
        rows, job, surplus = rows[kept], job[kept], surplus[kept]
    if bool((jobs.placed.take(job) == 1).all()) and not surplus.any():
        unit = first = np.arange(len(rows))
    else:
        names = np.where(surplus, rows + len(jobs.by_slot), job)
        _, first, unit = np.unique(names, return_index=True, return_inverse=True)
    return VictimTable(cycle, rows, job, unit, first, left_out=left_out, nodes=nodes)


def _whole_jobs(cycle: Cycle, nodes: Counts) -> Counts:
    """Rows of all tasks of the jobs that have tasks on these nodes, ascending."""
    tasks, jobs = cycle.state.tasks, cycle.state.jobs
    rows = tasks.lending.on(nodes)
    job = tasks.job.take(rows)
    several = jobs.placed.take(job) > 1
    if not several.any():
        return rows
    more = [list(jobs.at(slot).rows.values()) for slot in np.unique(job[several]).tolist()]
    return np.union1d(rows, np.concatenate(more))


def _mixed(cycle: Cycle, among: Counts) -> Bools:
    """(n,) of these rows, tasks of jobs that this cycle gives more room: they give way whole."""
    moves, jobs = cycle.moves, cycle.state.jobs
    rows = [row for uid in (*moves.started, *moves.held) for row in jobs.by_uid[uid].rows.values()]
    return np.isin(among, rows) if rows else np.zeros(len(among), np.bool_)


def _surplus(cycle: Cycle, slots: Counts) -> Bools:
    """(T,) members of these elastic jobs that can go one by one."""
    mask = np.zeros(len(cycle.state.tasks.node), np.bool_)
    for slot in np.unique(slots).tolist():
        job = cycle.state.jobs.at(slot)
        states = leaf_states(job, stopped=cycle.moves.stopped_of(job))
        for step in shed_steps(job.shape.structure, states):
            if not step.core and len(step.tasks) == 1:
                mask[job.rows[step.tasks[0]]] = True
    return mask
