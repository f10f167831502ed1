"""What leaves a node that is being emptied, and what stays."""

from collections.abc import Sequence
from typing import Any

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Event, Preemptibility, TaskPlaced
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.messages.render import sentence
from carrel_scheduler.core.plan import Eviction
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.state import State
from unit.core.invariants.evictions import check_plan
from unit.core.situations import NOW, asking, node, queue, running, state_of, training, workspace

Told = tuple[str, tuple[int, ...], bool]


def emptied(*others: Event, spare: int = 8, gpus: int = 8) -> State:
    """Node `old` is to be emptied, `new` has so many GPUs; project `a` may use everything."""
    return state_of(node("old", gpus), node("new", spare), queue("a", 16), *others)


def drain(state: State) -> tuple[list[Told], Sequence[Eviction]]:
    """Who is told what; in the plan room is held for exactly those that move."""
    state.apply(node("old", 8, draining=True))
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    assert {one.reason.token for one in plan.evictions} <= {Token.NODE_DRAINED}
    held = {one.uid: one.indices for one in plan.nominations}
    told = [(one.uid, one.indices, one.moved) for one in plan.evictions]
    moved = {uid for uid, _, moves in told if moves}
    assert moved == set(held)
    return told, plan.evictions


def members(sizes: Sequence[int], least: int, **more: Any) -> Event:
    group = Group(requests=tuple(asking(size) for size in sizes), min_tasks=least)
    return training("gang", "a", gang=group, **more)


def test_work_moves_to_where_there_is_room_and_is_told_which_node_it_leaves() -> None:
    told, evictions = drain(emptied(*running(training("x", "a", 2), "old", 0, 1)))
    assert told == [("x", (), True)]
    assert evictions[0].reason.nodes == ("old",)
    assert sentence(evictions[0].reason, "a") == "`old` is being emptied."


def test_work_without_another_place_stops() -> None:
    told, _ = drain(emptied(*running(training("x", "a", 2), "old", 0, 1), spare=1))
    assert told == [("x", (), False)]


def test_only_what_lies_there_leaves() -> None:
    there, elsewhere = (training(uid, "a") for uid in ("there", "elsewhere"))
    told, _ = drain(emptied(*running(there, "old", 0), *running(elsewhere, "new", 0)))
    assert told == [("there", (), True)]


def test_what_may_not_be_stopped_stays() -> None:
    told, _ = drain(emptied(*running(workspace("desk", "a"), "old", 0)))
    assert told == []


def test_who_is_first_in_the_queue_finds_a_place_first() -> None:
    first = training("first", "a", priority=80, created_at=2.0)
    second = training("second", "a", created_at=1.0)
    told, _ = drain(emptied(*running(second, "old", 0), *running(first, "old", 1), spare=1))
    assert told == [("first", (), True), ("second", (), False)]


PLACED = (
    TaskPlaced("gang", 0, "new", (0,), 1.0),
    TaskPlaced("gang", 1, "old", (1,), 1.0),
    TaskPlaced("gang", 2, "old", (2,), 1.0),
)


@pytest.mark.parametrize(
    ("least", "expected"), [(1, ("gang", (1, 2), False)), (2, ("gang", (), False))]
)
def test_surplus_stops_alone_and_the_minimum_takes_all_with_it(least: int, expected: Told) -> None:
    """Nothing else has room; member 0 lies on the node that stays."""
    told, _ = drain(emptied(members([1, 1, 1], least), *PLACED, spare=1))
    assert told == [expected]


@pytest.mark.parametrize(("spare", "expected"), [(3, ("gang", (1, 2), True)), (2, None)])
def test_members_move_together_or_not_at_all(spare: int, expected: Told | None) -> None:
    told, _ = drain(emptied(members([1, 1, 1], 3), *PLACED, spare=spare))
    assert told == [expected or ("gang", (), False)]


def test_a_core_that_is_drained_frees_what_it_counted_for() -> None:
    """Room for the whole is held within the quota of two, and nothing is counted twice."""
    gang = members([1, 1], 2, preemptible=Preemptibility.SURPLUS)
    both = (TaskPlaced("gang", 0, "old", (0,), 1.0), TaskPlaced("gang", 1, "old", (1,), 1.0))
    state = emptied(gang, *both, spare=2)
    state.apply(queue("a", 2))
    told, _ = drain(state)
    assert told == [("gang", (), True)]


def test_nothing_leaves_a_node_that_only_takes_no_new_work() -> None:
    state = emptied(*running(training("x", "a"), "old", 0))
    state.apply(node("old", 8, schedulable=False))
    assert decide(state, NOW).evictions == ()
