"""What victims cost, and the order among them, over arrays.

What a unit costs is its lost work, over what a GPU of its queue loses in the mean: within a queue
those who lose least go first; queues weigh the same, GPU by GPU, whether their work reports
checkpoints or not, and whether their jobs are large or small. A lower priority within its queue
outweighs any lost work; among a moderate number of units so does being shown as borrowed.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.preemption.candidates import VictimTable
from carrel_scheduler.core.preemption.search.model import Candidates
from carrel_scheduler.core.preemption.sorting import ascending
from carrel_scheduler.core.queues.order import victim_key
from carrel_scheduler.core.queues.rules import RESOURCES
from carrel_scheduler.core.resources import MILLI

Priorities = npt.NDArray[np.signedinteger]
LOSS_BITS = 20
BELOW_BITS = LOSS_BITS + 4
LEVEL_BITS = BELOW_BITS + 4
MEAN = 1 << 12
"""What one GPU counts as that loses the mean of its queue."""
NEAR = 1 << 16
"""Priorities that lie so near to one another are told apart by counting."""
SHOWN = 100
"""Where at most so many jobs run, what is shown as borrowed goes first; beyond, nobody follows
labels."""


def costed(table: VictimTable, plain: Candidates, excess: Counts | None = None) -> Candidates:
    """With what each unit loses, and its place in the order of victims.

    ``plain``: the same without. ``excess`` (Q, 3): what may be taken of each queue; a unit that
    would take its queue below what it keeps weighs more than any that would not.
    """
    cost = _costs(table)
    if excess is not None:
        cost += _beyond(table, excess) << BELOW_BITS
    return replace(plain, cost=cost, order=_order(table))


def _beyond(table: VictimTable, excess: Counts) -> Counts:
    """(U,) 1 where a unit holds more than its queue may lose, of everything that it may."""
    queue = table.cycle.state.jobs.queue.take(table.job.take(table.first))
    fits = np.zeros(len(table.first), np.bool_)
    for r in RESOURCES:
        left = excess[:, r].take(queue)
        if left.any():
            held = table.held(r)
            fits |= (held > 0) & (held <= left)
    return 1 - fits.astype(np.int64)


def _costs(table: VictimTable) -> Counts:
    """(U,) see the head of this module."""
    jobs = table.cycle.state.jobs
    slots = table.job.take(table.first)
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
    slots = table.job.take(table.first)
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
