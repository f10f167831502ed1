"""Gangs are told why they wait: domains that are too small, members that are missing."""

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    NodeSet,
    TaskPlaced,
    TopologySet,
)
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.core.requests import HOST, NodeConstraint
from unit.core.situations import (
    NOW,
    asking,
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


# Gangs


def rack(name: str, gpus: int, rack: str) -> NodeSet:
    return node(name, gpus, labels=(("rack", rack),))


def test_no_domain_is_large_enough() -> None:
    together = Level(required="rack")
    state = state_of(
        TopologySet("t", ("rack",)),
        rack("n1", 4, "r1"),
        rack("n2", 4, "r2"),
        queue("a", 8),
        *running(workspace("w", "a"), "n1", 0),
        *running(workspace("v", "a"), "n2", 0),
        training("never", "a", gang=gang(5, level=together)),
        training("now", "a", gang=gang(4, level=together)),
    )
    found = decide(state, NOW).reasons
    never, now = found["never"], found["now"]
    assert (never.cls, never.token, never.detail) == (NEVER, Token.TOPOLOGY_TOO_SMALL, "rack")
    assert (never.requested, never.bound, never.short) == (5, 4, 1)
    assert (now.cls, now.token, now.detail) == (NOT_NOW, Token.TOPOLOGY_TOO_SMALL, "rack")
    assert (now.requested, now.bound) == (4, 3)


def test_the_capacity_for_tasks_of_several_kinds_is_that_of_all_their_nodes() -> None:
    def on(name: str) -> NodeConstraint:
        return NodeConstraint(labels=(("rack", frozenset({name})),))

    kinds = Group(requests=(asking(2, where=on("r1")), asking(2)), min_tasks=2)
    found = reasons(
        *(rack("n1", 4, "r1"), rack("n2", 4, "r2"), queue("a", 16)),
        *running(workspace("w", "a", 3), "n1", 0, 1, 2),
        *running(workspace("v", "a", 3), "n2", 0, 1, 2),
        training("g", "a", gang=kinds),
        training("other", "a", request=asking(2, where=on("r2"))),
    )["g"]
    assert (found.token, found.short, found.bound) == (Token.WAITS_FOR_ROOM, 2000, 8000)


def test_too_few_nodes_to_keep_tasks_apart() -> None:
    apart = asking(1, where=NodeConstraint(apart=HOST))
    found = reasons(
        node("n1", 4),
        node("n2", 4),
        queue("a", 8),
        training("x", "a", gang=Group(requests=(apart,) * 3)),
    )["x"]
    assert (found.cls, found.token, found.detail) == (
        NEVER,
        Token.TOPOLOGY_TOO_SMALL,
        "one node each",
    )
    assert (found.requested, found.bound) == (3, 2)


def test_what_runs_and_grows() -> None:
    state = state_of(
        node("n", 3),
        queue("a", 3),
        training("g", "a", gang=gang(4, least=2)),
        *running(workspace("w", "a"), "n", 2),
        TaskPlaced("g", 0, "n", (0,), 1.0),
        TaskPlaced("g", 1, "n", (1,), 1.0),
    )
    found = decide(state, NOW).reasons["g"]
    assert (found.cls, found.token, found.there, found.tasks) == (NOT_NOW, Token.GROWING, 2, 4)
    assert (found.resource, found.requested, found.ahead) == ("gpu", 1000, 0)


def test_on_hold_and_waiting_for_members() -> None:
    held = frozenset({0, 1, 2})
    found = reasons(
        node("n", 8),
        queue("a", 8),
        training("all", "a", gang=gang(3), gated=held),
        training("some", "a", gang=gang(3), gated=frozenset({2})),
        training("enough", "a", gang=gang(3, least=2), gated=frozenset({2})),
    )
    assert (found["all"].cls, found["all"].token, found["all"].tasks) == (HELD_BACK, Token.GATED, 3)
    some = found["some"]
    assert (some.token, some.requested, some.there, some.short) == (Token.WAITS_FOR_GANG, 3, 2, 1)
    assert found["enough"].token is Token.STARTING


def test_unlike_tasks_are_measured_together() -> None:
    unlike = Group(requests=(asking(1, cpu=2), asking(1, cpu=1), asking(1, cpu=1)))
    found = reasons(
        node("n", 4),
        queue("a", 5),
        *running(workspace("w", "a", 2), "n", 0, 1),
        training("x", "a", gang=unlike),
    )["x"]
    assert (found.token, found.resource, found.requested, found.short) == (
        Token.WAITS_FOR_ROOM,
        "gpu",
        3000,
        1000,
    )
