"""Ways past a quota that others' schedulers had to close: none of them is open here.

Each test is one of them, in the loop: whatever a pod says or becomes, it never has more than
what was counted for its project.
"""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from unit.external_pods.world import GPU, World, grouping, pod


@pytest.fixture
def world() -> World:
    """Three nodes of four GPUs; ``a`` has six and never more."""
    world = World()
    limit(world)
    return world


def limit(world: World) -> None:
    quota = ResourceVector(6000, UNLIMITED, UNLIMITED)
    for name in ("a", "b"):
        world.state.apply(QueueSet(name, quota, limit=quota, over_quota=True))
        world.reconciler.project_changed(name)


def bound_gpus(world: World) -> int:
    """GPUs that pods which were bound really ask for."""
    return sum(asked_gpus(real.pod.manifest) for real in world.pods.values() if real.pod.node)


def asked_gpus(one: Pod) -> int:
    return int(one.spec.containers[0].resources.requests[GPU])


def counted_gpus(world: World, project: str = "a") -> int:
    """GPUs that count for a project."""
    return sum(
        asked_gpus(task.pod.manifest)
        for workload in world.reconciler.current.index.workloads.values()
        if workload.grouping.project == project
        for task in workload.tasks
        if task.allocation is not None and task.pod is not None
    )


@pytest.mark.parametrize(
    "amounts",
    [
        {"cpu": "9223372036854775807"},
        {"cpu": "10E"},
        {"memory": "9223372036854775807"},
        {"memory": "16Ei"},
        {GPU: "9223372036854775807"},
        {GPU: "1e30"},
        {"rdma/hca": "9223372036854775807"},
        {"ephemeral-storage": "9223372036854775807"},
        {"cpu": "1e300", "memory": "1e300", GPU: "1e300"},
    ],
)
@pytest.mark.parametrize("containers", [1, 3])
def test_amounts_beyond_64_bits_wait_for_ever_and_end_nothing(
    world: World, amounts: dict[str, str], containers: int
) -> None:
    huge = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    told = pod("huge", containers=[huge] * containers)
    world.add("p", grouping("p"))
    world.arrive_as(told, grouping("huge"))
    world.settle()
    assert set(world.bound()) == {"p"}


@pytest.mark.parametrize("amounts", [{"cpu": "-1"}, {GPU: "-4"}, {"memory": "-1Gi"}])
def test_nobody_gets_room_by_asking_for_less_than_nothing(
    world: World, amounts: dict[str, str]
) -> None:
    negative = {"name": "less", "resources": {"requests": amounts}}
    whole = {"name": "main", "resources": {"requests": {GPU: "4", "cpu": "2", "memory": "2Gi"}}}
    world.arrive_as(pod("less", containers=[whole, negative]), grouping("less"))
    world.settle()
    assert world.bound() == {}
    assert "at least 0" in world.told["less"]


def test_the_next_pod_of_one_that_gave_way_does_not_get_its_place_for_more(world: World) -> None:
    """A place that is held for a successor was counted for what the one before asked for."""
    job = grouping("job", controlled=True)
    world.add("p0", job, gpus=1)
    world.settle()
    world.evict("uid-p0")
    world.delete("uid-p0")
    world.turn()  # the place is taken for the next pod already
    world.add("p1", job, gpus=4)
    world.add("p2", grouping("p2"), gpus=4)
    world.settle()
    assert bound_gpus(world) <= 6
    assert bound_gpus(world) == counted_gpus(world) == 4


def test_a_pod_that_grows_while_its_binding_is_on_its_way_is_counted_anew(world: World) -> None:
    world.add("p", grouping("p"), gpus=1)
    world.add("q", grouping("q"), gpus=4)
    world.turn()
    larger = pod("p", gpus=4)
    world.see("uid-p", manifest=larger)
    world.turn()
    world.carry_out(lambda: "again")  # the API server refuses the version that was decided on
    world.now += 60.0
    world.settle()
    world.now += 60.0
    world.settle()
    assert bound_gpus(world) == counted_gpus(world) <= 6


def test_one_of_a_gang_that_grows_is_not_bound_for_what_it_asked_before(world: World) -> None:
    whole = grouping("g", roles=(GangRole("", 2),), controlled=True)
    world.add("g0", whole, gpus=1)
    world.add("g1", whole, gpus=1)
    world.settle()
    world.evict("uid-g0")
    world.delete("uid-g0")
    world.turn()
    world.add("g2", whole, gpus=4)
    world.add("q", grouping("q"), gpus=4)
    for _ in range(3):
        world.settle()
        world.now += 61.0
    assert bound_gpus(world) == counted_gpus(world) <= 6


@pytest.mark.parametrize(
    "foreign",
    [
        {"project": "b"},
        {"user": "grace"},
        {"project": "b", "priority": 1000},
    ],
)
def test_a_pod_that_names_anothers_group_is_no_part_of_it(
    world: World, foreign: dict[str, Any]
) -> None:
    """It neither makes the group whole nor takes its place, project or priority."""
    mine = grouping("ns/g", user="ada", roles=(GangRole("", 2),), controlled=True)
    world.add("g0", mine, gpus=1)
    theirs = grouping(
        "ns/g", roles=(GangRole("", 2),), controlled=True, **{"user": "ada", **foreign}
    )
    world.add("evil", theirs, gpus=4)
    world.settle()
    assert world.bound() == {}
    world.add("g1", mine, gpus=1)
    world.settle()
    assert set(world.bound()) == {"g0", "g1"}
    assert counted_gpus(world, "a") == 2


def test_a_group_that_wants_more_members_while_it_runs_gets_no_more_than_it_may(
    world: World,
) -> None:
    few = grouping("g", roles=(GangRole("", 2),), controlled=True)
    world.add("g0", few, gpus=2)
    world.add("g1", few, gpus=2)
    world.settle()
    more = grouping("g", roles=(GangRole("", 5),), controlled=True)
    for number in range(2, 5):
        world.add(f"g{number}", more, gpus=2)
    world.settle()
    assert bound_gpus(world) == counted_gpus(world) == 6


def test_a_pod_whose_label_went_while_it_ran_counts_as_before(world: World) -> None:
    world.add("p", grouping("p"), gpus=4)
    world.settle()
    world.see("uid-p", grouping=grouping("p", "nobodys"))
    world.add("q", grouping("q"), gpus=4)
    world.settle()
    assert set(world.bound()) == {"p"}


def test_a_pod_that_says_it_uses_less_once_it_runs_is_counted_in_full(world: World) -> None:
    """Annotations can be changed at any time, and are read again after a restart."""
    world.add("p", grouping("p"), gpus=4)
    world.settle()
    real = world.pods["uid-p"].pod.manifest
    notes = {"carrel.dev/gpu-share": "0.5"}
    meta = msgspec.structs.replace(real.metadata, annotations=notes)
    world.see("uid-p", manifest=msgspec.structs.replace(real, metadata=meta))
    world.restart()
    limit(world)
    world.add("q", grouping("q"), gpus=4)
    world.settle()
    assert set(world.bound()) == {"p"}
