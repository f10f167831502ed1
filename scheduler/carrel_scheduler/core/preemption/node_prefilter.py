"""Prefilter of a large cluster: the nodes that lack least for one task of a request.

What can be had on a node at most is what is coming and what the queues that may give hold there
(``preemptible_usage``). Too little on all nodes together proves a "no"; of the nodes that remain,
the nearest are looked at closely, as many as the step may need and some more, so a "no" from these
means not found, never impossible. Small clusters are looked at as a whole.
"""

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.layers import CPU, MEMORY, Bools, Counts, Milli
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.work.jobs import JobInfo

NODES = 12
NODES_PER_TASK = 4
LACK_BITS = 24


def candidate_jobs(
    cycle: Cycle, job: JobInfo, step: tuple[int, ...], giving: Bools, within: Bools | None = None
) -> list[JobInfo]:
    """Jobs of these queues, (Q,), that may be evicted for a step; never the job itself.

    ``within`` (N,): where the step is to lie; ``None``: anywhere.
    """
    if cycle.is_small:
        return [
            other for other in cycle.evictable() if other is not job and giving.item(other.queue)
        ]
    tasks = cycle.state.tasks
    nodes = likely_nodes(cycle, job.shape.cls, len(step), giving, within)
    rows = tasks.preemptible_usage.on(nodes)
    victim = tasks.victim.take(rows)
    found = np.append(giving, False).take(victim) & ~cycle.moves.evicted.take(rows)
    slots = np.unique(tasks.job.take(rows).compress(found))
    jobs = [cycle.state.jobs.at(slot) for slot in slots.tolist()]
    return [other for other in jobs if other is not job and not cycle.answered(other)]


def in_reach(cycle: Cycle, cls: int, giving: Bools) -> bool:
    """Whether a task of a class might fit on any node with all victims of these queues gone."""
    return bool(_may_hold(cycle, cls, giving).any())


def enough_in_all(cycle: Cycle, cls: int, tasks: int, giving: Bools) -> bool:
    """Whether so many tasks might find capacity with all victims of these queues gone, by sums."""
    width, size, cpu, _ = cycle.state.classes.clearing_kind(cls)
    nodes = np.flatnonzero(_may_hold(cycle, cls, giving))
    asked = _gpu_of(width, size), cpu
    return len(nodes) >= tasks or _enough(
        cycle, nodes, asked, cycle.preemptible_on_nodes(giving), tasks
    )


def likely_nodes(
    cycle: Cycle, cls: int, tasks: int, giving: Bools, within: Bools | None = None
) -> Counts:
    """Nodes that lack least for a task of a class, none if all of them together lack capacity.

    Args:
        cycle: the cycle.
        cls: class of the tasks.
        tasks: how many.
        giving: (Q,) queues that may give.
        within: (N,) the only nodes that count; ``None``: all.
    """
    state, soon = cycle.state, cycle.free_capacity.soon
    width, size, cpu, memory = state.classes.clearing_kind(cls)
    need = _gpu_of(width, size)
    fits = _may_hold(cycle, cls, giving)
    if within is not None:
        fits &= within
    nodes = np.flatnonzero(fits)
    if len(nodes) < tasks and not _enough(
        cycle, nodes, (need, cpu), cycle.preemptible_on_nodes(giving), tasks
    ):
        return nodes[:0]
    most = NODES + NODES_PER_TASK * tasks
    if len(nodes) <= most:
        return nodes
    lack = np.maximum(cpu - soon.host[CPU].take(nodes), 0)
    lack += np.maximum(memory - soon.host[MEMORY].take(nodes), 0)
    np.minimum(lack, (1 << LACK_BITS) - 1, out=lack)
    if need:
        lack += _devices_short(soon.devices.take(nodes, 1), width, size) << LACK_BITS
    key = lack * (2 * len(fits)) + state.nodes.rank.take(nodes)
    return np.sort(nodes.take(np.argpartition(key, most)[:most]))


def _gpu_of(width: int, size: int) -> int:
    """Thousandths of a task; of what depends on the node, the least there is."""
    return width * size if size <= MILLI else width


def _may_hold(cycle: Cycle, cls: int, giving: Bools) -> Bools:
    """(N,) eligible nodes with capacity for a task, as far as sums tell, when these queues give."""
    state, soon = cycle.state, cycle.free_capacity.soon
    width, size, cpu, _ = state.classes.clearing_kind(cls)
    held_gpu, held_cpu = cycle.preemptible_on_nodes(giving)
    fits: Bools = state.eligible.of(state.classes.request(cls)) & (soon.host[CPU] + held_cpu >= cpu)
    if width:
        free = soon.devices.sum(axis=0, dtype=np.int64)
        fits &= held_gpu + free >= _gpu_of(width, size)
    return fits


def _enough(
    cycle: Cycle,
    nodes: Counts,
    asked: tuple[int, int],
    preemptible: tuple[Counts, Counts],
    tasks: int,
) -> bool:
    """Whether these nodes would hold so many tasks by their sums."""
    soon, fits = cycle.free_capacity.soon, np.full(len(nodes), tasks, np.int64)
    there = soon.devices.take(nodes, 1).sum(axis=0, dtype=np.int64), soon.host[CPU].take(nodes)
    for amount, free, more in zip(asked, there, preemptible, strict=True):
        if amount:
            np.minimum(fits, (free + more.take(nodes)) // amount, out=fits)
    return int(fits.sum()) >= tasks


def _devices_short(free: Milli, width: int, size: int) -> Counts:
    """(n,) thousandths that are missing on devices for one task."""
    if size >= MILLI:
        whole = (free == MILLI).sum(axis=0, dtype=np.int64)
        short: Counts = np.maximum(width - whole, 0) * MILLI
    else:
        short = np.maximum(size - free.max(axis=0, initial=0).astype(np.int64), 0)
    return short
