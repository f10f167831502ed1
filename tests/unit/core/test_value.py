"""The value of node states: learned needs, the formula, what is kept, devices, and memory."""

import random

import numpy as np
import pytest

from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.scoring import value as value_module
from carrel_scheduler.core.scoring.value import FADE_EVERY, FIRST, ShapesSeen, Value
from carrel_scheduler.core.scoring.value_states import QUANTUM
from unit.core.clusters import Cluster, cluster, node

X = NodeConstraint(labels=(("gpu", frozenset({"x"})),))
MIX = (
    Request(gpus=1, cpu_milli=8_000),
    Request(gpus=1, cpu_milli=7_900),
    Request(share_milli=450, cpu_milli=3_152),
    Request(share_milli=450, cpu_milli=10_000, where=X),
    Request(gpus=4, cpu_milli=40_000),
    Request(cpu_milli=12_000),
    Request(share_milli=200),
)


def arrive(world: Cluster, requests: tuple[Request, ...], times: int) -> None:
    for _ in range(times):
        for request in requests:
            world.chooser.arrived((world.classes.intern(request),))


def busy(seed: int) -> Cluster:
    rng = random.Random(seed)
    world = cluster(
        *[
            node(f"n{n}", rng.choice([2, 4, 8]), labels=(("gpu", rng.choice("xy")),))
            for n in range(20)
        ]
    )
    for number in range(20):
        take_some(world, f"n{number}", rng)
    return world


def take_some(world: Cluster, name: str, rng: random.Random) -> None:
    """Set what is free on a node to something else."""
    slot, free = world.nodes.slot(name), world.nodes.free
    for device in range(int(world.nodes.devices[slot])):
        free.devices[device, slot] = rng.choice([0, 100, 350, 550, 1000, 1000])
    free.host[0, slot] = rng.randrange(64_000)


def plain_value(world: Cluster, name: str, devices: list[int], cpu: int) -> float:
    """The formula of the module, need by need."""
    prices = world.chooser.value._prices
    assert prices is not None
    slot, step = world.nodes.slot(name), prices.tables.step
    cpu = cpu // step * step
    total = 0.0
    for need, price in zip(prices.tables.needs, prices.price.tolist(), strict=True):
        if cpu < need.cpu_milli or not world.eligible.ever(need.request)[slot]:
            continue
        if need.whole:
            full = devices.count(MILLI)
            usable, fit = MILLI * full * (full >= need.whole), full // need.whole
        else:
            usable = sum(free for free in devices if free >= need.share)
            fit = sum(free // need.share for free in devices)
        slots = min(fit, cpu / need.cpu_milli) if need.cpu_milli else fit
        total += price * (usable + prices.slots_part * need.milli * slots)
    return total


def plain_gain(world: Cluster, request: Request, name: str) -> int | None:
    """What placing a task is worth, best over the devices of the node."""
    prices = world.chooser.value._prices
    assert prices is not None
    slot, free = world.nodes.slot(name), world.nodes.free
    devices = free.devices[: int(world.nodes.devices[slot]), slot].tolist()
    cpu = int(free.host[0, slot])
    if cpu < request.cpu_milli:
        return None
    options = []
    if request.share_milli:
        for device, amount in enumerate(devices):
            if amount >= request.share_milli:
                after = list(devices)
                after[device] -= request.share_milli
                options.append(after)
    elif devices.count(MILLI) >= request.gpus:
        left = request.gpus
        after = []
        for amount in devices:
            taken = amount == MILLI and left > 0
            left -= taken
            after.append(0 if taken else amount)
        options.append(after)
    if not options:
        return None
    best = max(plain_value(world, name, after, cpu - request.cpu_milli) for after in options)
    loss = plain_value(world, name, devices, cpu) - best + prices.pack * sum(devices)
    return int(np.floor(-loss / QUANTUM + 1e-9))


def gains(world: Cluster, value: Value, request: Request) -> dict[str, int]:
    cls = world.classes.intern(request)
    idle = world.room().idle
    nodes = np.flatnonzero(world.capacity.counts(idle, cls) > 0)
    found = value.gains(cls, idle, nodes).tolist()
    return {world.nodes.names[slot]: gain for slot, gain in zip(nodes.tolist(), found, strict=True)}


def test_nothing_is_known_before_enough_arrivals() -> None:
    world = busy(1)
    cls = world.classes.intern(MIX[0])
    for _ in range(FIRST - 1):
        world.chooser.arrived((cls,))
    assert not world.chooser.value.knows(cls)
    with pytest.raises(LookupError):
        world.chooser.value.gains(cls, world.room().idle, np.array([0]))
    world.chooser.arrived((cls,))
    assert world.chooser.value.knows(cls)
    several = world.classes.intern(Request(share_milli=300, devices=2))
    assert not world.chooser.value.knows(several)


def test_tasks_of_a_gang_count_one_by_one() -> None:
    world = busy(1)
    cls = world.classes.intern(MIX[0])
    world.chooser.arrived((cls,) * FIRST)
    assert world.chooser.value.knows(cls)


@pytest.mark.parametrize("seed", range(5))
def test_gains_are_the_formula(seed: int) -> None:
    world = busy(seed)
    arrive(world, MIX, 12)
    world.chooser.ended(30)
    arrive(world, MIX, 12)
    for request in MIX:
        found = gains(world, world.chooser.value, request)
        expected = {name: plain_gain(world, request, name) for name in found}
        assert found == expected
    assert len(found) > 10


@pytest.mark.parametrize("seed", range(3))
def test_a_device_of_which_all_is_taken_is_left_with_nothing(seed: int) -> None:
    """A thousandth would be of use to others, and dear, as CPU bounds how many of those fit."""
    world = busy(seed)
    smallest = Request(share_milli=1, cpu_milli=500)
    shares = tuple(Request(share_milli=share) for share in (100, 350, 550))
    arrive(world, (*[smallest] * 50, *shares), 12)
    for request in (smallest, *shares):
        found = gains(world, world.chooser.value, request)
        assert found == {name: plain_gain(world, request, name) for name in found}
        assert len(found) > 10


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_follows_every_change(seed: int) -> None:
    world, rng = busy(seed), random.Random(seed)
    arrive(world, MIX, 12)
    for _ in range(30):
        take_some(world, f"n{rng.randrange(20)}", rng)
        request = rng.choice(MIX)
        found = gains(world, world.chooser.value, request)
        assert found == {name: plain_gain(world, request, name) for name in found}


def test_views_may_take_turns() -> None:
    world = busy(2)
    arrive(world, MIX, 12)
    value, cls = world.chooser.value, world.classes.intern(MIX[0])
    idle = world.room().idle
    other = idle.copy()
    other.devices[:] = 0
    nodes = np.flatnonzero(world.capacity.counts(idle, cls) > 0)
    before = value.gains(cls, idle, nodes).tolist()
    assert value.gains(cls, other, nodes).tolist() != before
    assert value.gains(cls, idle, nodes).tolist() == before


@pytest.mark.parametrize("moves", [1, 3, 12])
def test_a_view_that_notes_its_changes_is_followed_like_one_that_does_not(moves: int) -> None:
    world, rng = busy(4), random.Random(moves)
    arrive(world, MIX, 12)
    value, cls, room = world.chooser.value, world.classes.intern(MIX[2]), world.room()
    everywhere = np.arange(len(world.nodes.names))
    before = value.gains(cls, room.idle, everywhere).tolist()
    for _ in range(3):
        for slot in rng.sample(range(20), moves):
            room.bind(Footprint(slot, (0,), int(room.free.devices[0, slot]) // 2, (1000, 0)))
        found = value.gains(cls, room.idle, everywhere).tolist()
        assert room.idle.changes
        other = Value(world.classes, world.nodes, world.eligible)
        other.recall(value.memory())
        assert found == other.gains(cls, room.idle.copy(), everywhere).tolist()
    assert found != before


def test_a_node_that_comes_or_changes_is_valued_as_it_is() -> None:
    world = busy(3)
    arrive(world, MIX, 12)
    gains(world, world.chooser.value, MIX[0])
    world.nodes.set(node("late", 8, labels=(("gpu", "x"),)))
    world.nodes.set(node("n0", 8, labels=(("gpu", "z"),)))
    found = gains(world, world.chooser.value, MIX[0])
    assert "late" in found
    assert found == {name: plain_gain(world, MIX[0], name) for name in found}


def test_what_few_nodes_can_hold_is_dear() -> None:
    """Work that may run anywhere keeps away from the nodes of which only few are left."""
    world = cluster(node("a", 2, labels=(("gpu", "x"),)), *[node(f"b{n}", 2) for n in range(6)])
    assert world.pick(Request(gpus=1, cpu_milli=1_000)) == "a"
    arrive(world, (Request(gpus=1, cpu_milli=1_000), Request(gpus=1, where=X)), FIRST)
    assert world.pick(Request(gpus=1, cpu_milli=1_000)) == "b0"


def test_cpu_that_gpus_need_is_kept_for_them() -> None:
    world = cluster(node("a", 8), node("b", 1))
    arrive(world, (Request(gpus=1, cpu_milli=8_000),), FIRST)
    assert world.pick(Request(cpu_milli=30_000)) == "b"
    world.take("b", cpu=40_000)
    world.take("a", (0, 1, 2, 3))
    assert world.pick(Request(cpu_milli=20_000)) == "a"


def test_the_device_for_a_share() -> None:
    world = cluster(node("a", 4))
    cls = world.classes.intern(Request(share_milli=300))
    slot = world.nodes.slot("a")
    assert world.chooser.value.device(cls, world.room().idle, slot) == -1
    arrive(world, (Request(share_milli=300), Request(share_milli=500), Request(gpus=2)), FIRST)
    free = world.nodes.free.devices
    free[:, slot] = [1000, 800, 1000, 300]
    assert world.chooser.value.device(cls, world.room().idle, slot) == 3
    free[:, slot] = [1000, 1000, 800, 200]
    assert world.chooser.value.device(cls, world.room().idle, slot) == 2
    free[:, slot] = [0, 500, 400, 100]
    assert world.chooser.value.device(cls, world.room().idle, slot) == 2
    free[:, slot] = 0
    assert world.chooser.value.device(cls, world.room().idle, slot) == -1
    assert world.chooser.value.device(world.classes.intern(MIX[0]), world.room().idle, slot) == -1


def test_packing_begins_when_room_comes_back() -> None:
    world = busy(4)
    arrive(world, MIX, 12)
    prices = world.chooser.value._prices
    assert prices is not None
    assert prices.pack == 0
    world.chooser.ended(10**6)
    arrive(world, MIX, 24)
    prices = world.chooser.value._prices
    assert prices is not None
    assert prices.pack == value_module.PACK_RETURNING
    assert prices.slots_part == pytest.approx(value_module.SLOTS_PART_RETURNING)


def test_memory_takes_back_what_was_seen_since() -> None:
    first, second = busy(6), busy(6)
    for world in (first, second):
        arrive(world, MIX, 12)
    memory = first.chooser.value.memory()
    arrive(first, (Request(gpus=2, cpu_milli=1_000),), 500)
    first.chooser.ended(77)
    first.chooser.value.recall(memory)
    for world in (first, second):
        arrive(world, MIX, 40)
    for request in MIX:
        assert gains(first, first.chooser.value, request) == gains(
            second, second.chooser.value, request
        )


def test_a_cluster_without_nodes_learns_too() -> None:
    world = cluster()
    arrive(world, MIX, 40)
    assert not world.chooser.value.knows(0)


def test_typical_needs_cover_the_demand_and_leave_out_the_tail() -> None:
    world = cluster(node("a"))
    seen = ShapesSeen(world.classes)
    seen.seen(world.classes.intern(Request(gpus=8, cpu_milli=90_001)), 10)
    seen.seen(world.classes.intern(Request(share_milli=500, cpu_milli=100)), 100)
    seen.seen(world.classes.intern(Request(share_milli=10)), 1)
    seen.seen(world.classes.intern(Request(cpu_milli=100)), 1000)
    kept = [(one.cpu_milli, one.whole, one.share) for one in seen.typical()]
    assert kept == [(500, 0, 500), (90_500, 8, 1000)]
    assert sum(one.part for one in seen.typical()) == pytest.approx(1)
    assert seen.typical()[1].part == pytest.approx(10 / 110)


def test_a_share_of_several_devices_counts_once_for_each() -> None:
    world = cluster(node("a"))
    seen = ShapesSeen(world.classes)
    seen.seen(world.classes.intern(Request(share_milli=500, devices=3, cpu_milli=3_000)), 1)
    seen.seen(world.classes.intern(Request(share_milli=500, cpu_milli=1_000)), 1)
    (only,) = seen.typical()
    assert (only.cpu_milli, only.share) == (1_000, 500)


def test_old_arrivals_fade() -> None:
    world = cluster(node("a"))
    seen = ShapesSeen(world.classes)
    old, new = world.classes.intern(Request(gpus=1)), world.classes.intern(Request(gpus=2))
    seen.seen(old, 100)
    seen.seen(world.classes.intern(Request(cpu_milli=1)), 20 * FADE_EVERY)
    seen.seen(new, 100)
    parts = {one.whole: one.part for one in seen.typical()}
    assert parts[1] == pytest.approx(parts[2] / 2)
