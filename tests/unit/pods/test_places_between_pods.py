"""Where a pod may run because of others: affinity, ports of nodes, and spread."""

from typing import Any

import pytest

from carrel_scheduler.core.requests import HOST
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import (
    PlacementConstraints,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from unit.pods.making import container, node, pod
from unit.pods.places import (
    AWAY,
    HOSTNAME,
    NEAR,
    PREFERRED,
    REQUIRED,
    ZONES,
    app,
    beside,
    cluster,
    expression,
    nodes,
)

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
