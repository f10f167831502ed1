"""Work that runs on its second choice of nodes, and moves once its first has room."""

from typing import Any

import pytest

from carrel_scheduler.core.actions.improve import IMPROVE_TRIES
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


def decided(*events: Event, large: int = 2, small: int = 4) -> Plan:
    """Node `new` has ``large`` GPUs of the better type, `old` has ``small`` others."""
    nodes = (node("old", small, labels=SMALL), node("new", large, labels=LARGE))
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


def test_what_may_not_move_does_not_take_the_turns_of_others() -> None:
    """A decision tries a few workloads only."""
    fixed = [
        running(wishing(f"fixed-{n}", preemptible=Preemptibility.NO, created_at=0.0), "old", n)
        for n in range(IMPROVE_TRIES)
    ]
    placed = [event for events in fixed for event in events]
    moving = running(wishing("x", created_at=1.0), "old", IMPROVE_TRIES)
    assert moves(decided(*placed, *moving, small=IMPROVE_TRIES + 1)) == {"x": {"new"}}


def test_one_moves_in_each_decision_the_first_of_the_queue_first() -> None:
    late, early = wishing("late", created_at=2.0), wishing("early", created_at=1.0)
    placed = (*running(late, "old", 0), *running(early, "old", 1))
    assert moves(decided(*placed)) == {"early": {"new"}}


THREE = NodeConstraint(
    labels=(("gpu", frozenset({"h100", "a100", "t4"})),),
    preferred=(("gpu", frozenset({"h100"})), ("gpu", frozenset({"h100", "a100"}))),
)


@pytest.mark.parametrize("large", [0, 1])
def test_of_three_choices_the_best_that_is_free_is_taken(large: int) -> None:
    state = state_of(
        node("third", 1, labels=(("gpu", "t4"),)),
        node("second", 1, labels=SMALL),
        node("first", large, labels=LARGE),
        queue("a", 8),
        *running(wishing("x", where=THREE), "third", 0),
    )
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    assert moves(plan) == {"x": {"first" if large else "second"}}


@pytest.mark.parametrize(("cpu", "moved"), [(1, {}), (2, {"x": {"new"}})])
def test_a_free_gpu_without_the_rest_that_is_asked_for_is_no_better_place(
    cpu: int, moved: dict[str, set[str]]
) -> None:
    half = asking(0.5, cpu=2, where=PREFERS)
    placed = TaskPlaced("x", 0, "old", (0,), 1.0)
    state = state_of(
        node("old", 1, labels=SMALL),
        node("new", 1, cpu=cpu, labels=LARGE),
        queue("a", 8),
        training("x", "a", request=half, moves_to_preferred=True),
        placed,
    )
    assert moves(decide(state, NOW)) == moved


MIXED = (("gpu", "a100 + h100"),)
TYPES = ("a100", "h100", "a100", "h100")
EITHER = NodeConstraint(
    labels=(("gpu", frozenset({"a100 + h100", "a100"})),),
    preferred=(("gpu", frozenset({"a100 + h100"})),),
    device_types=(frozenset({"h100"}), frozenset({"a100"})),
)


@pytest.mark.parametrize(
    ("gpus", "own", "others", "devices"),
    [
        (1, (0,), (), {1}),
        (1, (0,), (1, 3), None),
        (1, (1,), (), None),
        (2, (0, 2), (), {1, 3}),
        (2, (0, 2), (3,), None),
        (2, (0, 1), (3,), None),
        (2, (0, 1), (), {1, 3}),
        (0.5, (0,), (1,), {3}),
    ],
)
def test_between_unlike_gpus_of_one_node(
    gpus: float, own: tuple[int, ...], others: tuple[int, ...], devices: set[int] | None
) -> None:
    """GPUs 1 and 3 are better; of its own it can keep what it has."""
    moving = wishing("x", request=asking(gpus, where=EITHER))
    events = [*running(moving, "n", *own)]
    for number, device in enumerate(others):
        events += running(training(f"y{number}", "b", 1), "n", device)
    nodes = node("n", 4, labels=MIXED, types=TYPES)
    state = state_of(nodes, queue("a", 8), queue("b", 8), *events)
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    held = [set(place[1]) for one in plan.nominations for place in one.places]
    assert held == ([] if devices is None else [devices])
    assert {one.uid for one in plan.evictions} == (set() if devices is None else {"x"})


@pytest.mark.parametrize("free", [True, False])
def test_from_another_node_to_the_better_gpus_of_one_with_several_types(*, free: bool) -> None:
    taken = (1, 3) if not free else (3,)
    others = [
        event
        for number, device in enumerate(taken)
        for event in running(training(f"y{number}", "b", 1), "n", device)
    ]
    nodes = (node("n", 4, labels=MIXED, types=TYPES), node("old", 1, labels=SMALL))
    placed = running(wishing("x", request=asking(1, where=EITHER)), "old", 0)
    state = state_of(*nodes, queue("a", 8), queue("b", 8), *placed, *others)
    plan = decide(state, NOW)
    held = [place[:2] for one in plan.nominations for place in one.places]
    assert held == ([("n", (1,))] if free else [])


def test_the_cpu_that_it_has_on_its_own_node_is_its_own() -> None:
    moving = wishing("x", request=asking(1, cpu=64, where=EITHER))
    nodes = node("n", 4, labels=MIXED, types=TYPES)
    plan = decide(state_of(nodes, queue("a", 8), *running(moving, "n", 0)), NOW)
    assert [place[:2] for one in plan.nominations for place in one.places] == [("n", (1,))]
