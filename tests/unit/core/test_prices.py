"""What typical needs weigh, against counting node by node, and when that is computed again."""

import random

import pytest

from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.scoring.value import ShapesSeen, Value
from carrel_scheduler.core.scoring.value_tables import TypicalNeed
from unit.core.clusters import Cluster, cluster, node

ONLY_X = NodeConstraint(labels=(("gpu", frozenset({"x"})),))
NEEDS = (
    Request(gpus=1, cpu_milli=8_000),
    Request(gpus=2, cpu_milli=3_000, where=ONLY_X),
    Request(share_milli=450, cpu_milli=3_200),
    Request(share_milli=200),
    Request(gpus=4, cpu_milli=40_000),
)


def part_used(seed: int) -> Cluster:
    """Nodes of which parts are free; one is closed, one has a broken device, one too little CPU."""
    dice = random.Random(seed)
    world = cluster(
        *(node(f"n{n}", dice.choice((2, 4, 8)), labels=(("gpu", dice.choice("xy")),))
          for n in range(10)),
        node("closed", 8, schedulable=False),
        node("broken", 4, broken_devices=frozenset({0, 2})),
        node("late", 2),
    )  # fmt: skip
    for name, slot in world.nodes.slots.items():
        free = world.nodes.free
        for device in range(int(world.nodes.devices[slot])):
            free.devices[device, slot] = dice.choice((0, 100, 350, 550, 1000, 1000))
        free.host[0, slot] = -500 if name == "late" else dice.randrange(64_000)
    return world


def free_on(world: Cluster, name: str) -> tuple[list[int], int]:
    """Free thousandths of the devices that take work, and free millicores; nothing if closed."""
    slot, fact = world.nodes.slot(name), world.nodes.fact(world.nodes.slot(name))
    devices = world.nodes.free.devices[: fact.devices, slot].tolist()
    open_ones = [0 if n in fact.broken_devices else free for n, free in enumerate(devices)]
    cpu = int(world.nodes.free.host[0, slot])
    return (open_ones, max(0, cpu)) if fact.schedulable else ([0] * fact.devices, 0)


def held(world: Cluster, need: TypicalNeed, name: str) -> float:
    """How many tasks of a need fit on a node, as a part of one where CPU bounds them."""
    devices, cpu = free_on(world, name)
    cpu = cpu // 500 * 500
    if cpu < need.cpu_milli or not world.eligible.ever(need.request)[world.nodes.slot(name)]:
        return 0
    each = need.whole or need.share
    count = (devices.count(MILLI) if need.whole else 0) // each
    count += 0 if need.whole else sum(free // each for free in devices)
    return min(count, cpu / need.cpu_milli) if need.cpu_milli else count


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ended", [0, 60, 10_000])
def test_prices_are_the_formula(seed: int, ended: int) -> None:
    world = part_used(seed)
    value = world.chooser.value
    value.ended(ended)
    for request in NEEDS:
        value.seen(world.classes.intern(request), 30)
    prices, names = value._prices, list(world.nodes.slots)
    assert prices is not None
    bound = 0.0005 * MILLI * sum(len(free_on(world, name)[0]) for name in names)
    free = sum(sum(free_on(world, name)[0]) for name in names)
    assert len(prices.tables.needs) == len(NEEDS)
    for need, price in zip(prices.tables.needs, prices.price.tolist(), strict=True):
        size = need.whole * MILLI or need.share
        there = sum(held(world, need, name) for name in names)
        assert price == pytest.approx(need.part * ((free + bound) / (there * size + bound)) ** 3)
    returning = min(1, ended / 150)
    assert prices.slots_part == pytest.approx(0.7 - 0.3 * returning)
    assert prices.pack == pytest.approx(0.07 * returning)


def test_prices_are_computed_again_ever_more_rarely() -> None:
    world = cluster(node("a", 4))
    value, found = world.chooser.value, [0]
    class_id, known = world.classes.intern(NEEDS[0]), value.prices
    for arrival in range(1, 19_000):
        value.seen(class_id)
        if value.prices is not known:
            known = value.prices
            found.append(arrival)
    often, every = [0, 32, 64, 128, 256, 512], list(range(1512, 17_000, 1000))
    assert found == [*often, *every, 16_512 + 16_512 // 16, 17_544 + 17_544 // 16]


def test_larger_nodes_are_not_valued_before_prices_know_of_them() -> None:
    world = cluster(node("a", 4))
    value, class_id = world.chooser.value, world.classes.intern(NEEDS[0])
    value.seen(class_id, 32)
    share = world.classes.intern(NEEDS[3])
    assert value.knows(class_id)
    assert value.device(share, world.room().idle, 0) == 0
    world.nodes.set(node("b", 8))
    assert not value.knows(class_id)
    assert value.device(share, world.room().idle, 0) == -1
    value.seen(class_id, 32)
    assert value.knows(class_id)


@pytest.mark.parametrize(
    ("request_", "expected", "times"),
    [
        (Request(gpus=2, cpu_milli=900), (1_000, 2, 1_000), 1),
        (Request(share_milli=250, cpu_milli=500), (500, 0, 250), 1),
        (Request(share_milli=1_000, cpu_milli=1), (500, 1, 1_000), 1),
        (Request(share_milli=300, devices=3, cpu_milli=4_000), (1_333, 0, 300), 3),
        (Request(gpu_memory_mib=20_000), (0, 0, 500), 1),
        (Request(gpu_memory_mib=20_000, devices=2, cpu_milli=700), (500, 0, 500), 2),
        (Request(gpu_memory_mib=40_000), (0, 1, 1_000), 1),
        (Request(mig_profile="1g.5gb"), (0, 0, 125), 1),
        (Request(mig_profile="7g.40gb"), (0, 1, 1_000), 1),
    ],
)
def test_a_need_is_what_each_device_must_give(
    request_: Request, expected: tuple[int, int, int], times: int
) -> None:
    mig_model = "A100-40GB" if request_.mig_profile else ""
    world = cluster(node("a", gpu_memory_mib=40_000, mig_model=mig_model))
    seen = ShapesSeen(world.classes)
    seen.seen(world.classes.intern(request_), 2)
    (only,) = seen.typical()
    assert (only.cpu_milli, only.whole, only.share) == expected
    seen.seen(world.classes.intern(Request(gpus=2, cpu_milli=64_000)), 2)
    parts = {one.cpu_milli: one.part for one in seen.typical()}
    assert parts[64_000] == pytest.approx(1 / (1 + times))


def test_typical_needs_stand_by_size_then_by_number_of_devices() -> None:
    world = cluster(node("a"))
    seen = ShapesSeen(world.classes)
    kinds = [Request(gpus=4), Request(share_milli=500), Request(gpus=1), Request(share_milli=250)]
    for request in (*kinds, Request(share_milli=500, cpu_milli=7_000)):
        seen.seen(world.classes.intern(request), 10_000 // (request.gpus or 1))
    found = [(one.share, one.whole, one.cpu_milli) for one in seen.typical()]
    assert found == [(250, 0, 0), (500, 0, 0), (500, 0, 7_000), (1_000, 1, 0), (1_000, 4, 0)]


def test_what_was_recalled_forgets_the_needs_that_came_since() -> None:
    world = cluster(node("a"))
    seen = ShapesSeen(world.classes)
    seen.seen(world.classes.intern(NEEDS[0]), 5)
    memory = seen.memory()
    for request in NEEDS[1:]:
        seen.seen(world.classes.intern(request), 5_000)
    seen.recall(memory)
    assert (seen.memory()[0], len(seen.typical())) == (5, 1)
    seen.seen(world.classes.intern(NEEDS[4]), 5)
    assert [one.part for one in seen.typical()] == [0.5, 0.5]


def test_nodes_that_may_hold_other_needs_are_valued_apart() -> None:
    """Of equal nodes with different labels each group has its own value, whatever is asked."""
    labels = [("gpu", "x"), ("gpu", "y"), ("disk", "x"), ("gpu", "z")]
    world = cluster(*(node(f"n{n}", 4, labels=(one,)) for n, one in enumerate(labels * 2)))
    wheres = [NodeConstraint(labels=((label, frozenset({value})),)) for label, value in labels[:3]]
    value = world.chooser.value
    for number, where in enumerate(wheres):
        value.seen(world.classes.intern(Request(gpus=1, where=where)), 11 * (number + 1))
    view, nodes = world.room().idle, world.nodes.devices.nonzero()[0]
    plain = world.classes.intern(Request(gpus=1))
    found = value.gains(plain, view, nodes).tolist()
    assert found[:4] == found[4:]
    assert len(set(found[:4])) == 4
    again = Value(world.classes, world.nodes, world.eligible)
    again.recall(value.memory())
    assert again.gains(plain, view, nodes[::-1].copy()).tolist() == found[::-1]
