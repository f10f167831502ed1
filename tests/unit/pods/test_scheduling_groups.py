"""Kubernetes' own groups of pods, with the fields of each version that has them."""

from typing import Any

import pytest
from typing_extensions import override

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.gangs import Level
from carrel_scheduler.engines.kubernetes.pods.labels import NEVER_SECONDS, Grouped
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from unit.pods.making import pod
from unit.pods.owners import World, roles

POD_GROUP = "scheduling.k8s.io/v1beta1/PodGroup"
WORKLOAD = "scheduling.k8s.io/v1alpha1/Workload"
RACK = "topology.example/rack"


def member(name: str = "p", **more: Any) -> Pod:
    """A pod of Kubernetes 1.36 or later."""
    return pod(name, schedulingGroup={"podGroupName": "train-workers"}, **more)


def with_group(spec: dict[str, Any], **meta: Any) -> World:
    world = World()
    world.add(POD_GROUP, "train-workers", spec, **meta)
    return world


def gang(least: Any) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": least}}}


def test_pods_of_a_pod_group_start_with_its_minimum() -> None:
    spec = {
        **gang(4),
        "workloadRef": {"workloadName": "train", "templateName": "workers"},
        "schedulingConstraints": {"topology": [{"key": RACK}]},
        "disruptionMode": {"all": {}},
    }
    world = with_group(spec, labels={"carrel.dev/project": "speech"})
    found = world.group(member())
    grouping = found.grouping
    assert (grouping.uid, grouping.name, grouping.kind) == (
        "uid-train-workers",
        "train-workers",
        "PodGroup",
    )
    assert (roles(found), grouping.project) == ({"": 4}, "speech")
    assert grouping.structure is not None
    assert grouping.structure.level == Level(required=RACK)
    assert world.group(member("q")).grouping is grouping


def test_the_group_replaces_what_the_owner_would_make_of_its_pods() -> None:
    world = with_group(gang(2))
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    job = world.add("batch/v1/Job", "train", spec, labels={"carrel.dev/project": "vision"})
    found = world.group(member(owner=job))
    assert (found.grouping.kind, roles(found)) == ("PodGroup", {"": 2})
    assert (found.grouping.project, found.grouping.controlled) == ("vision", True)


@pytest.mark.parametrize(
    ("fields", "priority", "preemptible"),
    [
        ({}, 50, Preemptibility.YES),
        ({"priority": 0}, 50, Preemptibility.YES),
        ({"priorityClassName": "theirs", "priority": 70}, 70, Preemptibility.YES),
        ({"priorityClassName": "inference", "priority": 7}, 125, Preemptibility.NO),
        ({"priority": True, "priorityClassName": ["x"]}, 50, Preemptibility.YES),
    ],
)
def test_the_priority_of_the_group_counts(
    fields: dict[str, Any], priority: int, preemptible: Preemptibility
) -> None:
    grouping = with_group(gang(2) | fields).group(member()).grouping
    assert (grouping.priority, grouping.preemptible) == (priority, preemptible)


def test_a_group_that_preempts_nobody_makes_nobody_give_way() -> None:
    never = with_group({**gang(2), "preemptionPolicy": "Never"}).group(member())
    assert never.grouping.preemption_delay_s == NEVER_SECONDS
    usual = with_group({**gang(2), "preemptionPolicy": "PreemptLowerPriority"}).group(member())
    assert usual.grouping.preemption_delay_s == 0


@pytest.mark.parametrize(
    ("mode", "whole"),
    [
        (None, False),
        ({"single": {}}, False),
        ("Pod", False),
        ({"all": {}}, True),
        ("PodGroup", True),
    ],
)
def test_the_mode_of_disruption_says_whether_it_goes_whole(mode: Any, whole: bool) -> None:
    found = with_group({**gang(2), "disruptionMode": mode}).group(member())
    assert found.grouping.whole is whole


def test_a_group_that_goes_whole_has_no_part_that_does_not() -> None:
    world = with_group({**gang(2), "disruptionMode": {"all": {}}})
    semi = {"carrel.dev/preemptible": "semi-preemptible"}
    one = pod(labels=semi, schedulingGroup={"podGroupName": "train-workers"})
    with pytest.raises(PodRefused, match="as a whole only") as refused:
        world.group(one)
    assert refused.value.field == "carrel.dev/preemptible"


def test_pods_of_a_basic_group_start_each_for_itself_with_its_priority() -> None:
    found = with_group({"schedulingPolicy": {"basic": {}}, "priority": 70}).group(member())
    assert (found.grouping.is_gang, found.grouping.priority) == (False, 70)


def workload_pod(**ref: str) -> Pod:
    """A pod of Kubernetes 1.35."""
    return pod(workloadRef={"name": "train", **ref})


def test_each_replica_of_a_group_in_a_workload_is_a_gang() -> None:
    world = World()
    groups = [
        {"name": "workers", "policy": {"gang": {"minCount": 3}}},
        {"name": "loader", "policy": {"basic": {}}},
    ]
    world.add(WORKLOAD, "train", {"podGroups": groups})
    found = [
        world.group(workload_pod(podGroup="workers", podGroupReplicaKey=key)) for key in ("0", "1")
    ]
    assert [one.grouping.name for one in found] == ["train-workers-0", "train-workers-1"]
    assert [roles(one) for one in found] == [{"": 3}, {"": 3}]
    assert len({one.grouping.uid for one in found}) == 2
    assert not world.group(workload_pod(podGroup="loader")).grouping.is_gang
    with pytest.raises(PodRefused, match="no_pod_group") as refused:
        world.group(workload_pod(podGroup="other"))
    assert "a group in `spec.podGroups` of the Workload `train`" in refused.value.sentence


def test_parts_and_replicas_with_hyphens_are_not_taken_for_each_other() -> None:
    world = World()
    groups = [{"name": name, "policy": {"gang": {"minCount": 3}}} for name in ("a", "a-b")]
    world.add(WORKLOAD, "train", {"podGroups": groups})
    first = world.group(workload_pod(podGroup="a", podGroupReplicaKey="b-c"))
    second = world.group(workload_pod(podGroup="a-b", podGroupReplicaKey="c"))
    assert first.grouping.uid != second.grouping.uid


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (gang(0), "bad_policy"),
        (gang("many"), "bad_policy"),
        ({}, "bad_policy"),
        ({"schedulingPolicy": {"gang": {}, "basic": {}}}, "bad_policy"),
        ({**gang(2), "parentCompositePodGroupName": "pipeline"}, "composite"),
        ({**gang(2), "disruptionMode": {"half": {}}}, "bad_disruption_mode"),
        ({**gang(2), "disruptionMode": "Half"}, "bad_disruption_mode"),
        ({"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}, "bad_disruption_mode"),
    ],
)
def test_groups_that_cannot_be_kept_are_refused(spec: dict[str, Any], code: str) -> None:
    with pytest.raises(PodRefused) as refused:
        with_group(spec).group(member())
    assert refused.value.code == code


def test_a_group_that_is_not_there_is_asked_for_once_in_a_while() -> None:
    world = World()
    for _ in range(3):
        with pytest.raises(PodRefused, match=r"PodGroup of `scheduling\.k8s\.io` in the pod's"):
            world.group(member())
    assert world.asked == ["train-workers"]
    world.add(POD_GROUP, "train-workers", gang(2))
    world.now += 6
    assert roles(world.group(member())) == {"": 2}


def test_another_namespaces_group_and_another_users_pods_are_kept_apart() -> None:
    """A group is looked up where its pod is; who names it as somebody else is a gang of its own."""
    asked: list[tuple[str, str]] = []

    class Namespaced(World):
        @override
        async def get(self, owner: Any, namespace: str) -> Any:
            asked.append((namespace, owner.api_version))
            return await super().get(owner, namespace) if namespace == "lab" else None

    world = Namespaced()
    world.add(POD_GROUP, "train-workers", gang(2))
    with pytest.raises(PodRefused, match="no_pod_group"):
        world.group(member(namespace="elsewhere"))
    found: list[Grouped] = [
        world.group(member(name, namespace="lab", labels={"user": user}))
        for name, user in (("p", "ada"), ("q", "mallory"))
    ]
    assert {namespace for namespace, _ in asked} == {"elsewhere", "lab"}
    assert [one.grouping.user for one in found] == ["ada", "mallory"]


def test_labels_of_groups_precede_the_field() -> None:
    world = with_group(gang(2))
    world.add("carrel.dev/v1alpha1/PodGroup", "mine", {"minMember": 5})
    found = world.group(member(labels={"carrel.dev/pod-group": "mine"}))
    assert (found.grouping.name, roles(found)) == ("mine", {"": 5})
