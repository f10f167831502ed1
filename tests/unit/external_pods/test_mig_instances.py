"""Other people's pods with MIG instances by annotation: queued, counted, placed."""

import pytest

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.names import MIG_PROFILE
from unit.external_pods.world import World, grouping, pod

HALF, EIGHTH = 500, 125


@pytest.fixture
def world() -> World:
    """One node with one GPU that is divided as pods ask."""
    world = World(nodes=1, gpus=1, mig_model="A100-80GB")
    world.project("a", 1)
    return world


def asking(name: str, profile: str = "3g.40gb", key: str = MIG_PROFILE) -> Pod:
    """A pod without GPUs of the device plugin, and with an instance."""
    plain = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    return pod(name, notes={key: profile}, containers=[plain])


def arrive(world: World, name: str, profile: str = "3g.40gb", key: str = MIG_PROFILE) -> None:
    world.arrive_as(asking(name, profile, key), grouping(name))


def used_milli(world: World) -> int:
    queues = world.state.queues
    return int(queues.used[0, queues.slots["a"]])


def test_each_gets_slots_of_its_own_and_counts_as_its_part(world: World) -> None:
    arrive(world, "first")
    arrive(world, "second", "1", "nvidia.com/mig-3g.40gb")
    arrive(world, "third")
    world.turn()
    told = {one.pod.name: (one.mig_profile, one.slots) for one in world.binds}
    assert told == {"first": ("3g.40gb", 0b1111), "second": ("3g.40gb", 0b11110000)} or told == {
        "second": ("3g.40gb", 0b1111),
        "first": ("3g.40gb", 0b11110000),
    }
    world.settle()
    assert set(world.bound()) == {"first", "second"}
    rows = [row.gpu_milli for row in world.rows if row.to_phase == "running"]
    assert rows == [HALF, HALF], "the history counts what the quota counts"
    assert used_milli(world) == 2 * HALF
    assert world.told.get("third", "") == ""
    world.delete("uid-first")
    world.settle()
    assert set(world.bound()) == {"second", "third"}


def test_memory_is_the_smallest_instance_with_so_much(world: World) -> None:
    arrive(world, "small", "9Gi", "carrel.dev/gpu-memory")
    world.turn()
    [order] = world.binds
    assert order.mig_profile == "1g.10gb"
    assert order.slots.bit_count() == 1
    world.settle()
    assert used_milli(world) == EIGHTH


def test_the_next_scheduler_finds_them_where_they_are(world: World) -> None:
    for name in ("first", "second"):
        arrive(world, name)
    world.settle()
    world.restart()
    world.project("a", 1)
    world.settle()
    assert used_milli(world) == 2 * HALF
    arrive(world, "third", "1g.10gb")
    world.settle()
    assert "third" not in world.bound(), "both halves are taken"
    world.delete("uid-first")
    world.settle()
    assert "third" in world.bound()


def test_the_quota_holds_for_them(world: World) -> None:
    quota = ResourceVector(HALF, UNLIMITED, UNLIMITED)
    world.settle()
    world.state.apply(QueueSet("a", quota, limit=quota, over_quota=True))
    for name in ("first", "second"):
        arrive(world, name)
    world.settle()
    assert len(world.bound()) == 1


def test_one_that_no_node_divides_for_waits_and_is_told(world: World) -> None:
    arrive(world, "odd", "2g.35gb")
    arrive(world, "bad", "a-lot")
    world.settle()
    assert world.bound() == {}
    assert "`carrel.dev/mig-profile` is `a-lot`" in world.told["bad"]
    assert "1g.10gb" in world.told["bad"]
