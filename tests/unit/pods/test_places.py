"""Where a pod may run is what Kubernetes would say, and follows what changes."""

import pytest

from carrel_scheduler.core.requests import GPU_RESOURCE, HOST, NodeConstraint
from carrel_scheduler.engines.kubernetes.pods.node_groups import NodeGroups
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import (
    PlacementConstraints,
    PlacementRequest,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.groups import NodeGroupSpec
from carrel_schema.names import NODE_GROUP
from unit.pods.making import container, node, pod
from unit.pods.places import PREFERRED, app, cluster, expression, nodes, wants

# What the nodes are


def test_a_pod_without_wishes_may_run_anywhere_and_need_not_ask_again() -> None:
    found = cluster().ask(pod())
    assert found == PlacementRequest(found.request)
    assert found.request.where == NodeConstraint()


def test_selectors_are_told_as_they_are() -> None:
    found = cluster().ask(pod(nodeSelector={"zone": "a", "arch": "arm"}))
    assert found.request.where.labels == (
        ("arch", frozenset({"arm"})),
        ("zone", frozenset({"a"})),
    )
    assert not found.follows


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (wants([expression("zone", "In", "a", "c")]), {"a1", "a2"}),
        (wants([expression("zone", "NotIn", "a")]), {"b1", "bare"}),
        (wants([expression("zone", "Exists")]), {"a1", "a2", "b1"}),
        (wants([expression("zone", "DoesNotExist")]), {"bare"}),
        (wants([expression("size", "Gt", "1")]), {"a2", "b1"}),
        (wants([expression("size", "Lt", "2")]), {"a1"}),
        (wants([expression("zone", "In", "a"), expression("size", "Gt", "1")]), {"a2"}),
        (wants([expression("zone", "In", "b")], [expression("size", "In", "1")]), {"a1", "b1"}),
        (wants(fields=[expression("metadata.name", "In", "a1")]), {"a1"}),
        (wants(fields=[expression("metadata.name", "NotIn", "a1")]), {"a2", "b1", "bare"}),
        (wants([expression("zone", "In", "b")], fields=[expression("metadata.name", "In", "a1")]),
         {"a1", "b1"}),
        (wants([]), set()),
        (wants([], [expression("zone", "In", "b")]), {"b1"}),
    ],
)  # fmt: skip
def test_affinity_to_nodes(of: Pod, expected: set[str]) -> None:
    assert nodes(cluster(), of) == expected


def test_an_operator_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PodRefused, match="bad_operator"):
        cluster().ask(wants([expression("zone", "Near", "a")]))


def test_names_are_worked_out_again_when_nodes_change() -> None:
    places, of = cluster(), wants([expression("zone", "NotIn", "a")])
    assert places.ask(of).follows
    before = places.version
    places.set_node(node("c1", labels={"zone": "c"}))
    assert places.version != before
    assert nodes(places, of) == {"b1", "bare", "c1"}
    places.drop_node("b1")
    places.set_node(node("c1", labels={"zone": "a"}))
    assert nodes(places, of) == {"bare"}


def test_what_does_not_matter_changes_nothing() -> None:
    places = cluster()
    before = places.version, places.manner
    places.set_node(node("bare", allocatable={"cpu": "1"}))
    places.put_pod(app("p", "web", "a1"))
    places.drop_node("never there")
    assert (places.version, places.manner) == before


def test_equal_pods_are_answered_by_the_same_object() -> None:
    places = cluster()
    one, other = (
        places.ask(pod(name, affinity=wants([expression("zone", "Exists")]).spec.affinity))
        for name in ("one", "other")
    )
    assert one is other


def test_wishes_count_by_their_weight() -> None:
    wishes = [
        {"weight": 100, "preference": {"matchExpressions": [expression("zone", "In", "a")]}},
        {"weight": 50, "preference": {"matchExpressions": [expression("zone", "NotIn", "a")]}},
    ]
    found = cluster().ask(pod(affinity={"nodeAffinity": {PREFERRED: wishes}}))
    in_a, elsewhere = ("zone", frozenset({"a"})), (HOST, frozenset({"b1", "bare"}))
    assert found.request.where.preferred == (in_a, in_a, elsewhere)
    assert found.follows


def test_nodes_that_would_rather_be_left_alone_are_taken_last() -> None:
    soft = [{"key": "spot", "effect": "PreferNoSchedule"}]
    places = cluster()
    manner = places.manner
    places.set_node(node("a1", labels={"zone": "a"}, taints=soft))
    assert places.manner != manner
    found = places.ask(pod()).request.where
    assert found.preferred == ((HOST, frozenset({"a2", "b1", "bare"})),)
    tolerant = pod(tolerations=[{"key": "spot", "operator": "Exists"}])
    assert places.ask(tolerant).request.where.preferred == ()


def test_tolerations_for_one_effect_follow_the_taints_that_there_are() -> None:
    places = cluster()
    of = pod(tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    assert places.ask(of).request.where.tolerations == frozenset()
    places.set_node(node("t", taints=[{"key": "k", "value": "v", "effect": "NoExecute"}]))
    assert places.ask(of).request.where.tolerations == {"k:NoExecute=v"}


def test_gpus_of_another_vendor_are_other_gpus() -> None:
    asks = {
        name: pod(containers=[container(requests={name: "1"})])
        for name in ("nvidia.com/gpu", "amd.com/gpu")
    }
    offers = {
        name: node(name, allocatable={"cpu": "1", f"{name}.com/gpu": "8"})
        for name in ("nvidia", "amd")
    }
    places = cluster(offers["nvidia"])
    assert places.ask(asks["nvidia.com/gpu"]).request.where.labels == ()
    places.set_node(offers["amd"])
    for name, of in asks.items():
        assert places.ask(of).request.where.labels == ((GPU_RESOURCE, frozenset({name})),)
        assert nodes(places, of) == {name.partition(".")[0]}


def test_nodes_may_be_for_their_roles_only() -> None:
    gpu = node("gpu", labels={"node-role.kubernetes.io/gpu-worker": ""})
    cpu = node("cpu", labels={"node-role.kubernetes.io/carrel-cpu-worker": ""})
    places = cluster(gpu, cpu, by_role=True)
    assert nodes(places, pod()) == {"cpu"}
    whole = pod(containers=[container(requests={"nvidia.com/gpu": "1"})])
    assert nodes(places, whole) == {"gpu"}


def grouped_nodes() -> tuple[PlacementConstraints, NodeGroups]:
    places = PlacementConstraints()
    groups = places.groups
    groups.set("a-fast", NodeGroupSpec(match_labels={"model": "h100"}, role="training"))
    groups.set("b-all", NodeGroupSpec(match_labels={"model": "h100"}))
    groups.set("slow", NodeGroupSpec(match_labels={"model": "t4"}, projects=("vision",)))
    groups.set("nothing", NodeGroupSpec())
    for name, labels in (
        ("h", {"model": "h100"}),
        ("t", {"model": "t4"}),
        ("own", {"run.ai/type": "dgx-2"}),
        ("none", {}),
    ):
        one = node(name, labels=labels)
        places.set_node(one)
    return places, groups


@pytest.mark.parametrize(
    ("project", "interactive", "expected"),
    [
        ("vision", False, {"h", "t", "own", "none"}),
        ("vision", True, {"t", "own", "none"}),
        ("speech", False, {"h", "own", "none"}),
        ("speech", True, {"own", "none"}),
    ],
)
def test_groups_of_nodes_are_for_their_projects_and_kinds_of_work(
    project: str, expected: set[str], *, interactive: bool
) -> None:
    places, groups = grouped_nodes()
    open_groups = groups.open_to(project, interactive=interactive)
    where = places.ask(pod(), open_groups).request.where
    found = set(places.nodes.all())
    for key, values in where.labels:
        found = {name for name in found if places.nodes.value(name, key) in values}
    assert found == expected


def test_a_group_may_be_asked_for_by_name_if_it_is_open() -> None:
    places, groups = grouped_nodes()
    open_groups = groups.open_to("speech", interactive=True)
    assert open_groups is not None
    assert nodes(places, pod(labels={NODE_GROUP: "slow"})) == {"t"}
    with pytest.raises(PodRefused) as refused:
        places.ask(pod(labels={NODE_GROUP: "slow"}), open_groups)
    assert refused.value.sentence == (
        "`carrel.dev/node-group` is `slow`; it should be a group open to it: b-all, dgx-2, nothing."
    )


def test_groups_that_bind_nobody_are_not_spoken_of() -> None:
    groups = NodeGroups()
    groups.set("all", NodeGroupSpec(match_labels={"model": "h100"}))
    before = groups.version
    groups.set("all", NodeGroupSpec(match_labels={"model": "h100"}))
    assert (groups.version, groups.open_to("vision", interactive=True)) == (before, None)
    groups.drop("all")
    assert groups.of(node("h", labels={"model": "h100"})) == ""
    assert groups.version != before
