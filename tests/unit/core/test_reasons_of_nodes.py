"""What nodes lack, as the reason of a waiting workload."""

import pytest

from carrel_scheduler.core.events import TaskPlaced
from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.core.requests import NodeConstraint
from unit.core.situations import (
    asking,
    node,
    queue,
    reasons,
    running,
    training,
    workspace,
)

NEVER, NOT_NOW = ReasonClass.NEVER, ReasonClass.NOT_NOW


def test_larger_than_any_node_could_be() -> None:
    base = (node("n1", 2, schedulable=False), node("n2", 1), queue("a", 9))
    found = reasons(*base, training("big", "a", 3), training("gang", "a", 1, tasks=4))
    assert (found["big"].cls, found["big"].token) == (NEVER, Token.NEVER_FITS)
    assert (found["big"].requested, found["big"].bound, found["big"].nodes) == (
        3000,
        2000,
        ("n1",),
    )
    assert (found["gang"].requested, found["gang"].bound) == (4000, 3000)


def test_out_of_service_is_not_never() -> None:
    """The other node is open, but too small to be of any use."""
    found = reasons(
        node("n1", 2, schedulable=False), node("n2", 1), queue("a", 9), training("x", "a", 2)
    )
    assert (found["x"].cls, found["x"].token) == (NOT_NOW, Token.NODES_CLOSED)
    assert found["x"].nodes == ("n1",)


def test_what_an_open_node_lacks_by_broken_gpus_is_said_of_gpus() -> None:
    found = reasons(
        node("n1", 2, broken_devices=frozenset({0})), queue("a", 9), training("x", "a", 2)
    )
    assert (found["x"].cls, found["x"].token) == (NOT_NOW, Token.NO_NODE_FITS)
    assert (found["x"].requested, found["x"].bound) == (2000, 1000)


def test_a_cluster_without_nodes_refuses_nothing() -> None:
    found = reasons(queue("a", 9), training("x", "a", 2))
    assert (found["x"].cls, found["x"].token) == (NOT_NOW, Token.NO_NODE_FITS)


def test_enough_is_free_but_scattered() -> None:
    found = reasons(
        node("n1", 2),
        node("n2", 2),
        queue("a", 4),
        *running(workspace("x", "a"), "n1", 0),
        *running(workspace("y", "a"), "n2", 0),
        workspace("pair", "a", 2),
    )["pair"]
    assert (found.token, found.requested, found.bound) == (Token.NO_NODE_FITS, 2000, 1000)


def test_halves_of_devices_are_no_whole_one() -> None:
    found = reasons(
        node("n", 2),
        queue("a", 4),
        *running(workspace("x", "a", 0.5), "n", 0),
        *running(workspace("y", "a", 0.5), "n", 1),
        workspace("z", "a", 1),
    )["z"]
    assert (found.token, found.short, found.bound) == (Token.WAITS_FOR_ROOM, 1000, 2000)


def test_a_restriction_to_nodes_names_their_holders_only() -> None:
    found = reasons(
        node("n1", 1),
        node("n2", 1),
        queue("a", 3),
        *running(workspace("x", "a"), "n2", 0),
        *running(workspace("z", "a"), "n1", 0),
        workspace("y", "a", nodes=["n2"]),
    )["y"]
    assert (found.bound, [holder.uid for holder in found.holders]) == (1000, ["x"])


@pytest.mark.parametrize(
    ("where", "detail"),
    [
        (NodeConstraint(nodes=frozenset({"gone"})), "to be one of `gone`"),
        (NodeConstraint(labels=(("gpu", frozenset({"h100"})),)), "`gpu` `h100`"),
        (
            NodeConstraint(labels=(("zone", frozenset({"z2"})),)),
            "to be without the taint `reserved`",
        ),
        (
            NodeConstraint(labels=(("gpu", frozenset({"a100"})), ("zone", frozenset({"z2"})))),
            "to be without the taint `reserved`",
        ),
        (
            NodeConstraint(labels=(("gpu", frozenset({"t4"})), ("zone", frozenset({"z3"})))),
            "`gpu` `t4`",
        ),
    ],
)
def test_the_condition_that_leaves_no_node(where: NodeConstraint, detail: str) -> None:
    found = reasons(
        node("n1", 2, labels=(("gpu", "a100"), ("zone", "z1"))),
        node("n2", 2, labels=(("gpu", "a100"), ("zone", "z2")), taints=frozenset({"reserved"})),
        queue("a", 4),
        training("x", "a", request=asking(1, where=where)),
    )["x"]
    assert (found.cls, found.token, found.detail) == (NEVER, Token.NO_ELIGIBLE_NODE, detail)


def test_no_node_divides_its_gpus() -> None:
    base = (node("n1", 2), queue("a", 4))
    found = reasons(*base, training("x", "a", request=asking(0, mig_profile="1g.10gb")))["x"]
    assert found.token is Token.NO_ELIGIBLE_NODE
    assert found.detail == "GPUs that can be divided into `1g.10gb`"


def test_no_node_says_how_much_memory_its_gpus_have() -> None:
    base = (node("n1", 2), queue("a", 4))
    found = reasons(*base, training("x", "a", request=asking(0, gpu_memory_mib=20 * 1024)))["x"]
    assert found.token is Token.NO_ELIGIBLE_NODE
    assert found.detail == "GPUs with 20 GiB of memory to share"


@pytest.mark.parametrize(
    ("gpus", "instead"), [(1, "3g.40gb"), (2, ""), (0.1, "1g.10gb"), (0.25, "2g.20gb")]
)
def test_where_gpus_are_divided_one_is_told_what_to_ask_for(gpus: float, instead: str) -> None:
    offered = ("1g.10gb", "2g.20gb", "3g.40gb")
    found = reasons(
        *(node("n", 0, divided=True, profiles=offered), queue("a", 4)),
        training("x", "a", request=asking(gpus)),
    )["x"]
    assert (found.divided, found.instead) == (("n",), instead)


@pytest.mark.parametrize("closed", [{"draining": True}, {"schedulable": False}])
def test_nodes_that_take_no_new_work(closed: dict[str, bool]) -> None:
    found = reasons(
        node("n1", 2, labels=(("gpu", "h100"),), **closed),
        node("n2", 2),
        queue("a", 4),
        training(
            "x",
            "a",
            request=asking(1, where=NodeConstraint(labels=(("gpu", frozenset({"h100"})),))),
        ),
    )["x"]
    assert (found.cls, found.token, found.nodes) == (NOT_NOW, Token.NODES_CLOSED, ("n1",))


def test_an_extended_resource_is_named() -> None:
    one = asking(0, extended=(("example.com/nic", 3),))
    base = (node("n", 1, extended=(("example.com/nic", 4),)), queue("a", 4))
    found = reasons(
        *base,
        *running(workspace("x", "a", request=one), "n"),
        workspace("y", "a", request=one),
        workspace("z", "a", request=asking(0, extended=(("example.com/nic", 5),))),
    )
    y, z = found["y"], found["z"]
    assert (y.token, y.resource, y.short, y.bound) == (
        Token.WAITS_FOR_ROOM,
        "example.com/nic",
        2,
        4,
    )
    assert [(holder.uid, holder.amount) for holder in y.holders] == [("x", 3)]
    assert (z.cls, z.token, z.resource, z.bound) == (NEVER, Token.NEVER_FITS, "example.com/nic", 4)


def test_who_holds_more_than_one_extended_resource_holds_each_of_them() -> None:
    there = (("example.com/disk", 8), ("example.com/nic", 8))
    both = asking(0, extended=(("example.com/disk", 1), ("example.com/nic", 5)))
    found = reasons(
        *(node("n", 1, extended=there), queue("a", 4)),
        *running(workspace("x", "a", request=both), "n"),
        *(
            workspace(name, "a", request=asking(0, extended=((f"example.com/{name}", 8),)))
            for name in ("disk", "nic")
        ),
    )
    held = {name: [(h.uid, h.amount) for h in found[name].holders] for name in ("disk", "nic")}
    assert held == {"disk": [("x", 1)], "nic": [("x", 5)]}


def test_gpus_of_other_types_than_asked_for_are_not_counted() -> None:
    kept = NodeConstraint(device_types=(frozenset({"A100"}),))
    one = asking(1, where=kept)
    found = reasons(
        *(node("n", 4, types=("A100", "T4", "T4", "T4")), queue("a", 4)),
        *running(workspace("x", "a", request=one), "n", 0),
        workspace("y", "a", request=one),
    )["y"]
    assert (found.token, found.short, found.bound) == (Token.WAITS_FOR_ROOM, 1000, 1000)


def test_a_mig_instance_that_has_no_slots() -> None:
    half, small = asking(0, mig_profile="3g.40gb"), asking(0, mig_profile="1g.10gb")
    base = (node("n", 1, mig_model="H100-80GB"), queue("a", 4))
    found = reasons(
        *base,
        workspace("x", "a", request=half),
        TaskPlaced("x", 0, "n", (0,), 1.0, 0b1111),
        workspace("y", "a", request=small),
        TaskPlaced("y", 0, "n", (0,), 1.0, 0b10000),
        workspace("z", "a", request=half),
        workspace("w", "a", request=asking(0, mig_profile="7g.80gb"), tasks=2),
    )
    z, w = found["z"], found["w"]
    assert (z.cls, z.token, z.detail) == (NOT_NOW, Token.NO_MIG_INSTANCE, "3g.40gb")
    assert (z.requested, z.short, z.bound) == (1, 1, 2)
    assert {holder.uid for holder in z.holders} == {"x", "y"}
    assert (w.cls, w.token, w.requested, w.bound) == (NEVER, Token.NO_MIG_INSTANCE, 2, 1)
