"""Gangs of other people's pods that are preempted as a whole only."""

from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.pods.labels import GangRole, Grouping
from unit.external_pods.world import World, grouping


def group(**more: Any) -> Grouping:
    """Of two pods at least."""
    return grouping("g", roles=(GangRole("", 2),), **more)


@pytest.fixture
def world() -> World:
    world = World(nodes=1)
    world.project("a", 4)
    return world


def running(world: World) -> set[str]:
    return {one.pod.ref.name for one in world.pods.values() if one.alive and not one.pod.ending}


@pytest.mark.parametrize("whole", [False, True])
def test_it_goes_with_its_surplus_where_its_group_says_so(world: World, whole: bool) -> None:
    for name in ("g0", "g1", "g2"):
        world.add(name, group(whole=whole))
    world.settle()
    assert running(world) == {"g0", "g1", "g2"}
    world.add("urgent", grouping("urgent", priority=80), gpus=2)
    world.settle()
    left = running(world)
    assert left & {"g0", "g1", "g2"} == (set() if whole else {"g0", "g1"})


def test_pods_that_joined_it_later_go_with_it(world: World) -> None:
    for name in ("g0", "g1"):
        world.add(name, group(whole=True))
    world.settle()
    world.add("late", group(whole=True))
    world.settle()
    assert running(world) == {"g0", "g1", "late"}
    world.add("urgent", grouping("urgent", priority=80), gpus=3)
    world.settle()
    assert running(world) == set()
