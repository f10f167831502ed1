"""Columns lie side by side: as long as each other, with every slot in use or spare, never both."""

import random
from typing import Any

import numpy as np
import pytest

from benchmarks.decision_cases.loading import Listing, load
from carrel_scheduler.core.events import (
    CapacityReserved,
    NodeRemoved,
    Outcome,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadRemoved,
)
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobTable
from carrel_scheduler.core.work.tasks import PreemptibleUsage, TaskColumns
from unit.core.situations import asking, node, queue, running, state_of, training


def columns_of(store: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {name: each for name, each in vars(store).items() if isinstance(each, np.ndarray)}


@pytest.fixture
def state() -> State:
    """Forty workloads came, of which some ran and some are gone; so did nodes."""
    found = state_of(*(node(f"n{n:02}", n % 5, gpu_memory_mib=80) for n in range(20)), queue("a"))
    for number in range(40):
        found.apply(training(f"w{number:02}", "a", request=asking(1, cpu=1 + number % 3)))
        if number % 4 == 1:
            name = f"n{number % 20:02}"
            if found.nodes.fact(found.nodes.slot(name)).devices > number // 20:
                found.apply(TaskPlaced(f"w{number:02}", 0, name, (number // 20,), float(number)))
        if number % 7 == 0:
            found.apply(WorkloadRemoved(f"w{number:02}"))
    found.apply(NodeRemoved("n04"))
    for name in ("n09", "n10", "n14"):
        if not len(found.tasks.rows_on(found.nodes.slot(name))):
            found.apply(NodeRemoved(name))
    return found


def test_jobs(state: State) -> None:
    jobs = state.jobs
    lengths = {name: len(column) for name, column in columns_of(jobs).items()}
    assert set(lengths.values()) == {len(jobs.by_slot)}
    assert len(jobs.uids) == len(jobs.by_slot)
    used = [slot for slot, job in enumerate(jobs.by_slot) if job is not None]
    assert sorted(used + jobs._spare) == list(range(len(jobs.by_slot)))
    assert [jobs.uids[slot] for slot in used] == [jobs.at(slot).uid for slot in used]
    assert all(jobs.uids[slot] == "" for slot in jobs._spare)
    assert jobs.in_queue[0] == len(used) == len(jobs.by_uid)
    for slot in jobs._spare:
        with pytest.raises(KeyError):
            jobs.at(slot)


def test_tasks(state: State) -> None:
    tasks = state.tasks
    wide = {name: column.shape[-1] for name, column in columns_of(tasks).items()}
    assert len(set(wide.values())) == 1
    spare = np.array(tasks._spare, np.int64)
    assert sorted([*tasks.used().tolist(), *spare.tolist()]) == list(range(len(tasks.node)))
    assert (tasks.node.take(spare) == -1).all()
    assert (tasks.victim.take(spare) == -1).all()
    assert not tasks.stopping.take(spare).any()


def test_nodes(state: State) -> None:
    nodes = state.nodes
    gone = [slot for slot, fact in enumerate(nodes.facts) if fact is None and slot in nodes._spare]
    assert gone
    for slot in gone:
        assert not nodes.schedulable[slot]
        assert not nodes.mig[slot]
        assert not nodes.usable[:, slot].any()
        assert int(nodes.devices[slot]) == int(nodes.gpu_memory[slot]) == 0
        assert not nodes.capacity[:, slot].any()
        assert nodes.names[slot] == ""
    assert sorted([*nodes.slots.values(), *nodes._spare]) == list(range(len(nodes.names)))
    layers = (nodes.free, nodes.releasing, nodes.reserved)
    assert {layer.devices.shape for layer in layers} == {nodes.usable.shape}
    assert {layer.slots.shape for layer in layers} == {nodes.usable.shape}
    assert {layer.host.shape for layer in layers} == {nodes.capacity.shape}


def test_a_task_that_ends_leaves_an_empty_row() -> None:
    state = state_of(node("n", 2), queue("a"), *running(training("x", "a"), "n", 1, at=3.0))
    (row,) = state.job("x").rows.values()
    assert int(state.tasks.victim[row]) == state.queues.slots["a"]
    assert state.tasks.victims == {state.queues.slots["a"]: {50: (1, 1000, 1000, 1024)}}
    state.apply(TaskReleasing("x", 0))
    assert int(state.tasks.victim[row]) == -1
    assert state.tasks.victims == {}
    state.apply(TaskReleased("x", 0, Outcome.SUCCEEDED, 9.0))
    assert int(state.tasks.node[row]) == -1
    assert not state.tasks.stopping[row]
    assert state.nodes.free.devices[:, state.nodes.slot("n")].tolist() == [1000, 1000]
    assert not state.nodes.releasing.devices.any()
    assert not state.queues.used.any()
    assert not state.queues.releasing.any()


def test_a_promise_ends_with_its_workload() -> None:
    state = state_of(node("n", 2), queue("a"), training("x", "a"))
    assert not state.job("x").reservation_fixed
    state.apply(CapacityReserved("x", (("n", (0,), 0),)))
    assert state.nodes.reserved.devices.sum() == 1000
    assert state.queues.reserved[0].tolist() == [1000, 1000, 1024]
    state.apply(WorkloadRemoved("x"))
    assert not state.nodes.reserved.devices.any()
    assert not state.queues.reserved.any()
    assert not state.reserved
    assert not state.queues.waiting.any()


def test_tasks_that_were_listed_hold_what_those_told_one_by_one_hold() -> None:
    jobs = [training(f"w{n}", "a", n % 3, cpu=1 + n, memory_gib=2 + n) for n in range(6)]
    devices = ((), (0,), (1, 2), (), (3,), (4, 5))
    placed = [TaskPlaced(f"w{n}", 0, "n", devices[n], 5.0) for n in range(6)]
    listed = State()
    load(listed, Listing([node("n", 6)], [queue("a")], (), (), jobs, placed))
    told = state_of(node("n", 6), queue("a"), *jobs, *placed)
    for state in (told, listed):
        rows = [state.job(f"w{n}").rows[0] for n in range(6)]
        assert state.tasks.host[:, rows].T.tolist() == [
            [1000 * (1 + n), 1024 * (2 + n)] for n in range(6)
        ]
        assert state.tasks.mask[rows].tolist() == [0, 1, 6, 0, 8, 48]
        assert [state.tasks.footprint(row).devices for row in rows] == list(devices)


@pytest.mark.parametrize("spare", [1, 3, 40])
def test_jobs_added_at_once_get_the_slots_that_they_get_one_by_one(spare: int) -> None:
    """Also where some are free between others, and however many columns there were."""
    shapes, events = state_of(queue("a")).shapes, [training(f"w{n}", "a") for n in range(26)]
    at_once, told = JobTable(), JobTable()
    at_once.reserve(spare)
    for table in (at_once, told):
        first = [table.add(event, 0, shapes.of(event)) for event in events[:6]]
        for job in first[2:4]:
            table.drop(job)
    at_once.add_many(events[6:], [0] * 20, [shapes.of(event) for event in events[6:]])
    for event in events[6:]:
        told.add(event, 0, shapes.of(event))
    slots = [{uid: job.slot for uid, job in table.by_uid.items()} for table in (at_once, told)]
    assert slots[0] == slots[1]


@pytest.mark.parametrize("seed", range(5))
def test_what_queues_could_give_on_nodes_follows_every_change(seed: int) -> None:
    """Sums of many queues are kept from one question to the next: they equal a new count."""
    rng, tasks, queues, nodes = random.Random(seed), TaskColumns(), 40, 6
    assert tasks.preemptible_usage.of(np.ones(queues, np.bool_), nodes).shape == (2, nodes)
    rows: list[int] = []
    asked = np.ones(queues, np.bool_)
    for _ in range(120):
        for _ in range(rng.randrange(4)):
            place = Footprint(rng.randrange(nodes), (0, 1), 500, (rng.randrange(9), 1))
            row = tasks.put(place, cls=0, job=0, index=0, victim=-1, priority=50)
            tasks.set_victim(row, rng.randrange(-1, queues))
            rows.append(row)
        if rows and rng.random() < 0.5:
            tasks.drop(rows.pop(rng.randrange(len(rows))))
        if rows:
            tasks.set_victim(rng.choice(rows), rng.randrange(-1, queues))
        asked[rng.randrange(queues)] ^= True
        few = np.arange(queues) == rng.randrange(queues)
        for mask in (asked, few, rng.choice([asked, ~asked])):
            counted = PreemptibleUsage(tasks).of(mask, nodes)
            assert tasks.preemptible_usage.of(mask, nodes).tolist() == counted.tolist()
