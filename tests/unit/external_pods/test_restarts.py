"""Restarts of gangs, and workers that autoscalers add: no place is counted twice."""

import pytest

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.engines.contract import LATE_SECONDS
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole, Grouping
from unit.external_pods.world import World, grouping

HEAD_AND_WORKERS = (GangRole("headgroup", 1), GangRole("small", 2))


@pytest.fixture
def world() -> World:
    world = World()  # three nodes with four GPUs each
    world.project("a", 6)
    return world


def gang(*roles: GangRole) -> Grouping:
    return grouping("g", "a", roles=roles, controlled=True)


def in_use(world: World) -> int:
    """GPUs that the core counts for all work."""
    taken = world.state.nodes.free.devices[:4, :3] < 1000
    return int(taken.sum())


def test_a_set_of_jobs_that_restarts_is_counted_once(world: World) -> None:
    """The new pods come while the old ones still end, as a JobSet makes them."""
    whole = gang(GangRole("driver", 1), GangRole("workers", 2))
    roles = ("driver", "workers", "workers")
    for number, role in enumerate(roles):
        world.add(f"old-{number}", whole, role=role)
    world.settle()
    assert in_use(world) == 3
    for number in range(3):
        world.see(f"uid-old-{number}", ending=True)
    for number, role in enumerate(roles):
        world.add(f"new-{number}", whole, role=role)
    world.settle()
    assert in_use(world) == 3
    assert "place of pod `old-0`, which is still ending" in world.told["new-0"]
    for number in range(3):
        world.delete(f"uid-old-{number}")
    world.settle()
    assert sorted(world.bound()) == ["new-0", "new-1", "new-2"]
    assert in_use(world) == 3
    asked = [len(one.asking()) for one in world.reconciler.current.index.workloads.values()]
    assert sum(asked) == 3


def test_a_worker_that_failed_and_comes_again_takes_its_own_place(world: World) -> None:
    whole = gang(GangRole("launcher", 1), GangRole("worker", 2))
    for name, role in (("l", "launcher"), ("w0", "worker"), ("w1", "worker")):
        world.add(name, whole, role=role)
    world.settle()
    world.see("uid-w1", outcome=Outcome.FAILED)
    world.add("w1-again", whole, role="worker")
    world.settle()
    world.delete("uid-w1")
    world.settle()
    assert set(world.bound()) == {"l", "w0", "w1-again"}
    assert in_use(world) == 3


def test_workers_beyond_the_minimum_come_and_go_without_the_cluster(world: World) -> None:
    whole = gang(*HEAD_AND_WORKERS)
    world.add("head", whole, role="headgroup")
    world.add("w0", whole, role="small")
    world.settle()
    assert world.bound() == {}  # one worker is less than the minimum
    world.add("w1", whole, role="small")
    world.settle()
    assert in_use(world) == 3
    world.add("w2", whole, role="small")  # the autoscaler adds one, and takes it away again
    world.settle()
    assert in_use(world) == 4
    world.delete("uid-w2")
    world.settle()
    assert set(world.bound()) == {"head", "w0", "w1"}
    assert in_use(world) == 3


def test_a_pod_whose_predecessor_does_not_end_is_not_held_up(world: World) -> None:
    whole = gang(GangRole("", 2))
    for name in ("a0", "a1"):
        world.add(name, whole)
    world.settle()
    world.see("uid-a1", ending=True)
    world.add("a1-again", whole)
    world.settle()
    assert "a1-again" not in world.bound()
    world.now += 30 + LATE_SECONDS + 1
    world.settle()
    assert "a1-again" in world.bound()


def test_a_pod_that_came_early_is_not_lost_with_the_task_or_the_project(world: World) -> None:
    whole = gang(GangRole("", 2))
    for name in ("a0", "a1"):
        world.add(name, whole)
    world.settle()
    world.see("uid-a1", ending=True)
    world.add("a1-again", whole)
    world.settle()
    world.see("uid-a1", outcome=Outcome.SUCCEEDED)
    world.settle()
    assert "a1-again" in world.bound()
    world.see("uid-a0", ending=True)
    world.add("a0-again", whole)
    world.settle()
    world.reconciler.project_deleted("a", world.now)
    assert "uid-a0-again" in world.reconciler.current.index.without_queue["a"]
