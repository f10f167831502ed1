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
from carrel_scheduler.core.resources import OPEN, UNLIMITED, ResourceVector
from carrel_scheduler.core.settings import Settings
from unit.core.situations import (
    NOW,
    apply,
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


def test_room_taken_in_this_cycle_by_those_before() -> None:
    found = reasons(
        node("n", 1),
        queue("a", 1),
        training("x", "a", created_at=1.0),
        training("y", "a", created_at=2.0),
    )
    assert found["y"].token is Token.QUEUED_BEHIND


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
