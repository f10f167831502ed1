"""Digests of states, as text: two states with equal digests decide alike for ever."""

import hashlib
from collections.abc import Callable

import numpy as np

from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo


def digest(state: State) -> str:
    """A hash over all columns and records; unused slots, and caches, do not count."""
    parts = [repr(part) for part in (state.version, *_columns(state), *_records(state))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _columns(state: State) -> list[object]:
    nodes, tasks, queues = state.nodes, state.tasks, state.queues
    layers = [nodes.free, nodes.releasing, nodes.reserved]
    used = tasks.used()
    found: list[object] = [
        *(
            (layer.devices.tobytes(), layer.host.tobytes(), layer.slots.tobytes())
            for layer in layers
        ),
        (nodes.slots, nodes.names, nodes.facts, nodes.version, nodes.capacity.tobytes()),
        (used.tobytes(), sorted(queues.slots.items()), queues.rules, queues.parent),
        [queues.ceiling(slot) for slot in queues.slots.values()],
        [column.tolist() for column in (queues.used, queues.fixed, queues.releasing)],
        [column.tolist() for column in (queues.reserved, queues.reserved_fixed, queues.waiting)],
        queues.usage.tolist(),
    ]
    of_tasks = ("node", "mask", "share", "slots", "cls", "job", "index", "victim", "priority")
    found += [getattr(tasks, name).take(used).tobytes() for name in of_tasks]
    live = np.array(sorted(job.slot for job in state.jobs.by_uid.values()), np.int64)
    of_jobs = ("queue", "priority", "created", "since", "gpu", "whole")
    found += [getattr(state.jobs, name).take(live).tobytes() for name in of_jobs]
    return found


def _records(state: State) -> list[object]:
    order: Callable[[JobInfo], str] = lambda job: job.spec.uid  # noqa: E731 - one key, used twice
    jobs = sorted(state.jobs.by_uid.values(), key=order)
    waiting = state.waiting
    rows = [(row.id, row.queue, row.shape.id, row.priority, sorted(row.members)) for row in waiting]
    needs = [waiting.need.tolist(), waiting.count]
    retained = {state.classes.request(c): n for c, n in enumerate(state.classes.waiting) if n}
    members = [sorted(group) for group in _groups(state)]
    return [[_job(job) for job in jobs], rows, needs, sorted(map(repr, retained.items())), members]


def _groups(state: State) -> list[dict[str, JobInfo]]:
    return [
        state.partial,
        state.gated,
        state.holding,
        state.reserved,
        state.stale,
        state.improvable,
    ]


def _job(job: JobInfo) -> object:
    waits = None if job.waiting is None else job.waiting.id
    return (
        *(job.spec, job.slot, job.queue, sorted(job.rows.items()), sorted(job.halted)),
        *(sorted(job.stuck), job.out, job.queued, waits, job.asked, job.fixed, job.reservation),
        *(job.started, job.saved, job.stale_since),
    )
