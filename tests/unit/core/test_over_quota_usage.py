"""What may be taken of each node, kept by events, against a count from single tasks."""

import random

import numpy as np
import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.events import (
    NodeSet,
    Outcome,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.preemption.node_prefilter import in_reach, likely_nodes
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import NONE, UNLIMITED, ResourceVector
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.tasks import COLUMNS, PreemptibleUsage

NODES, QUEUES = 6, 4


def cluster() -> State:
    state = State()
    for number in range(NODES):
        state.apply(NodeSet(f"n{number}", 4, 16_000, 64_000))
    for number in range(QUEUES):
        limit = ResourceVector(6000, UNLIMITED, UNLIMITED)
        state.apply(QueueSet(f"q{number}", ResourceVector(3000, 8000, UNLIMITED), limit))
    return state


def lived(seed: int, steps: int = 120) -> State:
    """A cluster on which jobs came, were told to stop and ended."""
    chance, state = random.Random(seed), cluster()
    _ = state.tasks.preemptible_usage
    running: list[str] = []
    for step in range(steps):
        if running and chance.random() < 0.4:
            uid = running.pop(chance.randrange(len(running)))
            if chance.random() < 0.5:
                state.apply(TaskReleasing(uid, 0))
            state.apply(TaskReleased(uid, 0, Outcome.GONE, float(step)))
            state.apply(WorkloadRemoved(uid))
            continue
        uid, kind = f"j{step}", chance.choice(list(Preemptibility))
        request = chance.choice((Request(gpus=1, cpu_milli=1000), Request(share_milli=300)))
        queue = f"q{chance.randrange(QUEUES)}"
        state.apply(WorkloadQueued(uid, uid, queue, "u", 50, kind, request, created_at=step))
        free = np.argwhere(state.nodes.free.devices == 1000)
        if len(free) and chance.random() < 0.8:
            device, node = free[chance.randrange(len(free))].tolist()
            state.apply(TaskPlaced(uid, 0, state.nodes.names[node], (device,), float(step)))
            running.append(uid)
    return state


@pytest.mark.parametrize("seed", range(8))
def test_what_is_kept_equals_a_recount(seed: int) -> None:
    state = lived(seed)
    kept, counted = state.tasks.preemptible_usage, PreemptibleUsage(state.tasks)
    for number in range(NODES):
        node = np.array([number])
        rows = np.flatnonzero(state.tasks.node == number)
        assert kept.on(node).tolist() == counted.on(node).tolist() == rows.tolist()
    for queue in range(QUEUES):
        only = np.arange(QUEUES) == queue
        assert kept.of(only, NODES).tolist() == counted.of(only, NODES).tolist()
    victims = state.tasks.victim >= 0
    gpu = (state.tasks.share * np.bitwise_count(state.tasks.mask))[victims].sum()
    everybody = np.ones(QUEUES, np.bool_)
    assert kept.of(everybody, NODES)[0].sum() == gpu
    assert kept.of(everybody, NODES)[1].sum() == state.tasks.host[0][victims].sum()


def test_queues_that_share_a_column_are_counted_together() -> None:
    state = cluster()
    lending = state.tasks.preemptible_usage
    lending.enter(0, 0)
    lending.add(1, 0, 500, 100)
    lending.add(1 + COLUMNS, 0, 300, 10)
    giving = np.zeros(2 * COLUMNS, np.bool_)
    giving[1] = True
    assert lending.of(giving, 1).tolist() == [[800], [110]]


@pytest.mark.parametrize("seed", range(8))
def test_no_node_is_left_out_on_which_a_task_would_fit_without_victims(seed: int) -> None:
    state = lived(seed)
    cycle = Cycle(state, 1000.0)
    cls = state.classes.intern(Request(gpus=2, cpu_milli=2000))
    everybody = np.ones(QUEUES, np.bool_)
    gone = state.nodes.free.devices.astype(np.int64)
    for row in np.flatnonzero(state.tasks.victim >= 0).tolist():
        place = state.tasks.footprint(row)
        for device in place.devices:
            gone[device, place.node] += place.share
    holds = np.flatnonzero((gone >= 1000).sum(axis=0) >= 2).tolist()
    found = likely_nodes(cycle, cls, 1, everybody).tolist()
    assert set(holds) <= set(found)
    assert in_reach(cycle, cls, everybody) or not holds


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_barred_where_their_first_job_is(seed: int) -> None:
    state = lived(seed)
    cycle = Cycle(state, 1000.0)
    rows = np.flatnonzero(state.waiting.need)
    found = state.waiting.over_limit(rows, cycle.queue_columns).tolist()
    for number, is_barred in zip(rows.tolist(), found, strict=True):
        row = state.waiting.rows[number]
        assert row is not None
        demand = row.shape.first
        fixed = demand if row.preemptible is not Preemptibility.YES else NONE
        assert is_barred == (cycle.queue_usage.over_limit(row.queue, demand, fixed) is not None)
