"""Labels of pods that change while these wait, as those of gated pods do."""

from dataclasses import replace

import pytest

from carrel_scheduler.engines.kubernetes.pods.labels import GangRole
from unit.external_pods.world import World, grouping

ROLES = {"leader": "leader", "w0": "worker", "w1": "worker"}


@pytest.fixture
def world() -> World:
    world = World()  # three nodes with four GPUs each
    world.project("a", 6)
    world.project("b", 6)
    return world


def test_pods_are_of_another_gang_once_their_labels_say_so(world: World) -> None:
    """The first was seen before it had the label that tells its group."""
    roles = (GangRole("leader", 1), GangRole("worker", 2))
    whole = grouping("set", roles=roles, controlled=True)
    part = replace(whole, uid="set-0", name="set-0")
    for name, role in ROLES.items():
        world.add(name, whole if role == "leader" else part, role=role)
        world.see(f"uid-{name}", gated=True)
    world.settle()
    assert world.bound() == {}
    for name in ROLES:
        world.see(f"uid-{name}", gated=False, grouping=part)
    world.settle()
    assert world.bound().keys() == ROLES.keys()
    [workload] = world.reconciler.current.index.workloads.values()
    assert workload.name == "set-0"


def test_a_member_that_leaves_has_the_others_wait_for_another(world: World) -> None:
    whole = grouping("pair", roles=(GangRole("", 2),), controlled=True)
    for name in ("p0", "p1"):
        world.add(name, whole)
        world.see(f"uid-{name}", gated=True)
    world.settle()
    world.see("uid-p0", gated=False)
    world.see("uid-p1", gated=False, grouping=grouping("alone"))
    world.settle()
    assert world.bound().keys() == {"p1"}
    world.add("p2", whole)
    world.settle()
    assert world.bound().keys() == {"p0", "p1", "p2"}


def test_a_pod_that_waits_counts_for_the_project_that_it_names_by_now(world: World) -> None:
    world.add("one", grouping("one"))
    world.see("uid-one", gated=True)
    world.settle()
    world.see("uid-one", gated=False, grouping=grouping("one", "b"))
    world.settle()
    assert world.bound().keys() == {"one"}
    world.see("uid-one", grouping=grouping("one", "a"))
    world.settle()
    [workload] = world.reconciler.current.index.workloads.values()
    assert workload.grouping.project == "b", "with its place it counts for whom it was placed"
