"""Tasks that may be evicted, as arrays: the candidates of the search over arrays.

Units are whole jobs; of elastic jobs only their surplus members stand here, one by one. Their costs
are computed in ``victim_order``.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.legality import Budgets
from carrel_scheduler.core.preemption.search.budgets import UnitBudgets
from carrel_scheduler.core.preemption.search.model import Candidates, EligibleNodes
from carrel_scheduler.core.work.gang_steps import shed_steps
from carrel_scheduler.core.work.jobs import JobInfo, leaf_states

Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class VictimTable:
    """Rows of tasks that may be stopped, and the units in which they go.

    Attributes:
        rows: (V,) rows of the task columns.
        job: (V,) their jobs' slots.
        unit: (V,) index of the unit.
        gpu: (V,) thousandths that they hold.
        first: (U,) position in ``rows`` of a task of each unit.
        alone: every unit is one task, so ``unit`` and ``first`` count up.
        left_out: some jobs have more to give than stands here.
        nodes: (K,) slots of the only nodes that were looked at; ``None``: all.
    """

    cycle: Cycle
    rows: Counts
    job: Counts
    gpu: Counts
    unit: Counts
    first: Counts
    alone: bool
    left_out: bool
    nodes: Counts | None = None

    def plain(self) -> Candidates:
        """The same victims without costs: all units are equal (see ``victim_order``)."""
        zeros = np.zeros(len(self.first), np.int64)
        return self._victims(zeros, np.arange(len(self.first)))

    def held(self, resource: int) -> Counts:
        """(U,) the amount of a resource that every unit holds."""
        host = self.cycle.state.tasks.host
        column = host[resource - 1].take(self.rows) if resource else self.gpu
        if self.alone:
            return column
        return np.bincount(self.unit, column, minlength=len(self.first)).astype(np.int64)

    def budgets(self, of_queues: Budgets) -> UnitBudgets:
        """What queues may lose, by these units."""
        queue = self.cycle.state.jobs.queue.take(self.slots()).astype(np.int64)
        return UnitBudgets(of_queues, queue, self.held)

    def slots(self) -> Counts:
        """(U,) the slot of each unit's job."""
        return self.job if self.alone else self.job.take(self.first)

    def jobs(self) -> list[JobInfo]:
        """The victims' workloads, including those that start in this cycle."""
        state, moves = self.cycle.state, self.cycle.moves
        found = {slot: state.jobs.at(slot) for slot in np.unique(self.job).tolist()}
        queues = {job.queue for job in found.values()}
        for uid in (*moves.started, *moves.reserved):
            job = state.jobs.get(uid)
            if job.spec.preemptible is Preemptibility.YES and job.queue in queues:
                found[job.slot] = job
        preemptors = moves.preemptors()
        return [job for job in found.values() if self.cycle.is_left_alone(job, preemptors)]

    def that_hold(self, excess: Counts) -> "VictimTable":
        """The units that hold something of which their queue may lose any: (Q, 3) ``excess``."""
        host, rows = self.cycle.state.tasks.host, self.rows
        queue = self.cycle.state.jobs.queue.take(self.job)
        useful = (excess[:, 0] > 0).take(queue) & (self.gpu > 0)
        for r in (1, 2):
            if not useful.all():
                useful |= (excess[:, r] > 0).take(queue) & (host[r - 1].take(rows) > 0)
        if useful.all():
            return self
        if self.alone:
            return self.only(useful)
        units = np.zeros(len(self.first), np.bool_)
        units[self.unit[useful]] = True
        return self.only(units)

    def only(self, units: Bools) -> "VictimTable":
        """The table of these units, (U,)."""
        if units.all():
            return self
        if self.alone:
            kept = units
            first = unit = np.arange(np.count_nonzero(kept))
        else:
            kept = units.take(self.unit)
            _, first, unit = np.unique(self.unit[kept], return_index=True, return_inverse=True)
        job, gpu = self.job[kept], self.gpu[kept]
        return replace(self, rows=self.rows[kept], job=job, gpu=gpu, unit=unit, first=first)

    def rows_of(self, units: Counts) -> Counts:
        """Rows of all tasks of these units."""
        chosen = np.zeros(len(self.first), np.bool_)
        chosen[units] = True
        return self.rows[chosen if self.alone else chosen.take(self.unit)]

    def _victims(self, cost: Counts, order: Counts) -> Candidates:
        tasks, rows = self.cycle.state.tasks, self.rows
        return Candidates(
            node=self._places(tasks.node.take(rows)),
            mask=tasks.mask.take(rows),
            share=tasks.share.take(rows).astype(np.int64),
            cpu_milli=tasks.host[0].take(rows),
            memory_mib=tasks.host[1].take(rows),
            unit=self.unit,
            cost=cost,
            order=order,
            alone=self.alone,
        )

    def _places(self, node: Counts) -> Counts:
        """(V,) columns of these nodes on the ground; the last one stands for all others."""
        if self.nodes is None:
            return node
        places = np.full(len(self.cycle.state.nodes.schedulable), len(self.nodes), np.int64)
        places[self.nodes] = np.arange(len(self.nodes))
        return places.take(node)

    def free_capacity(self, cls: int) -> EligibleNodes:
        """The free and soon free capacity of the nodes looked at, where a class may run.

        CPU and memory may be below zero where a node reports less than is held: what is freed
        first makes up for that.
        """
        state, layers = self.cycle.state, self.cycle.free_capacity
        soon = layers.soon
        host = layers.free.host[:2] + layers.releasing.host[:2] - layers.reserved.host[:2]
        eligible, rank = state.eligible.of(state.classes.request(cls)), state.nodes.rank
        if self.nodes is None:
            return EligibleNodes(eligible, soon.devices, host, rank)
        some = np.append(self.nodes, 0)
        eligible = eligible.take(some)
        eligible[-1] = False
        rank = rank.take(some)
        rank[-1] = len(state.nodes.names) + 1
        return EligibleNodes(eligible, soon.devices.take(some, 1), host.take(some, 1), rank)


def victims_of(
    cycle: Cycle,
    giving: Bools,
    below: int | Counts | None = None,
    *,
    members: bool = False,
    protected_s: Times | None = None,
    nodes: Counts | None = None,
) -> VictimTable:
    """The tasks of these queues that may be evicted.

    Args:
        cycle: the cycle; tasks that it has stopped already are left out.
        giving: (Q,) queues.
        below: only workloads of lower priority; of each queue where it is (Q,).
        protected_s: (Q,) a job is left alone for so long after its start.
        members: every task by itself, whatever it is part of.
        nodes: (K,) only jobs with tasks on these; ``None``: everywhere.
    """
    state = cycle.state
    tasks, jobs = state.tasks, state.jobs
    rows, left_out = _without_growing(cycle, _evictable_rows(cycle, giving, below, nodes))
    job = tasks.job.take(rows)
    whole = jobs.whole.take(job)
    if protected_s is not None:
        until = jobs.started.take(job) + protected_s.take(jobs.queue.take(job))
        old = until <= cycle.now
        rows, job, whole = rows[old], job[old], whole[old]
    if members:
        each = np.arange(len(rows))
        gpu = tasks.gpu.take(rows)
        return VictimTable(
            cycle, rows, job, gpu, each, each, alone=True, left_out=False, nodes=nodes
        )
    surplus = np.zeros(len(rows), np.bool_)
    if not whole.all():
        surplus = _surplus(cycle, job[~whole]).take(rows)
        left_out |= bool((~whole & ~surplus).any())
        kept = whole | surplus
        rows, job, surplus = rows[kept], job[kept], surplus[kept]
    alone = bool((jobs.placed.take(job) == 1).all()) and not surplus.any()
    if alone:
        unit = first = np.arange(len(rows))
    else:
        names = np.where(surplus, rows + len(jobs.by_slot), job)
        _, first, unit = np.unique(names, return_index=True, return_inverse=True)
    gpu = tasks.gpu.take(rows)
    return VictimTable(
        cycle, rows, job, gpu, unit, first, alone=alone, left_out=left_out, nodes=nodes
    )


def _evictable_rows(
    cycle: Cycle, giving: Bools, below: int | Counts | None, nodes: Counts | None
) -> Counts:
    """Rows of the tasks that these arguments of ``victims_of`` name, ascending."""
    tasks, evicted = cycle.state.tasks, cycle.moves.evicted
    among = None if nodes is None else _whole_jobs(cycle, nodes)
    victim = tasks.victim if among is None else tasks.victim.take(among)
    legal: Bools = np.append(giving, False).take(victim)
    if cycle.moves.log:
        legal &= ~(evicted if among is None else evicted.take(among))
    if below is not None:
        most = below if isinstance(below, int) else below.take(victim, mode="wrap")
        priority = tasks.priority if among is None else tasks.priority.take(among)
        legal &= priority < most
    return legal.nonzero()[0] if among is None else among.compress(legal)


def _whole_jobs(cycle: Cycle, nodes: Counts) -> Counts:
    """Rows of all tasks of the jobs that have tasks on these nodes, ascending."""
    tasks, jobs = cycle.state.tasks, cycle.state.jobs
    rows = tasks.preemptible_usage.on(nodes)
    job = tasks.job.take(rows)
    several = jobs.placed.take(job) > 1
    if not several.any():
        return rows
    more = [list(jobs.at(slot).rows.values()) for slot in np.unique(job[several]).tolist()]
    return np.union1d(rows, np.concatenate(more))


def _without_growing(cycle: Cycle, rows: Counts) -> tuple[Counts, bool]:
    """These rows without tasks of jobs that get more in this cycle, which are evicted as a whole.

    Returns:
        The rows, and whether there were such tasks.
    """
    moves, jobs = cycle.moves, cycle.state.jobs
    growing = [
        row for uid in (*moves.started, *moves.reserved) for row in jobs.by_uid[uid].rows.values()
    ]
    if not growing:
        return rows, False
    others = rows[~np.isin(rows, growing)]
    return others, len(others) < len(rows)


def _surplus(cycle: Cycle, slots: Counts) -> Bools:
    """(T,) whether a task of these elastic jobs can be evicted alone."""
    mask = np.zeros(len(cycle.state.tasks.node), np.bool_)
    for slot in np.unique(slots).tolist():
        job = cycle.state.jobs.at(slot)
        states = leaf_states(job, stopped=cycle.moves.evicted_of(job))
        for step in shed_steps(job.shape.structure, states):
            if not step.core and len(step.tasks) == 1:
                mask[job.rows[step.tasks[0]]] = True
    return mask
