"""Every waiting workload is told the one true reason, with the facts."""

from typing import Any

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.events import Event, TaskPlaced, TaskReleasing
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.resources import UNLIMITED, Amounts
from unit.core.situations import node, project, sound_plan, training, workspace


def reasons(*events: Event) -> dict[str, Reason]:
    state = State()
    for event in events:
        state.apply(event)
    plan = decide(state, 100.0)
    sound_plan(state, plan)
    return plan.reasons


def running(queued: Any, place: str, *devices: int, at: float = 1.0) -> tuple[Event, Event]:
    return queued, TaskPlaced(queued.uid, 0, place, devices, at=at)


def test_room_held_by_work_within_its_rights() -> None:
    """The guarantees are larger than the cluster: nothing may be taken back."""
    found = reasons(
        node("n", 2),
        project("a", 2),
        project("b", 2),
        *running(training("x", "a", 2), "n", 0, 1),
        training("y", "b"),
    )["y"]
    assert (found.cls, found.token, found.resource) == (
        ReasonClass.NOT_NOW,
        Token.WAITS_FOR_ROOM,
        "gpu",
    )
    assert (found.requested, found.short, found.bound) == (1000, 1000, 2000)
    assert [(h.uid, h.user, h.amount, h.borrowed, h.since) for h in found.holders] == [
        ("x", "user-of-a", 2000, False, 1.0)
    ]


def test_nothing_left_to_borrow() -> None:
    found = reasons(
        node("n", 2),
        project("a", 2),
        *running(workspace("x", "a", 2), "n", 0, 1),
        training("y", "a"),
        training("z", "a"),
    )
    assert (found["y"].token, found["y"].bound, found["y"].short) == (Token.QUOTA_USED, 2000, 1000)
    assert [found[uid].ahead for uid in "yz"] == [0, 1]


def test_cpu_and_memory_can_be_what_is_short() -> None:
    base = (node("n", 4, cpu=8, memory_gib=8), project("a", 4))
    rest = running(workspace("x", "a", 1, cpu=6, memory_gib=2), "n", 0)
    found = reasons(*base, *rest, workspace("cpu", "a", cpu=4), workspace("mem", "a", memory_gib=7))
    assert (found["cpu"].resource, found["cpu"].short) == ("cpu", 2000)
    assert (found["mem"].resource, found["mem"].bound) == ("memory", 8 * 1024)
    assert [holder.amount for holder in found["mem"].holders] == [2 * 1024]


def test_limit_and_borrowing_switched_off() -> None:
    found = reasons(
        node("n", 8),
        project("a", 2, limit=3),
        project("b", 2, over_quota=False),
        training("a1", "a", 3),
        training("a2", "a", 1),
        training("a3", "a", 4),
        training("b1", "b", 2),
        training("b2", "b", 1),
        training("b3", "b", 3),
    )
    held, never = ReasonClass.HELD_BACK, ReasonClass.NEVER
    facts = {uid: (r.cls, r.token, r.short, r.bound) for uid, r in found.items()}
    assert facts == {
        "a2": (held, Token.OVER_LIMIT, 1000, 3000),
        "a3": (never, Token.OVER_LIMIT, 1000, 3000),
        "b2": (held, Token.OVER_QUOTA_OFF, 1000, 2000),
        "b3": (never, Token.OVER_QUOTA_OFF, 1000, 2000),
    }


def test_a_resource_not_asked_for_is_not_in_the_way() -> None:
    full = Amounts(1000, UNLIMITED, UNLIMITED)
    a = project("a", 1, limit=1)
    assert full.gpu_milli == a.limit.gpu_milli
    found = reasons(node("n", 4), a, *running(training("x", "a"), "n", 0), training("cpu", "a", 0))
    assert found == {}


def test_larger_than_any_node_could_be() -> None:
    base = (node("n1", 2, schedulable=False), node("n2", 1), project("a", 9))
    found = reasons(*base, training("big", "a", 3), training("gang", "a", 1, tasks=4))
    assert (found["big"].cls, found["big"].token) == (ReasonClass.NEVER, Token.NEVER_FITS)
    assert (found["big"].requested, found["big"].bound) == (3000, 2000)
    assert (found["gang"].requested, found["gang"].bound) == (4000, 3000)


def test_out_of_service_is_not_never() -> None:
    found = reasons(
        node("n1", 2, schedulable=False), node("n2", 1), project("a", 9), training("x", "a", 2)
    )
    assert (found["x"].cls, found["x"].token) == (ReasonClass.NOT_NOW, Token.NO_NODE_FITS)
    assert (found["x"].requested, found["x"].bound) == (2000, 1000)


def test_a_cluster_without_nodes_refuses_nothing() -> None:
    found = reasons(project("a", 9), training("x", "a", 2))
    assert (found["x"].cls, found["x"].token) == (ReasonClass.NOT_NOW, Token.NO_NODE_FITS)


def test_enough_is_free_but_scattered() -> None:
    found = reasons(
        node("n1", 2),
        node("n2", 2),
        project("a", 4),
        *running(workspace("x", "a"), "n1", 0),
        *running(workspace("y", "a"), "n2", 0),
        workspace("pair", "a", 2),
    )["pair"]
    assert (found.token, found.requested, found.bound) == (Token.NO_NODE_FITS, 2000, 1000)


def test_room_taken_in_this_cycle_by_those_before() -> None:
    found = reasons(
        node("n", 1),
        project("a", 1),
        training("x", "a", created_at=1.0),
        training("y", "a", created_at=2.0),
    )
    assert found["y"].token is Token.QUEUED_BEHIND


def test_a_restriction_to_nodes_names_their_holders_only() -> None:
    only = frozenset({"n2"})
    found = reasons(
        node("n1", 1),
        node("n2", 1),
        project("a", 2),
        *running(workspace("x", "a"), "n2", 0),
        workspace("y", "a", nodes=only),
    )["y"]
    assert (found.bound, [holder.uid for holder in found.holders]) == (1000, ["x"])


def test_room_that_comes_back_by_itself() -> None:
    found = reasons(
        node("n", 1),
        project("a", 1),
        project("b", 1),
        *running(training("x", "a"), "n", 0),
        TaskReleasing("x", 0),
        training("y", "b"),
    )["y"]
    assert (found.token, found.workload_uid) == (Token.WAITS_FOR_ROOM, "y")
    assert [(h.uid, h.borrowed) for h in found.holders] == [("x", False)]


def test_at_most_five_holders_largest_first() -> None:
    many = [
        event for n in range(6) for event in running(workspace(f"s{n}", "a"), "n", n, at=float(n))
    ]
    big = running(workspace("big", "a", 2), "n", 6, 7)
    found = reasons(node("n", 8), project("a", 9), *many, *big, training("y", "a"))["y"]
    assert [holder.uid for holder in found.holders] == ["big", "s0", "s1", "s2", "s3"]
