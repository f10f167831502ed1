"""Capacity: rows equal direct counts after any history, direct counts equal placing one by one."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.core.capacity import capacity
from carrel_scheduler.core.capacity.capacity import MOST
from carrel_scheduler.core.devices.device_choice import DeviceCapacity, choose, hardware_of
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.requests import NOTHING, NodeConstraint, Request
from unit.core.clusters import GIB, Cluster, cluster, node

LABELLED = NodeConstraint(labels=(("gpu", frozenset({"x"})),))
REQUESTS = (
    NOTHING,
    Request(gpus=1, cpu_milli=8_000),
    Request(gpus=3, memory_mib=100 * GIB),
    Request(gpus=1, where=LABELLED),
    Request(share_milli=300, cpu_milli=1_000),
    Request(share_milli=400, devices=2),
    Request(gpu_memory_mib=30_000),
    Request(mig_profile="2g.20gb", cpu_milli=2_000),
    Request(cpu_milli=7_000, memory_mib=3 * GIB),
    Request(gpus=1, extended=(("nic", 2),)),
    Request(extended=(("licence", 1),)),
)


def mixed() -> Cluster:
    return cluster(
        node("a", gpu_memory_mib=80_000, extended=(("nic", 5),)),
        node("b", 4, gpu_memory_mib=40_000, labels=(("gpu", "x"),)),
        node("c", 0, cpu_milli=20_000),
        node("d", 2, mig_model="A100-80GB", gpu_memory_mib=80_000, labels=(("gpu", "x"),)),
    )


def by_placing(world: Cluster, request: Request, slot: int) -> int:
    """How many tasks go on a node when they are placed one after the other."""
    cls = world.classes.intern(request)
    host = world.classes.host(cls)
    view = world.nodes.free.copy()
    hardware = hardware_of(world.nodes.fact(slot))
    placed = 0
    while placed < 100 and world.eligible.of(request)[slot]:
        if any(int(view.host[row, slot]) < amount for row, amount in enumerate(host)):
            break
        room = DeviceCapacity(view.devices[:, slot], view.slots[:, slot])
        found = choose(world.classes.kinds[cls], hardware, room, tasks=100)
        if found is None:
            break
        view.subtract(Footprint(slot, found.devices, found.milli, host, found.slots))
        placed += 1
    return placed


@pytest.mark.parametrize("request_", REQUESTS)
def test_counts_are_what_can_be_placed(request_: Request) -> None:
    world = mixed()
    world.take("a", (0, 1), 450, 30_000)
    world.take("b", (3,), 1000, 1_000)
    found = world.counts(request_)
    for name, slot in world.nodes.slots.items():
        placed = by_placing(world, request_, slot)
        assert placed == min(found.get(name, 0), 100), name


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("names", ["abcd", "b"])
def test_counts_of_few_nodes_are_brought_up_to_date(request_: Request, names: str) -> None:
    world = mixed()
    cls = world.classes.intern(request_)
    counts = world.capacity.counts(world.nodes.free, cls)
    world.take("a", (0, 1), 450, 30_000)
    world.take("b", (3,), 1000, 1_000)
    nodes = {world.nodes.slots[name] for name in names}
    world.capacity.recount(counts, world.nodes.free, cls, nodes)
    fresh = world.capacity.counts(world.nodes.free, cls)
    assert [counts[node] for node in nodes] == [fresh[node] for node in nodes]


def test_a_task_without_needs_fits_wherever_work_is_taken() -> None:
    world = cluster(node("a"), node("b", schedulable=False))
    assert world.counts(NOTHING) == {"a": MOST}


def test_exact_divisions() -> None:
    world = cluster(node("a", 0, cpu_milli=9_999, memory_mib=3))
    assert world.counts(Request(cpu_milli=3_333)) == {"a": 3}
    assert world.counts(Request(cpu_milli=3_334)) == {"a": 2}
    assert world.counts(Request(memory_mib=3)) == {"a": 1}
    assert world.counts(Request(memory_mib=4)) == {}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_rows_and_totals_follow_any_history(seed: int) -> None:
    world, rng = mixed(), random.Random(seed)
    waiting: list[int] = []
    for _ in range(25):
        what = rng.randrange(6)
        if what == 0:
            waiting.append(world.waiting(rng.choice(REQUESTS)))
        elif what == 1 and waiting:
            world.classes.release(waiting.pop(rng.randrange(len(waiting))))
        elif what == 2:
            name = rng.choice(sorted(world.nodes.slots))
            free = world.nodes.free
            slot = world.nodes.slot(name)
            free.host[0, slot] = rng.randrange(world.nodes.capacity[0, slot] + 1)
            free.devices[: world.nodes.devices[slot], slot] = rng.choice([0, 300, 650, 1000])
            world.capacity.mark(slot)
        elif what == 3:
            labels = rng.choice([(), (("gpu", "x"),)])
            name = rng.choice(["a", "b", "new"])
            fact = node(name, 8, labels=labels, schedulable=rng.random() < 0.8)
            world.nodes.set(fact)
            world.capacity.mark(world.nodes.slot(name))
        elif what == 4:
            check(world)
    check(world)


def check(world: Cluster) -> None:
    idle = world.room().idle
    waiting = [cls for cls in range(len(world.classes)) if world.classes.waiting[cls]]
    every = np.arange(idle.devices.shape[1])
    for cls in waiting:
        counted = world.capacity.counts(idle, cls)
        assert world.capacity.column(cls).tolist() == counted.tolist(), world.classes.request(cls)
        assert world.capacity.total(cls) == counted.sum()
        assert world.capacity.counts(idle, cls, every[1:3]).tolist() == counted[1:3].tolist()
    if waiting:
        many = world.capacity.counts_many(idle, np.array(waiting), every)
        columns = [world.capacity.column(cls).tolist() for cls in waiting]
        assert many.T.tolist() == columns
        totals = world.capacity.totals.take(world.capacity.columns_of(np.array(waiting)))
        assert totals.tolist() == many.sum(0).tolist()


def test_a_class_that_comes_back_finds_its_counts_as_they_are_now() -> None:
    """Nobody waited in it while a node took on the label that it asks for."""
    world, request = mixed(), Request(gpus=1, where=LABELLED)
    world.waiting(Request(gpus=1))
    cls = world.waiting(request)
    check(world)
    world.classes.release(cls)
    world.nodes.set(node("a", labels=(("gpu", "x"),)))
    world.capacity.mark(world.nodes.slot("a"))
    check(world)
    assert world.waiting(request) == cls
    check(world)


def test_few_counts_are_kept_of_classes_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "KEPT", 1)
    world = mixed()
    for request in (*REQUESTS, *REQUESTS):
        cls = world.waiting(request)
        check(world)
        world.classes.release(cls)
        check(world)
    assert len(world.capacity.classes) == 1


def test_a_class_that_nobody_waits_in_is_counted_directly() -> None:
    world = mixed()
    cls = world.classes.intern(Request(gpus=2))
    with pytest.raises(RuntimeError, match="sync comes first"):
        world.capacity.column(cls)
    world.room()
    assert world.capacity.total(cls) == 4 + 2 + 1
