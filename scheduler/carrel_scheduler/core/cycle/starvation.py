"""Starvation: large work that waits while small work takes all capacity that becomes free.

A workload starves if it needs more than one GPU or task, has waited longer than
``reservation_delay_s``, is the next in its queue, would stay within its queue's fair share and
limits (not counting what runs in its queue and is served after it), and fits on empty nodes. Work
of its queue that is served after it does not start (here), and places are reserved for it
(``actions.reserve``). In a queue that is shared between its users, only work of a user who holds
least of those who wait. Reserved capacity stands idle, so few starve at a time, the oldest first.
"""

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.layers import LARGEST, Bools, Counts, Layer
from carrel_scheduler.core.queues.user_order import Held
from carrel_scheduler.core.resources import MILLI, Triple
from carrel_scheduler.core.work.jobs import JobInfo

LOOKS = 8
"""The number of longest waiting rows that are looked at in a cycle."""


def starving(cycle: Cycle) -> tuple[JobInfo, ...]:
    """Starving jobs, the oldest first; computed once in a cycle."""
    if cycle.starving is None:
        cycle.starving = _starving(cycle) if len(cycle.late) else ()
    return cycle.starving


def has_waited_long(cycle: Cycle, job: JobInfo) -> bool:
    """Whether a job has waited longer than the reservation delay of its queue."""
    delay = cycle.queue_usage.table.reservation_delay.item(job.queue)
    if math.isnan(delay):
        delay = cycle.settings.reservation_delay_s
    return cycle.waited_s(job) > delay


def held_back(cycle: Cycle, rows: Counts) -> Bools:
    """(r,) whether the jobs of these waiting rows wait for one who starves in their queue."""
    waiting = cycle.state.waiting
    found = np.zeros(len(rows), np.bool_)
    queues = waiting.queue.take(rows)
    for job in starving(cycle):
        places = (queues == job.queue).nonzero()[0]
        if not len(places):
            continue
        cycle.sync()
        if _fits(job, cycle.state.capacity.total):
            continue
        mine = job.waiting.id if job.waiting is not None else -1
        some = rows.take(places)
        priority, spec = waiting.priority.take(some), job.spec
        later = _served_later(cycle, job, some, waiting.since.take(some) > spec.created_at)
        after = (priority < spec.priority) | ((priority == spec.priority) & later)
        found[places] |= after & (some != mine)
    return found


def is_held_back(cycle: Cycle, job: JobInfo) -> bool:
    """Whether a job that runs in part, or has a reservation, waits for a starving one."""
    return any(
        job.queue == first.queue and job is not first and _comes_after(cycle, job, first)
        for first in starving(cycle)
    )


def _is_shared(cycle: Cycle, job: JobInfo) -> bool:
    """Whether what users hold decides who comes first in a job's queue."""
    return cycle.user_usage is not None and cycle.user_usage.counts(job.queue)


def _comes_after(cycle: Cycle, job: JobInfo, first: JobInfo) -> bool:
    usage = cycle.user_usage
    if usage is None or not usage.counts(job.queue):
        return job.order > first.order
    return usage.place(job) > usage.place(first)


def _served_later(cycle: Cycle, job: JobInfo, rows: Counts, later: Bools) -> Bools:
    """(r,) whether rows of a job's queue, of its priority, are served after it.

    Args:
        cycle: the cycle.
        job: of whose queue they are.
        rows: numbers.
        later: whether they were submitted after it.
    """
    usage = cycle.user_usage
    if usage is None or not usage.counts(job.queue):
        return later
    mine, found = usage.held(job.queue, job.spec.user), later.copy()
    for place, number in enumerate(rows.tolist()):
        row = cycle.state.waiting.rows[number]
        held = mine if row is None else usage.held(job.queue, row.user)
        if held != mine:
            found[place] = held > mine
    return found


def _starving(cycle: Cycle) -> tuple[JobInfo, ...]:
    waiting, found = cycle.state.waiting, []
    queues: set[int] = set()
    for number in _late_rows(cycle)[:LOOKS].tolist():
        row = waiting.rows[number]
        job = row.first() if row is not None else None
        if job is not None and job.queue not in queues and _has_right(cycle, job):
            queues.add(job.queue)
            found.append(job)
            if len(found) == cycle.settings.most_reserved:
                break
    return tuple(found)


def _late_rows(cycle: Cycle) -> Counts:
    """Rows of large work that has waited too long and is next in its queue; oldest first."""
    waiting, every = cycle.state.waiting, cycle.state.waiting.used()
    concerned = np.zeros(len(cycle.queue_usage.used), np.bool_)
    concerned[waiting.queue.take(cycle.late)] = True
    every = every.compress(concerned.take(waiting.queue.take(every)))
    every = every.compress(~waiting.over_limit(every, cycle.queue_columns, for_ever=True))
    rows = cycle.late.compress(np.isin(cycle.late, every))
    highest = np.full(len(concerned), -LARGEST, np.int64)
    np.maximum.at(highest, waiting.queue.take(every), waiting.priority.take(every))
    rows = rows[waiting.priority.take(rows) == highest.take(waiting.queue.take(rows))]
    rows = _of_least_users(cycle, rows, every)
    ordered: Counts = rows.take(np.lexsort((rows, waiting.since.take(rows))))
    return ordered


def _of_least_users(cycle: Cycle, rows: Counts, every: Counts) -> Counts:
    """Remove the rows of users who have to wait for another user of their queue.

    Args:
        cycle: the cycle.
        rows: each of the highest priority in its queue.
        every: all rows that could ever start.
    """
    usage, waiting = cycle.user_usage, cycle.state.waiting
    if usage is None:
        return rows
    least: dict[tuple[int, int], Held] = {}
    for number in every.tolist():
        row = waiting.rows[number]
        if row is not None and usage.counts(row.queue):
            key, held = (row.queue, row.priority), usage.held(row.queue, row.user)
            least[key] = min(least.get(key, held), held)
    kept = [
        row is None
        or not usage.counts(row.queue)
        or usage.held(row.queue, row.user) == least[row.queue, row.priority]
        for row in map(waiting.rows.__getitem__, rows.tolist())
    ]
    return rows.compress(np.array(kept, np.bool_))


def _has_right(cycle: Cycle, job: JobInfo) -> bool:
    step, queue_usage = job.shape.first_step, cycle.queue_usage
    if not has_waited_long(cycle, job) or cycle.answered(job):
        return False
    right = _is_free(cycle, job, step)
    if not right:
        behind = _behind_known(cycle, job)
        queue_usage.add(job.queue, behind, sign=-1)
        right = _is_free(cycle, job, step)
        queue_usage.add(job.queue, behind)
    return right and _fits(job, lambda cls: _on_empty_nodes(cycle, cls))


def _is_free(cycle: Cycle, job: JobInfo, step: tuple[int, ...]) -> bool:
    return cycle.within_share(job, step) and cycle.over_limit(job, step) is None


def _behind_known(cycle: Cycle, job: JobInfo) -> Triple:
    """``_behind``, worked out again when the queue's work has changed."""
    if cycle.moves.evicted.any() or _is_shared(cycle, job):
        return _behind(cycle, job)
    memory, changed_at = cycle.state.cache, cycle.state.queues.changed_at
    stamp = changed_at.get(job.queue, 0), job.spec.priority, job.spec.created_at
    known = memory.behind.get(job.queue)
    if known is None or known[0] != stamp:
        known = memory.behind[job.queue] = stamp, _behind(cycle, job)
    return known[1]


def _behind(cycle: Cycle, job: JobInfo) -> Triple:
    """The amounts of running work in the job's queue that would be served after it."""
    state = cycle.state
    jobs, tasks = state.jobs, state.tasks
    slots = np.flatnonzero((jobs.queue == job.queue) & (jobs.placed > 0))
    priority, spec = jobs.priority.take(slots), job.spec
    later = jobs.created.take(slots) > spec.created_at
    if _is_shared(cycle, job):
        others = [jobs.at(slot) for slot in slots.tolist()]
        later = np.array([_comes_after(cycle, one, job) for one in others], np.bool_)
    slots = slots[(priority < spec.priority) | ((priority == spec.priority) & later)]
    records = map(jobs.by_slot.__getitem__, slots.tolist())
    rows = np.array([row for job in records if job for row in job.rows.values()], np.int64)
    rows = rows[~(tasks.stopping.take(rows) | cycle.moves.evicted.take(rows))]
    host = tasks.host.take(rows, 1).sum(axis=1)
    return int(tasks.gpu.take(rows).sum()), int(host[0]), int(host[1])


def _empty(cycle: Cycle) -> Layer:
    """The capacity of all nodes if nothing ran."""
    nodes = cycle.state.nodes
    full = np.where(nodes.usable & nodes.schedulable, np.int16(MILLI), np.int16(0))
    return Layer(full, nodes.capacity * nodes.schedulable, nodes.empty_slots())


def _on_empty_nodes(cycle: Cycle, cls: int) -> int:
    """The number of tasks of a class that empty nodes would hold."""
    state, memory = cycle.state, cycle.state.cache
    if memory.empty_version != state.nodes.version:
        memory.empty.clear()
        memory.empty_version = state.nodes.version
    found = memory.empty.get(cls)
    if found is None:
        counts = state.capacity.counts(_empty(cycle), cls)
        found = memory.empty[cls] = int(counts.sum())
    return found


def _fits(job: JobInfo, total: Callable[[int], int]) -> bool:
    """Whether there is capacity for the first step, by how many tasks of a class fit in all."""
    needs = Counter(job.shape.classes[index] for index in job.shape.first_step)
    return all(total(cls) >= need for cls, need in needs.items())
