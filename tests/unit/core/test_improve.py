"""Work that runs on its second choice of nodes, and moves once its first has room."""

from typing import Any

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Event, Preemptibility, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.messages.render import sentence
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import NodeConstraint
from unit.core.invariants.evictions import check_plan
from unit.core.situations import NOW, asking, node, queue, running, state_of, training

LARGE, SMALL = (("gpu", "h100"),), (("gpu", "a100"),)
PREFERS = NodeConstraint(
    labels=(("gpu", frozenset({"h100", "a100"})),), preferred=(("gpu", frozenset({"h100"})),)
)


def wishing(uid: str, gpus: int = 1, *, where: NodeConstraint = PREFERS, **more: Any) -> Any:
    asked = {"request": asking(gpus, where=where), "moves_to_preferred": True}
    return training(uid, "a", **{**asked, **more})


def decided(*events: Event, large: int = 2) -> Plan:
    """Node `new` has so many GPUs of the better type, `old` four others."""
    nodes = (node("old", 4, labels=SMALL), node("new", large, labels=LARGE))
    state = state_of(*nodes, queue("a", 8), queue("b", 8), *events)
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    return plan


def moves(plan: Plan) -> dict[str, set[str]]:
    """Where work moves."""
    moved = {one.uid for one in plan.evictions if one.moved}
    assert {one.reason.token for one in plan.evictions} <= {Token.IMPROVED}
    held = {one.uid: {place[0] for place in one.places} for one in plan.nominations}
    return {uid: held[uid] for uid in moved}


def test_it_moves_to_what_it_prefers_and_stays_there() -> None:
    plan = decided(*running(wishing("x", 2), "old", 0, 1))
    [eviction] = plan.evictions
    assert sentence(eviction.reason, "a") == "Moves to GPUs of a type that it prefers."
    assert moves(plan) == {"x": {"new"}}
    assert moves(decided(*running(wishing("x", 2), "new", 0, 1))) == {}


@pytest.mark.parametrize(
    "stays",
    [
        wishing("x", moves_to_preferred=False),
        wishing("x", preemptible=Preemptibility.NO),
        wishing("x", interactive=True),
        wishing("x", where=NodeConstraint(labels=PREFERS.labels)),
        wishing("x", where=NodeConstraint(preferred=(("gpu", frozenset({"a100"})),))),
    ],
    ids=["not asked for", "not preemptible", "interactive", "without a wish", "has its wish"],
)
def test_nothing_else_moves(stays: WorkloadQueued) -> None:
    assert moves(decided(*running(stays, "old", 0))) == {}


def test_a_gang_moves_as_a_whole_or_not_at_all() -> None:
    group = Group(requests=(asking(1, where=PREFERS),) * 3, min_tasks=3)
    members = [TaskPlaced("g", index, "old", (index,), 1.0) for index in range(3)]
    placed: list[Event] = [wishing("g", gang=group), *members]
    assert moves(decided(*placed, large=3)) == {"g": {"new"}}
    assert moves(decided(*placed, large=0)) == {}
    assert moves(decided(*placed, *running(training("y", "b", 2), "new", 0, 1), large=2)) == {}


def test_room_that_others_can_use_is_theirs() -> None:
    placed = running(wishing("x"), "old", 0)
    waits = training("w", "b", 2)
    plan = decided(*placed, waits, *running(training("y", "b", 2), "old", 1, 2))
    assert {one.uid for one in plan.bindings} == {"w"}
    assert moves(plan) == {}


def test_one_moves_in_each_decision_the_first_of_the_queue_first() -> None:
    late, early = wishing("late", created_at=2.0), wishing("early", created_at=1.0)
    placed = (*running(late, "old", 0), *running(early, "old", 1))
    assert moves(decided(*placed)) == {"early": {"new"}}
