"""Whether what is kept equals what a recount from single tasks gives: layers, sums, rows, indexes.

Functions over the state like those of ``invariants``, for everything that events keep up to date so
that deciding need not count.
"""

from collections import Counter
from collections.abc import Callable, Container

import numpy as np

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.events import Outcome, Preemptibility
from carrel_scheduler.core.invariants.recount import (
    TaskAllocation,
    Uses,
    all_held,
    below_minimum,
    core_of,
    counting,
    held_by,
    jobs_of,
)
from carrel_scheduler.core.layers import Layer
from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from carrel_scheduler.core.nodes.nodes import empty_slots_of
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.resources import MILLI, added
from carrel_scheduler.core.work.jobs import JobInfo
from carrel_scheduler.core.work.tasks import Victims


def layers_equal_recount(state: Columns) -> list[str]:
    """Free, releasing and reserved capacity."""
    nodes = state.nodes
    shape = (*nodes.free.devices.shape, len(nodes.free.host))
    free, releasing, reserved = (Layer.empty(*shape) for _ in range(3))
    for slot in nodes.slots.values():
        fact = nodes.fact(slot)
        free.devices[: fact.devices, slot] = MILLI
        free.slots[: fact.devices, slot] = empty_slots_of(fact)
        free.host[:2, slot] = fact.cpu_milli, fact.memory_mib
        for name, amount in fact.extended:
            free.host[nodes.extended[name], slot] = amount
    for one in all_held(state):
        free.subtract(one.place)
        if one.stopping and not one.stuck:
            releasing.add(one.place)
    for job in jobs_of(state):
        for _, place in job.reservation:
            reserved.add(place)
    return [
        f"{what} {part} differs from a recount at {np.argwhere(mine != kept).tolist()[:4]}"
        for what, counted, layer in (
            ("free", free, nodes.free),
            ("releasing", releasing, nodes.releasing),
            ("reserved", reserved, nodes.reserved),
        )
        for part in ("devices", "host", "slots")
        for mine, kept in [(getattr(counted, part), getattr(layer, part))]
        if not np.array_equal(mine, kept)
    ]


def queue_sums_equal_recount(state: Columns) -> list[str]:
    """The six sums of every queue."""
    uses = {which: Uses(state) for which in Sum}
    for one in all_held(state):
        which = Sum.RELEASING if one.stopping else Sum.USED
        uses[which].add(one.job.queue, one.place.amounts)
    for job in jobs_of(state):
        amounts = state.tasks.footprint
        core = added(amounts(job.rows[index]).amounts for index in core_of(job))
        uses[Sum.FIXED].add(job.queue, core)
        asked = added(state.classes.amounts(job.shape.classes[index]) for index in job.pending())
        uses[Sum.WAITING].add(job.queue, asked)
        held = added(place.amounts for _, place in job.reservation)
        uses[Sum.RESERVED].add(job.queue, held)
        if job.reservation and job.reservation_fixed:
            uses[Sum.RESERVED_FIXED].add(job.queue, held)
    return [
        f"{which.name} of {name} is {kept}, counted {uses[which].of[name]}"
        for which in Sum
        for name, slot in sorted(state.queues.slots.items())
        for kept in [getattr(state.queues, which.name.lower())[slot].tolist()]
        if kept != uses[which].of[name]
    ]


def indexes_equal_recount(state: Columns) -> list[str]:
    """Checks the indexes of jobs: holders, reservations, stale gangs, pending work."""
    jobs = jobs_of(state)
    asking = [job for job in jobs if job.pending()]
    in_rows = {job.uid for job in asking if job.fresh and not job.reservation}
    expected = {
        "holding": {job.uid for job in jobs if job.rows},
        "reserved": {job.uid for job in jobs if job.reservation},
        "partial": {job.uid for job in asking} - in_rows,
        "stale": {job.uid for job in jobs if _runs_in_vain(job)},
        "improvable": {job.uid for job in jobs if job.rows and job.spec.moves_to_preferred},
    }
    found = [
        f"{name} differs by {sorted(kept ^ wanted)}"
        for name, wanted in expected.items()
        if (kept := set(getattr(state, name))) != wanted
    ]
    members = [uid for row in state.waiting for uid in row.members]
    if sorted(members) != sorted(in_rows) or state.waiting.count != len(members):
        found.append(f"waiting rows differ by {sorted(set(members) ^ in_rows)}")
    in_queue = Counter(job.queue for job in jobs)
    kept_counts = {slot: count for slot, count in state.jobs.in_queue.items() if count}
    if kept_counts != dict(in_queue):
        found.append("the number of workloads of a queue differs from a recount")
    return found


def waiting_rows_are_equal(state: Columns) -> list[str]:
    """A row's jobs look alike, its columns are theirs, and its first is the oldest."""
    found = []
    for row in state.waiting:
        for job in row.members.values():
            mine = (job.queue, job.shape.id, job.spec.priority, job.spec.preemptible)
            asked_for = state.queues.table.fair_users[job.queue]
            whose = job.spec.user if asked_for else ""
            if (*mine, whose) != (
                *(row.queue, row.shape.id, row.priority, row.preemptible),
                row.user,
            ):
                found.append(f"{job.uid} stands in a row of others")
            if job.waiting is not row or not job.fresh:
                found.append(f"{job.uid} stands in a row and does not belong there")
        first = row.first()
        if first is not row.in_order()[0]:
            found.append(f"the first of row {row.id} is not the oldest")
        if not state.waiting.need[row.id] or int(state.waiting.queue[row.id]) != row.queue:
            found.append(f"columns of row {row.id} are wrong")
    return found


def job_columns_equal_recount(state: Columns) -> list[str]:
    """Checks the columns of jobs, and the set of possible victims."""
    found = []
    for job in jobs_of(state):
        core, held = core_of(job), held_by(state, job)
        gpu = sum(one.place.amounts[0] for one in held if not one.stopping)
        if int(state.jobs.gpu[job.slot]) != gpu:
            found.append(f"{job.uid} runs on {gpu} thousandths of GPUs")
        if held and float(state.jobs.since[job.slot]) != job.since:
            found.append(f"{job.uid} loses work since {job.since}")
        if int(state.jobs.queue[job.slot]) != job.queue or state.jobs.at(job.slot) is not job:
            found.append(f"the slot of {job.uid} is somebody else's")
        for one in held:
            victim = job.queue if _is_victim(job, one, core) else -1
            if int(state.tasks.victim[one.row]) != victim:
                found.append(f"{one.name} is a possible victim, or not, differently")
    return found


def victims_equal_recount(state: Columns) -> list[str]:
    """The kept counts of tasks that may be evicted, by queue and priority, equal a recount."""
    counted: dict[int, dict[int, Victims]] = {}
    for job in jobs_of(state):
        core, by_priority = core_of(job), counted.setdefault(job.queue, {})
        for one in held_by(state, job):
            if _is_victim(job, one, core):
                tasks, *held = by_priority.get(job.spec.priority, (0, 0, 0, 0))
                gpu, cpu, memory = map(sum, zip(held, one.place.amounts, strict=True))
                by_priority[job.spec.priority] = tasks + 1, gpu, cpu, memory
    counted = {queue: victims for queue, victims in counted.items() if victims}
    kept = state.tasks.victims
    return [] if kept == counted else [f"by queue {kept}, counted {counted}"]


def _is_victim(job: JobInfo, one: TaskAllocation, core: Container[int]) -> bool:
    """Whether a task of a job may be evicted; ``core``: the members of it that may not."""
    free = job.spec.preemptible is not Preemptibility.NO and one.index not in core
    return free and not one.stopping


def class_counts_equal_recount(state: Columns) -> list[str]:
    """The kept counts of rows and partial jobs that retain each class equal a recount."""
    counted: Counter[int] = Counter()
    for row in state.waiting:
        counted.update(set(row.shape.classes))
    for job in state.partial.values():
        counted.update(set(job.shape.classes))
    kept = {cls: count for cls, count in enumerate(state.classes.waiting) if count}
    return [] if kept == dict(counted) else [f"classes are retained {kept}, counted {counted}"]


def capacity_rows_equal_recount(state: Columns) -> list[str]:
    """The counts of waiting classes on every node, after they were brought up to date."""
    idle = FreeCapacity(state.nodes).idle
    capacity = state.capacity
    capacity.forget_tried()
    capacity.sync(idle)
    found = []
    for cls, count in enumerate(state.classes.waiting):
        if count:
            counts = capacity.counts(idle, cls)
            if not np.array_equal(capacity.column(cls), counts):
                found.append(f"capacity of class {cls} is {capacity.column(cls)}, counted {counts}")
            if capacity.total(cls) != int(counts.sum()):
                found.append(f"total of class {cls} is {capacity.total(cls)}")
    return found


BOOKS: tuple[Callable[[Columns], list[str]], ...] = (
    layers_equal_recount,
    queue_sums_equal_recount,
    indexes_equal_recount,
    waiting_rows_are_equal,
    job_columns_equal_recount,
    victims_equal_recount,
    class_counts_equal_recount,
    capacity_rows_equal_recount,
)


def check_books(state: Columns) -> list[str]:
    """The differences of all kept columns from a recount."""
    return [f"{each.__name__}: {one}" for each in BOOKS for one in each(state)]


def _runs_in_vain(job: JobInfo) -> bool:
    if Outcome.SUCCEEDED in (job.out or {}).values():
        return False
    return bool(job.rows) and below_minimum(job.shape.group, counting(job))
