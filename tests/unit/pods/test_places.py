"""Where a pod may run is what Kubernetes would say, and follows what changes."""

from typing import Any

import pytest

from carrel_scheduler.core.requests import HOST, NodeConstraint
from carrel_scheduler.engines.kubernetes.pods.node_groups import NodeGroups
from carrel_scheduler.engines.kubernetes.pods.nodes import GPU_RESOURCE
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import (
    PlacementConstraints,
    PlacementRequest,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from carrel_schema.groups import NodeGroupSpec
from carrel_schema.names import NODE_GROUP
from unit.pods.making import container, node, pod

ZONES = {"a1": "a", "a2": "a", "b1": "b", "bare": ""}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"


def cluster(*more: Node, by_role: bool = False) -> PlacementConstraints:
    places = PlacementConstraints(by_role=by_role)
    for name, zone in ZONES.items():
        size = {"a1": "1", "a2": "2", "b1": "4"}.get(name)
        labels = {"zone": zone, "size": size or ""} if zone else {}
        places.set_node(node(name, labels=labels))
    for one in more:
        places.set_node(one)
    return places


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def wants(*terms: list[dict[str, Any]], fields: list[dict[str, Any]] | None = None) -> Pod:
    """A pod with node affinity; each term a list of expressions."""
    said: list[dict[str, Any]] = [{"matchExpressions": term} for term in terms]
    if fields is not None:
        said.append({"matchFields": fields})
    return pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": said}}})


def nodes(places: PlacementConstraints, of: Pod) -> set[str]:
    """The nodes open to a pod, by everything the core is told."""
    where = places.ask(of).request.where
    found = set(places.nodes.all()) if where.nodes is None else set(where.nodes)
    for key, values in where.labels:
        found = {
            name
            for name in found
            if (name if key == HOST else places.nodes.value(name, key)) in values
        }
    return found


AWAY = "podAntiAffinity"
NEAR = "podAffinity"


def beside(*labels: str, key: str = "zone", side: str = NEAR, **more: Any) -> dict[str, Any]:
    """An affinity to, or against, pods with the label app in ``labels``."""
    term = {
        "topologyKey": key,
        "labelSelector": {"matchExpressions": [expression("app", "In", *labels)]},
        **more,
    }
    return {side: {REQUIRED: [term]}}


def app(name: str, value: str, at: str = "", **more: Any) -> Pod:
    return pod(name, labels={"app": value}, node=at, **more)


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


# Who is there


def test_near_to_others_by_any_key() -> None:
    places = cluster()
    of = app("p", "web", affinity=beside("db"))
    assert places.ask(of).waits
    places.put_pod(app("db", "db", "a1"))
    assert nodes(places, of) == {"a1", "a2"}
    host = app("p", "web", affinity=beside("db", key="kubernetes.io/hostname"))
    assert nodes(places, host) == {"a1"}
    places.put_pod(app("db", "db", "bare"))
    assert nodes(places, of) == set()
    assert places.ask(of).waits == "no node has the pods beside it that it wants to be near to"
    places.put_pod(app("db", "db", "bare", phase="Failed"))
    assert nodes(places, host) == set()


def test_the_first_of_those_who_want_each_other_may_go_anywhere_with_the_key() -> None:
    places = cluster()
    of = app("p", "web", affinity=beside("web"))
    assert nodes(places, of) == {"a1", "a2", "b1"}
    places.put_pod(app("q", "web", "b1"))
    assert nodes(places, of) == {"b1"}


def test_all_terms_are_about_the_same_pods() -> None:
    has_x = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"x": "1"}}}
    both = {NEAR: {REQUIRED: [*beside("db")[NEAR][REQUIRED], has_x]}}
    places = cluster()
    places.put_pod(app("db", "db", "a1"))
    places.put_pod(pod("x", labels={"x": "1"}, node="a2"))
    of = app("p", "web", affinity=both)
    assert places.ask(of).waits
    places.put_pod(pod("dbx", labels={"x": "1", "app": "db"}, node="a2"))
    assert nodes(places, of) == {"a2"}


def test_away_from_others() -> None:
    places = cluster()
    of = app("p", "web", affinity=beside("db", side=AWAY))
    assert nodes(places, of) == set(ZONES)
    places.put_pod(app("db", "db", "a1"))
    assert nodes(places, of) == {"b1", "bare"}
    places.drop_pod("default/db")
    assert nodes(places, of) == set(ZONES)


def test_who_is_there_keeps_others_away_too() -> None:
    places = cluster()
    of, other = app("p", "web"), app("q", "db")
    assert not places.ask(of).follows
    manner = places.manner
    places.put_pod(app("loner", "db", "a1", affinity=beside("web", side=AWAY)))
    assert places.manner != manner
    assert nodes(places, of) == {"b1", "bare"}
    assert (places.ask(of).follows, places.ask(of).checked) == (True, True)
    assert not places.ask(other).follows
    places.put_pod(app("loner", "db", "b1", affinity=beside("web", side=AWAY)))
    assert nodes(places, of) == {"a1", "a2", "bare"}
    places.drop_pod("default/loner")
    assert nodes(places, of) == set(ZONES)
    assert places.manner != manner


def test_terms_look_into_their_own_namespace_unless_they_say_others() -> None:
    places = cluster()
    places.put_pod(app("db", "db", "a1", namespace="lab"))
    terms = {
        "own": beside("db"),
        "named": beside("db", namespaces=["lab"]),
        "all": beside("db", namespaceSelector={}),
        "selected": beside("db", namespaceSelector={"matchLabels": {"team": "x"}}),
    }
    pods = {name: app(name, "web", affinity=affinity) for name, affinity in terms.items()}
    found = {name: nodes(places, of) for name, of in pods.items()}
    near = {"a1", "a2"}
    assert found == {"own": set(), "named": near, "all": near, "selected": set()}
    namespace = pod("lab", labels={"team": "x"})
    places.set_namespace(namespace)  # type: ignore[arg-type]  # has the same metadata
    assert nodes(places, pods["selected"]) == near


def test_label_keys_mean_the_pods_own_values() -> None:
    places = cluster()
    for revision, at in (("1", "a1"), ("2", "b1")):
        places.put_pod(pod(revision, labels={"app": "web", "rev": revision}, node=at))
    same = beside("web", matchLabelKeys=["rev"])
    other = beside("web", mismatchLabelKeys=["rev"])
    labels = {"app": "web", "rev": "2"}
    assert nodes(places, pod("p", labels=labels, affinity=same)) == {"b1"}
    assert nodes(places, pod("p", labels=labels, affinity=other)) == {"a1", "a2"}


def test_members_of_one_workload_that_avoid_each_other_are_told_to_keep_apart() -> None:
    places = cluster()
    host = beside("web", side=AWAY, key="kubernetes.io/hostname")
    assert places.ask(app("p", "web", affinity=host)).request.where.apart == HOST
    zone = beside("web", side=AWAY)
    assert places.ask(app("p", "web", affinity=zone)).request.where.apart == "zone"
    assert places.ask(app("p", "db", affinity=zone)).request.where.apart == ""


def test_two_of_one_turn_do_not_get_in_each_others_way() -> None:
    places = cluster()
    of = [app(name, "web", affinity=beside("web", side=AWAY)) for name in ("p", "q")]
    assert all("a1" in nodes(places, one) for one in of)
    places.put_pod(of[0], "a1")
    assert not places.still_fits(of[1], "a2")
    assert places.still_fits(of[1], "b1")
    places.drop_pod("default/p")
    assert places.still_fits(of[1], "a2")
    assert places.still_fits(app("db", "db"), "a1")


# Ports


def port(number: int, **more: Any) -> dict[str, Any]:
    return {"containers": [container(ports=[{"hostPort": number, **more}])]}


@pytest.mark.parametrize(
    ("theirs", "ours", "free"),
    [
        (port(80), port(80), False),
        (port(80), port(81), True),
        (port(80), port(80, protocol="UDP"), True),
        (port(80, hostIP="10.0.0.1"), port(80, hostIP="10.0.0.2"), True),
        (port(80, hostIP="10.0.0.1"), port(80, hostIP="10.0.0.1"), False),
        (port(80, hostIP="10.0.0.1"), port(80), False),
        (port(80), port(80, hostIP="10.0.0.1"), False),
        (port(0), port(0), True),
    ],
)
def test_ports_of_a_node_are_taken_once(
    theirs: dict[str, Any], ours: dict[str, Any], *, free: bool
) -> None:
    places, of = cluster(), pod("ours", **ours)
    places.put_pod(pod("theirs", node="a1", **theirs))
    assert ("a1" in nodes(places, of)) is free
    assert places.still_fits(of, "a1") is free
    places.drop_pod("default/theirs")
    assert "a1" in nodes(places, of)


def test_nobody_has_the_port_free() -> None:
    places = cluster()
    for number, name in enumerate(ZONES):
        places.put_pod(pod(f"theirs-{number}", node=name, **port(80)))
    found = places.ask(pod("ours", **port(80)))
    assert (found.waits, found.follows) == ("no node has its ports free", True)
    assert found.request.where.apart == HOST


# Spread


def spread(skew: int = 1, key: str = "zone", **more: Any) -> dict[str, Any]:
    constraint = {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }
    return {"topologySpreadConstraints": [constraint]}


def test_pods_are_spread_over_the_values_of_a_label() -> None:
    places = cluster()
    of = app("p", "web", **spread())
    assert nodes(places, of) == {"a1", "a2", "b1"}
    places.put_pod(app("one", "web", "a1"))
    assert nodes(places, of) == {"b1"}
    assert not places.still_fits(of, "a2")
    assert nodes(places, app("p", "web", **spread(2))) == {"a1", "a2", "b1"}
    places.put_pod(app("one", "web", "a1", deleted=True))
    assert nodes(places, of) == {"a1", "a2", "b1"}


def test_a_second_pod_on_the_same_node_counts_too() -> None:
    places = cluster()
    of = app("p", "web", **spread(2))
    for number in range(2):
        assert "b1" in nodes(places, of)
        places.put_pod(app(f"there-{number}", "web", "b1"))
    assert nodes(places, of) == {"a1", "a2"}


def test_only_nodes_that_the_pod_may_use_count() -> None:
    places = cluster()
    places.put_pod(app("one", "web", "a1"))
    only: dict[str, Any] = {"nodeSelector": {"zone": "a"}}
    assert nodes(places, app("p", "web", **spread(), **only)) == {"a1", "a2"}
    ignoring = places.ask(app("p", "web", **spread(nodeAffinityPolicy="Ignore"), **only))
    assert ignoring.waits == "no node would keep its pods evenly spread"


def test_too_few_values_count_as_empty_ones() -> None:
    places = cluster()
    for name, at in (("one", "a1"), ("two", "b1")):
        places.put_pod(app(name, "web", at))
    assert nodes(places, app("p", "web", **spread())) == {"a1", "a2", "b1"}
    few = places.ask(app("p", "web", **spread(minDomains=3)))
    assert few.waits == "no node would keep its pods evenly spread"


def wishes(places: PlacementConstraints, of: Pod) -> list[tuple[str, frozenset[str]]]:
    found = places.ask(of)
    assert not found.waits
    assert found.request.where.nodes is None
    return sorted(set(found.request.where.preferred))


def weighted(weight: int, side: str) -> dict[str, Any]:
    (term,) = beside("db")[NEAR][REQUIRED]
    return {side: {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}


def test_wishes_between_pods_are_scored_and_bind_nobody() -> None:
    places = cluster()
    near, away = (app("p", "web", affinity=weighted(10, side)) for side in (NEAR, AWAY))
    soft = app("p", "web", **spread(whenUnsatisfiable="ScheduleAnyway"))
    assert places.ask(near).follows
    assert wishes(places, near) == wishes(places, away) == []  # nobody is there yet
    places.put_pod(app("one", "db", "a1"))
    places.put_pod(app("two", "web", "b1"))
    assert wishes(places, near) == [(HOST, frozenset({"a1", "a2"}))]
    assert wishes(places, away) == [(HOST, frozenset({"b1", "bare"}))]
    assert wishes(places, soft) == [(HOST, frozenset({"a1", "a2"}))]
    both = weighted(90, NEAR) | {"nodeAffinity": {PREFERRED: [_likes(9, "size", "4")]}}
    found = places.ask(app("p", "web", affinity=both)).request.where.preferred
    assert (found.count(("size", frozenset({"4"}))), len(found)) == (1, 11)


def _likes(weight: int, key: str, value: str) -> dict[str, Any]:
    return {"weight": weight, "preference": {"matchExpressions": [expression(key, "In", value)]}}


def test_a_waiting_pod_hears_of_the_nodes_that_it_may_use_and_of_no_others() -> None:
    places = cluster(
        node("other", labels={"zone": "z"}),
        node("shut", labels={"zone": "a"}, taints=[{"key": "theirs", "effect": "NoSchedule"}]),
    )
    places.put_pod(app("one", "web", "a1"))
    places.put_pod(app("two", "web", "a2"))
    alone = app(
        "p", "web", affinity=beside("web", key=HOSTNAME, side=AWAY), nodeSelector={"zone": "a"}
    )
    assert places.ask(alone).waits == "no node is free of the pods that it may not run beside"
    places.drop_pod("default/two")
    found = places.ask(alone)
    assert (found.waits, found.request.where.nodes) == ("", frozenset({"a2"}))
    nowhere = app(
        "q",
        "web",
        affinity=beside("web", key=HOSTNAME, side=AWAY),
        nodeSelector={"zone": "nowhere"},
    )
    assert places.ask(nowhere).waits == ""  # the core says that there is no such zone


def test_those_who_start_together_are_spread_one_for_each_value() -> None:
    places, of = cluster(), app("p", "web", **spread())
    assert places.ask(of).request.where.apart == ""
    assert places.ask(of, together=True).request.where.apart == "zone"
