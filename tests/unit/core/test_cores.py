"""What of semi-preemptible work is protected, as its members come and end."""

from collections.abc import Sequence

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    Event,
    Outcome,
    Preemptibility,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.invariants.columns import check_books
from carrel_scheduler.core.invariants.state import check, cores_are_minima
from carrel_scheduler.core.state import State
from unit.core.situations import NOW, asking, node, queue, state_of, training

FIRST_DEVICE = {0: 0, 1: 2, 2: 4}


def core_job(sizes: Sequence[int], least: int = 1) -> WorkloadQueued:
    group = Group(requests=tuple(asking(size) for size in sizes), min_tasks=least)
    return training("c", "a", gang=group, preemptible=Preemptibility.SURPLUS)


def placed(index: int, size: int) -> TaskPlaced:
    first = FIRST_DEVICE[index]
    return TaskPlaced("c", index, "n", tuple(range(first, first + size)), 1.0)


def ended(index: int, outcome: Outcome = Outcome.AGAIN) -> TaskReleased:
    return TaskReleased("c", index, outcome, 5.0)


def protected(state: State) -> list[int]:
    """Indices of the tasks that nobody may take; what is kept agrees with a recount."""
    assert check(state) + check_books(state) == []
    job = state.job("c")
    return [i for i, row in sorted(job.rows.items()) if state.tasks.victim[row] < 0]


def running(sizes: Sequence[int], least: int = 1, quota: float = 2) -> State:
    """A job whose members all run, in a project with a quota; another has the rest."""
    starts: list[Event] = [placed(index, size) for index, size in enumerate(sizes)]
    events = (node("n", 8), queue("a", quota), queue("b", 6), core_job(sizes, least), *starts)
    return state_of(*events)


def test_an_equal_member_takes_the_place_of_one_that_ends_and_gives_it_back() -> None:
    state = running([1, 1, 1], least=2)
    assert protected(state) == [0, 1]
    state.apply(ended(0))
    assert protected(state) == [1, 2]
    state.apply(placed(0, 1))
    assert protected(state) == [0, 1]
    assert state.queues.fixed[0].tolist()[0] == 2000


def test_a_smaller_member_takes_over_and_its_rights_are_all_that_is_left() -> None:
    state = running([2, 1])
    state.apply(ended(0))
    assert protected(state) == [1]
    assert state.queues.fixed[0].tolist()[0] == 1000
    state.apply(placed(0, 2))
    assert protected(state) == [1]


def test_surplus_beyond_quota_does_not_become_protected_because_a_smaller_member_ends() -> None:
    state = running([1, 2, 2], quota=1)
    assert protected(state) == [0]
    state.apply(ended(0))
    assert protected(state) == []
    assert state.queues.fixed[0].tolist()[0] == 0
    state.apply(training("mine", "b", 5))
    plan = decide(state, NOW)
    assert {(e.uid, e.indices) for e in plan.evictions} == {("c", (2,))}


def test_of_unprotected_work_no_more_gives_way_than_has_to() -> None:
    """What it would start in the same decision does not start; what runs on has its minimum."""
    state = running([1, 2, 2], quota=1)
    state.apply(ended(0))
    state.apply(training("mine", "b", 6))
    plan = decide(state, NOW)
    assert [(one.uid, one.indices) for one in plan.evictions] == [("c", (2,))]
    assert plan.bindings == ()


def test_what_lost_its_protection_gets_none_for_what_it_starts_later() -> None:
    state = running([1, 2, 2], least=2, quota=3)
    assert protected(state) == [0, 1]
    state.apply(ended(0))
    assert protected(state) == []
    state.apply(ended(1))
    state.apply(placed(0, 1))
    assert protected(state) == []


def test_a_new_life_is_protected_again() -> None:
    state = running([1, 2], quota=1)
    for index in (0, 1):
        state.apply(ended(index))
    state.apply(placed(0, 1))
    assert protected(state) == [0]


def test_a_life_in_which_all_were_told_to_stop_is_not_over() -> None:
    state = running([1, 2, 2], quota=1)
    state.apply(ended(0))
    for index in (1, 2):
        state.apply(TaskReleasing("c", index))
    state.apply(ended(1))
    state.apply(placed(1, 2))
    assert [i for i in protected(state) if i == 1] == []


def test_below_its_minimum_it_keeps_what_it_had_and_gets_what_it_lacks() -> None:
    state = state_of(node("n", 8), queue("a", 2), core_job([1, 1, 1], 2), placed(0, 1))
    assert protected(state) == [0]
    state.apply(placed(1, 1))
    state.apply(placed(2, 1))
    assert protected(state) == [0, 1]
    state.apply(ended(0))
    state.apply(ended(2))
    assert protected(state) == [1]
    state.apply(placed(0, 1))
    assert protected(state) == [0, 1]


def test_members_that_succeeded_count_towards_the_minimum() -> None:
    state = running([1, 2, 2], least=2, quota=3)
    state.apply(ended(0, Outcome.SUCCEEDED))
    assert protected(state) == [1]


def test_who_is_protected_though_not_the_first_is_no_victim() -> None:
    state = running([2, 1])
    state.apply(ended(0))
    state.apply(placed(0, 2))
    assert protected(state) == [1]
    state.apply(training("mine", "b", 6))
    assert [(e.uid, e.indices) for e in decide(state, NOW).evictions] == [("c", (0,))]


@pytest.mark.parametrize(
    ("core", "said"),
    [({0, 1}, ""), ({0, 1, 2}, ""), ({0}, "is no minimum"), ({0, 1, 3}, "does not run")],
)
def test_a_core_that_is_no_minimum_is_noticed(core: set[int], said: str) -> None:
    state = running([1, 1, 1], least=2)
    state.job("c").core = frozenset(core)
    found = cores_are_minima(state)
    assert len(found) == bool(said)
    assert all(said in one for one in found)
