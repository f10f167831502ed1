"""The order of nodes, rule by rule, and the step for many tasks alike."""

import random

import numpy as np
import pytest

from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.scoring.chooser import NOWHERE
from carrel_scheduler.core.settings import Settings, Strategy
from unit.core.clusters import Cluster, cluster, node

ONE = Request(gpus=1, cpu_milli=1_000)


def test_nothing_fits() -> None:
    world = cluster(node("a", 2), node("b", 2))
    assert world.pick(Request(gpus=3)) is None
    assert world.spread(Request(gpus=2), 3) is None


def test_least_free_gpu_then_least_cpu_then_name() -> None:
    world = cluster(node("c"), node("b"), node("a"))
    assert world.pick(ONE) == "a"
    world.take("b", cpu=1)
    assert world.pick(ONE) == "b"
    world.take("c", (0,))
    assert world.pick(ONE) == "c"


def test_slots_do_not_decide() -> None:
    world = cluster(node("b"), node("x"))
    world.nodes.drop("x")
    world.nodes.set(node("a"))
    world.nodes.set(node("c"))
    assert world.pick(ONE) == "a"


def test_a_score_goes_before_everything() -> None:
    world = cluster(node("a"), node("b"), node("c"))
    cls = world.classes.intern(ONE)
    world.take("a", (0,))
    view = world.room().idle
    counts = world.capacity.counts(view, cls)
    score = np.zeros(len(counts), np.int64)
    score[world.nodes.slot("c")] = 1
    chosen = world.chooser.pick(cls, counts, view, score=score)
    assert world.nodes.names[chosen] == "c"
    within = np.zeros(len(counts), np.bool_)
    within[world.nodes.slot("b")] = True
    assert world.nodes.names[world.chooser.pick(cls, counts, view, within, score)] == "b"
    assert world.chooser.pick(cls, counts, view, np.zeros_like(within)) == NOWHERE


def test_wishes_go_before_packing() -> None:
    world = cluster(node("a"), node("b", labels=(("x", "1"),)), node("c"))
    world.take("a", (0,))
    wish = NodeConstraint(preferred=(("x", frozenset({"1"})),))
    assert world.pick(Request(gpus=1, where=wish)) == "b"
    assert world.pick(Request(gpus=1)) == "a"
    assert world.pick(Request(gpus=1, where=NodeConstraint(avoided=frozenset("a")))) == "b"
    assert world.pick(Request(gpus=1, where=NodeConstraint(avoided=frozenset("abc")))) == "a"


def test_shares_gather_on_shared_devices() -> None:
    world = cluster(node("a"), node("b"), node("c"))
    world.take("a", (0, 1, 2, 3))
    world.take("b", (0,), 500)
    assert world.pick(Request(share_milli=300)) == "b"
    assert world.pick(Request(share_milli=600)) == "a"
    assert world.pick(Request(share_milli=300, devices=2)) == "a"


def test_work_without_gpus_keeps_away_from_gpus() -> None:
    world = cluster(node("a", 8, cpu_milli=4_000), node("b", 0), node("c", 0))
    world.take("c", cpu=1_000)
    assert world.pick(Request(cpu_milli=1_000)) == "c"
    assert world.pick(Request(cpu_milli=63_500)) == "b"
    assert world.pick(ONE) == "a"


def test_work_without_gpus_is_packed_by_cpu() -> None:
    world = cluster(node("a"), node("b"))
    world.take("a", (0, 1))
    world.take("b", cpu=5_000)
    assert world.pick(Request(cpu_milli=1_000)) == "b"


def test_spread_takes_the_emptiest() -> None:
    even = Settings(gpu_strategy=Strategy.SPREAD, cpu_strategy=Strategy.SPREAD)
    world = cluster(node("a", 8), node("b", 4), node("c", 8), settings=even)
    world.take("a", (0, 1))
    world.take("c", (0,))
    assert world.pick(Request(gpus=1)) == "b"
    world.take("b", (0,))
    assert world.pick(Request(gpus=1)) == "c"
    world.take("a", cpu=6_400)
    world.take("b", cpu=6_399)
    world.take("c", cpu=6_401)
    assert world.pick(Request(cpu_milli=1)) == "b"


def test_strategies_are_set_apart() -> None:
    world = cluster(node("a"), node("b"), settings=Settings(gpu_strategy=Strategy.SPREAD))
    world.take("b", (0,), cpu=1_000)
    assert world.pick(Request(gpus=1)) == "a"
    assert world.pick(Request(cpu_milli=1)) == "b"


def test_many_fill_node_after_node() -> None:
    world = cluster(node("a"), node("b"), node("c"))
    world.take("b", (0, 1, 2, 3, 4))
    world.take("c", (0,))
    assert world.spread(ONE, 12) == [("b", 3), ("c", 7), ("a", 2)]
    assert world.spread(ONE, 18) == [("b", 3), ("c", 7), ("a", 8)]
    assert world.spread(ONE, 19) is None


@pytest.mark.parametrize("request_", [ONE, Request(share_milli=400), Request(cpu_milli=1_000)])
@pytest.mark.parametrize("learned", [False, True])
def test_the_first_of_many_is_the_one_of_one(request_: Request, learned: bool) -> None:
    rng = random.Random(3)
    for _ in range(20):
        world = scattered(rng)
        if learned:
            teach(world)
        found = world.spread(request_, 5)
        assert found is not None
        assert found[0][0] == world.pick(request_)
        assert sum(count for _, count in found) == 5


def test_the_choice_is_the_smallest_of_the_tuples() -> None:
    """Bin packing over nodes with amounts that do not fit the digits of one number."""
    rng = random.Random(5)
    for _ in range(50):
        names = [f"n{number}" for number in range(12)]
        rng.shuffle(names)
        huge = [2**45 + rng.randrange(3) for _ in names]
        world = cluster(
            *[node(name, 2, cpu_milli=cpu) for name, cpu in zip(names, huge, strict=True)]
        )
        for name in names:
            if rng.random() < 0.5:
                world.take(name, (0,), rng.choice([500, 1000]))
        free = world.nodes.free
        keys = sorted(
            (int(free.devices[:, slot].sum()), int(free.host[0, slot]), name)
            for name, slot in world.nodes.slots.items()
        )
        assert world.pick(Request(gpus=1)) == keys[0][2]


def cls_where(world: Cluster, cls: int) -> NodeConstraint:
    return world.classes.request(cls).where


def scattered(rng: random.Random, nodes: int = 9) -> Cluster:
    world = cluster(*[node(f"n{number}", rng.choice([2, 4, 8])) for number in range(nodes)])
    for number in range(nodes):
        devices = tuple(d for d in range(2) if rng.random() < 0.5)
        world.take(f"n{number}", devices, rng.choice([300, 500, 1000]), rng.randrange(50_000))
    return world


def teach(world: Cluster) -> None:
    """Enough arrivals for values to be known."""
    mix = [ONE, Request(share_milli=400, cpu_milli=4_000), Request(gpus=2, cpu_milli=30_000)]
    for request in mix * 15:
        world.chooser.arrived((world.classes.intern(request),))


@pytest.mark.parametrize(("nodes", "big"), [(9, 3), (9, 2**61), (600, 99), (600, 2**61)])
def test_the_order_of_many_is_that_of_the_tuples(
    nodes: int, big: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of any size, wishes and packing together, for every number of tasks."""
    rng = random.Random(8)
    for _ in range(2):
        world = scattered(rng, nodes)
        cls = world.classes.intern(Request(gpus=1))
        view = world.room().idle
        counts = np.minimum(world.capacity.counts(view, cls), 1)
        score = np.array([rng.randrange(big) for _ in range(len(counts))], np.int64)
        wishes = np.array([rng.randrange(3) for _ in range(len(counts))], np.int64)
        monkeypatch.setattr(world.eligible, "preferred", {cls_where(world, cls): wishes}.get)
        free = view.devices.sum(0)
        best = sorted(
            (-score[slot], -wishes[slot], free[slot], view.host[0, slot], name)
            for name, slot in world.nodes.slots.items()
            if counts[slot]
        )
        names = [name for *_, name in best]
        for tasks in range(1, len(names) + 1):
            found = world.chooser.spread(cls, tasks, counts, view, score=score)
            assert found is not None
            assert [world.nodes.names[slot] for slot, _ in found] == names[:tasks]
