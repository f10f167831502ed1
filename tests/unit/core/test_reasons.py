"""Every waiting workload is told the one true reason, with the facts."""

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CapacityReserved,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TaskReleasing,
)
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.requests import NodeConstraint
from carrel_scheduler.core.resources import OPEN, UNLIMITED, ResourceVector
from carrel_scheduler.core.settings import Settings
from unit.core.situations import (
    NOW,
    apply,
    asking,
    carry_out,
    gang,
    node,
    queue,
    reasons,
    running,
    state_of,
    training,
    workspace,
)

NEVER, NOT_NOW, HELD_BACK = ReasonClass.NEVER, ReasonClass.NOT_NOW, ReasonClass.HELD_BACK


def test_room_held_by_work_within_its_rights() -> None:
    """The guarantees are larger than the cluster: nothing may be taken back."""
    found = reasons(
        node("n", 2),
        queue("a", 2),
        queue("b", 2),
        *running(training("x", "a", 2), "n", 0, 1),
        training("y", "b"),
    )["y"]
    assert (found.cls, found.token, found.resource) == (NOT_NOW, Token.WAITS_FOR_ROOM, "gpu")
    assert (found.requested, found.short, found.bound) == (1000, 1000, 2000)
    assert [(h.uid, h.user, h.amount, h.borrowed, h.since) for h in found.holders] == [
        ("x", "user-of-a", 2000, False, 1.0)
    ]


def test_nothing_left_to_borrow() -> None:
    found = reasons(
        node("n", 2),
        queue("a", 2),
        *running(workspace("x", "a", 2), "n", 0, 1),
        training("y", "a"),
        training("z", "a"),
    )
    assert (found["y"].token, found["y"].bound, found["y"].short) == (Token.QUOTA_USED, 2000, 1000)
    assert [found[uid].ahead for uid in "yz"] == [0, 1]


def test_cpu_and_memory_can_be_what_is_short() -> None:
    base = (node("n", 4, cpu=8, memory_gib=8), queue("a", 4))
    rest = running(workspace("x", "a", 1, cpu=6, memory_gib=2), "n", 0)
    found = reasons(*base, *rest, workspace("cpu", "a", cpu=4), workspace("mem", "a", memory_gib=7))
    assert (found["cpu"].resource, found["cpu"].short) == ("cpu", 2000)
    assert (found["mem"].resource, found["mem"].bound) == ("memory", 8 * 1024)
    assert [holder.amount for holder in found["mem"].holders] == [2 * 1024]


def test_limit_and_borrowing_switched_off() -> None:
    found = reasons(
        node("n", 8),
        queue("a", 2, limit=3),
        queue("b", 2, over_quota=False),
        training("a1", "a", 3),
        training("a2", "a", 1),
        training("a3", "a", 4),
        training("b1", "b", 2),
        training("b2", "b", 1),
        training("b3", "b", 3),
    )
    facts = {uid: (r.cls, r.token, r.short, r.bound) for uid, r in found.items()}
    del facts["a1"], facts["b1"]
    assert facts == {
        "a2": (HELD_BACK, Token.OVER_LIMIT, 1000, 3000),
        "a3": (NEVER, Token.OVER_LIMIT, 1000, 3000),
        "b2": (HELD_BACK, Token.OVER_QUOTA_OFF, 1000, 2000),
        "b3": (NEVER, Token.OVER_QUOTA_OFF, 1000, 2000),
    }


def test_what_starts_says_where() -> None:
    found = reasons(node("n", 4), queue("a", 4), training("x", "a", 2))
    assert (found["x"].cls, found["x"].nodes) == (ReasonClass.STARTING, ("n",))


def test_a_resource_not_asked_for_is_not_in_the_way() -> None:
    full = queue("a", 1, limit=1)
    found = reasons(
        node("n", 4), full, *running(training("x", "a"), "n", 0), training("cpu", "a", 0)
    )
    assert [(uid, reason.token) for uid, reason in found.items()] == [("cpu", Token.STARTING)]


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


def test_room_taken_in_this_cycle_by_those_before() -> None:
    found = reasons(
        node("n", 1),
        queue("a", 1),
        training("x", "a", created_at=1.0),
        training("y", "a", created_at=2.0),
    )
    assert found["y"].token is Token.QUEUED_BEHIND


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


def test_room_that_comes_back_by_itself() -> None:
    found = reasons(
        node("n", 1),
        queue("a", 1),
        queue("b", 1),
        *running(training("x", "a"), "n", 0),
        TaskReleasing("x", 0),
        training("y", "b"),
    )["y"]
    assert (found.token, found.workload_uid) == (Token.WAITS_FOR_ROOM, "y")
    assert [(h.uid, h.borrowed) for h in found.holders] == [("x", False)]


def test_room_that_is_taken_back_for_it() -> None:
    state = state_of(
        node("n", 2),
        queue("a", 0),
        queue("b", 2),
        *running(training("x", "a", 2), "n", 0, 1),
        workspace("y", "b", 2),
    )
    plan = decide(state, NOW)
    found = plan.reasons["y"]
    assert (found.token, found.workload_uid, found.requested) == (Token.WAITS_FOR_ROOM, "y", 2000)
    assert [(h.uid, h.amount, h.borrowed) for h in found.holders] == [("x", 2000, True)]
    carry_out(state, plan, NOW)
    assert plan.reasons["y"].holders[0].uid == "x"


def test_of_more_holders_than_are_compared_the_largest_are_named() -> None:
    """Twenty with one to twenty cores each, in no order."""
    cores = [(7 * k) % 20 + 1 for k in range(20)]
    state = state_of(
        *(node("n", 0, cpu=sum(cores)), queue("a"), queue("b")),
        *(
            event
            for k, amount in enumerate(cores)
            for event in running(training(f"r{k}", "b", 0, cpu=amount), "n", at=float(k))
        ),
        training("w", "a", 0, cpu=4),
    )
    found = decide(state, NOW).reasons["w"]
    assert [holder.amount for holder in found.holders] == [20_000, 19_000, 18_000, 17_000, 16_000]


def test_at_most_five_holders_largest_first() -> None:
    many = [
        event for n in range(6) for event in running(workspace(f"s{n}", "a"), "n", n, at=float(n))
    ]
    big = running(workspace("big", "a", 2), "n", 6, 7)
    found = reasons(node("n", 8), queue("a", 9), *many, *big, training("y", "a"))["y"]
    assert [holder.uid for holder in found.holders] == ["big", "s0", "s1", "s2", "s3"]


# Queues above


def test_the_quota_or_limit_of_a_department_is_named() -> None:
    dep = QueueSet("dep", ResourceVector(2000, UNLIMITED, UNLIMITED), ResourceVector(3000, -1, -1))
    base = (node("n", 8), dep, queue("a", 4, parent="dep"), queue("b", 4, parent="dep"))
    found = reasons(
        *base,
        *running(workspace("x", "a", 2), "n", 0, 1),
        workspace("fixed", "b"),
        training("much", "b", 2),
        training("more", "b", 4),
    )
    fixed, much, more = found["fixed"], found["much"], found["more"]
    assert (fixed.cls, fixed.token, fixed.project, fixed.bound) == (
        HELD_BACK,
        Token.NON_PREEMPTIBLE_BEYOND_QUOTA,
        "dep",
        2000,
    )
    assert [holder.uid for holder in fixed.holders] == ["x"]
    assert (much.cls, much.token, much.project, much.bound) == (
        HELD_BACK,
        Token.OVER_LIMIT,
        "dep",
        3000,
    )
    assert (more.cls, more.token, more.project) == (NEVER, Token.OVER_LIMIT, "dep")


def test_the_used_quota_of_a_department_is_named() -> None:
    found = reasons(
        node("n", 2),
        queue("dep", 2),
        queue("a", 2, parent="dep"),
        queue("b", 2, parent="dep"),
        *running(workspace("x", "a", 2), "n", 0, 1),
        training("y", "b"),
    )["y"]
    assert (found.token, found.project, found.bound) == (Token.QUOTA_USED, "dep", 2000)


# Conditions on nodes


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


# Time


def test_preemption_that_has_to_wait() -> None:
    base = (
        node("n", 1),
        queue("a", 0),
        queue("b", 1),
        *running(training("x", "a"), "n", 0),
    )
    late = workspace("y", "b", created_at=90.0, preemption_delay_s=30.0)
    found = reasons(*base, late, now=100.0)["y"]
    assert (found.cls, found.token, found.until) == (HELD_BACK, Token.PREEMPTION_DELAYED, 120.0)
    assert reasons(*base, late, now=121.0)["y"].token is Token.WAITS_FOR_ROOM
    evicted = workspace("y", "b", created_at=10.0, evicted_at=95.0, preemption_delay_s=30.0)
    assert reasons(*base, evicted, now=100.0)["y"].until == 125.0


def test_a_delay_is_no_excuse_where_nobody_would_give_way() -> None:
    found = reasons(
        node("n", 1),
        queue("a", 1),
        queue("b", 1),
        *running(workspace("x", "a"), "n", 0),
        workspace("y", "b", created_at=90.0, preemption_delay_s=30.0),
    )["y"]
    assert found.token is Token.WAITS_FOR_ROOM


# Held


def test_room_held_for_another() -> None:
    state = state_of(
        node("n", 2),
        queue("a", 2),
        queue("b", 2),
        *running(workspace("x", "a"), "n", 0),
        TaskReleasing("x", 0),
        training("big", "a", 2),
        CapacityReserved("big", (("n", (0, 1), 0),)),
        training("small", "b"),
    )
    found = decide(state, NOW).reasons["small"]
    assert (found.token, found.project, found.workload_uid) == (Token.HELD_FOR, "a", "big")


def test_places_kept_for_who_waited_long() -> None:
    settings = Settings(reservation_delay_s=10.0)
    state = state_of(
        node("n", 2),
        queue("a", 2),
        *running(workspace("x", "a", 2), "n", 0, 1),
        settings=settings,
    )
    apply(state, [training("y", "a", 2), CapacityReserved("y", (("n", (0, 1), 0),))])
    found = decide(state, NOW).reasons["y"]
    assert found.token in (Token.RESERVED, Token.QUOTA_USED)


# Resources beyond the three


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


# All of them


def test_one_reason_for_everything_that_asks() -> None:
    state = state_of(
        node("n", 2),
        queue("a", 2),
        training("x", "a", created_at=1.0),
        training("y", "a", 2, created_at=2.0),
        training("g", "a", gang=gang(3, least=1), created_at=3.0),
        TaskPlaced("g", 0, "n", (0,), 1.0),
        training("held", "a", gated=frozenset({0})),
    )
    found = decide(state, NOW).reasons
    assert set(found) == {"x", "y", "g", "held"}
    assert len(found) == 4
    assert "n" not in found
    with pytest.raises(KeyError):
        found["nobody"]


def test_the_order_of_service_alternates_between_equal_queues() -> None:
    state = state_of(
        node("n", 1),
        queue("a", 2, created_at=1.0),
        queue("b", 2, created_at=2.0),
        *(training(f"a{n}", "a", created_at=float(n)) for n in range(2)),
        *(training(f"b{n}", "b", created_at=float(n)) for n in range(2)),
        training("first", "b", priority=60, created_at=9.0),
    )
    plan = decide(state, NOW)
    assert plan.queue == ("a0", "first", "a1", "b0", "b1")
    assert plan.fair_share == {"a": 2000, "b": 2000}


def test_reasons_follow_the_state_once_the_plan_is_carried_out() -> None:
    state = state_of(
        node("n", 1), queue("a", 1), training("x", "a", created_at=1.0), training("y", "a")
    )
    plan = decide(state, NOW)
    started = plan.bindings[0].uid
    other = "x" if started == "y" else "y"
    assert plan.reasons[started].token is Token.STARTING
    carry_out(state, plan, NOW)
    assert started not in plan.reasons
    assert plan.reasons[other].holders[0].uid == started


def test_preemptible_and_surplus_are_told_apart() -> None:
    """A core that is protected counts against the quota like what is non-preemptible."""
    found = reasons(
        node("n", 8),
        queue("a", 2),
        training("core", "a", gang=gang(4, least=3), preemptible=Preemptibility.SURPLUS),
        training("free", "a", gang=gang(4, least=3)),
    )
    assert (found["core"].cls, found["core"].token) == (
        NEVER,
        Token.NON_PREEMPTIBLE_BEYOND_QUOTA,
    )
    assert found["free"].token is Token.STARTING


def test_an_open_limit_is_no_limit() -> None:
    found: Reason = reasons(node("n", 1), queue("a", limit=None), training("x", "a"))["x"]
    assert OPEN.gpu_milli == UNLIMITED
    assert found.token is Token.STARTING
