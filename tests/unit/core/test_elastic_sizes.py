"""Elastic work among others: it takes what is idle, gives it first, and never runs below itself."""

from typing import Any

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CapacityReserved,
    Outcome,
    Preemptibility,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    TopologySet,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.gangs import Group, Growth, Level
from unit.core.runs import Run
from unit.core.situations import NOW, apply, asking, node, queue, running, state_of, training


def elastic(
    uid: str, project: str, tasks: int, least: int, growth: Growth = Growth.ONE, **more: Any
) -> WorkloadQueued:
    gang = Group(requests=(asking(1),) * tasks, min_tasks=least, growth=growth)
    return training(uid, project, gang=gang, **more)


def run(gpus: int, *queued: WorkloadQueued, **quotas: float) -> Run:
    """A node and queues; the work arrives at once and is decided upon."""
    found = Run(node("n", gpus), *(queue(name, quota) for name, quota in quotas.items()))
    found.submit(*queued)
    found.step()
    return found


def then(before: Run, *queued: WorkloadQueued) -> Run:
    before.submit(*queued)
    before.wait(1.0)
    before.settle()
    return before


def test_all_get_their_minimum_and_a_first_step_before_anybody_grows_on() -> None:
    jobs = (elastic("e", "a", 4, 1), elastic("f", "a", 4, 1))
    assert run(2, *jobs, a=9).sizes() == {"e": 1, "f": 1}
    assert run(3, *jobs, a=9).sizes() == {"e": 2, "f": 1}
    assert run(4, *jobs, a=9).sizes() == {"e": 2, "f": 2}
    assert run(6, *jobs, a=9).sizes() == {"e": 4, "f": 2}
    assert run(9, *jobs, a=9).sizes() == {"e": 4, "f": 4}


def test_a_guarantee_is_taken_back_member_by_member() -> None:
    found = then(run(6, elastic("e", "a", 6, 2), a=3, b=3), elastic("f", "b", 4, 1))
    assert found.sizes() == {"e": 3, "f": 3}
    assert found.evicted == {"e": ["Reclaimed"] * 3}


def test_higher_priority_takes_only_what_it_needs() -> None:
    found = then(run(6, elastic("e", "a", 6, 2), a=6), training("t", "a", 1, priority=60))
    assert found.sizes() == {"e": 5, "t": 1}
    found = then(run(6, elastic("e", "a", 6, 2), a=6), training("t", "a", 4, priority=60))
    assert found.sizes() == {"e": 2, "t": 1}


def test_equal_priority_takes_nothing() -> None:
    found = then(run(6, elastic("e", "a", 6, 2), a=6), training("t", "a", 2))
    assert found.sizes() == {"e": 6}
    assert found.evicted == {}


def test_who_cannot_keep_its_minimum_gets_no_room_for_its_surplus() -> None:
    found = then(run(6, elastic("e", "a", 6, 2), a=6), training("t", "a", 5, priority=60))
    assert found.sizes() == {"t": 1}
    found.finish("t")
    found.settle()
    assert found.sizes() == {"e": 6}


def test_doubling_halves_too() -> None:
    job = elastic("e", "a", 8, 1, Growth.DOUBLE)
    assert run(7, job, a=8).sizes() == {"e": 4}
    found = then(run(8, job, a=8), training("t", "a", 1, priority=60))
    assert found.sizes() == {"e": 4, "t": 1}
    found = then(run(8, job, a=8), training("t", "a", 5, priority=60))
    assert found.sizes() == {"e": 2, "t": 1}


def test_idle_room_is_taken_and_given_again() -> None:
    found = then(run(4, elastic("e", "a", 4, 1), a=1, b=3), training("t", "b", 2))
    assert found.sizes() == {"e": 2, "t": 1}
    found.finish("t")
    found.settle()
    assert found.sizes() == {"e": 4}


def test_who_starts_on_its_held_room_grows_into_what_is_free_and_stops_nobody() -> None:
    state = state_of(
        node("n", 4),
        queue("a", 2),
        queue("b", 1),
        *running(training("u", "b"), "n", 1),
        *running(training("v", "b"), "n", 2),
        elastic("e", "a", 2, 1),
        CapacityReserved("e", (("n", (0,), 0),), (0,)),
    )
    plan = decide(state, NOW)
    assert [(one.index, one.devices) for one in plan.bindings] == [(0, (0,)), (1, (3,))]
    assert plan.evictions == ()


def test_growth_follows_what_runs_on_and_not_what_is_stopping() -> None:
    """Of a gang with a required zone one task was told to stop: it draws nobody to its zone."""
    zoned = Group(requests=(asking(1),) * 3, min_tasks=1, level=Level("zone"))
    state = state_of(
        TopologySet("t", ("zone",)),
        node("n1", 2, labels=(("zone", "z0"),)),
        node("n2", 2, labels=(("zone", "z1"),)),
        queue("a", 9),
        *running(training("x", "a"), "n1", 1),
        training("e", "a", gang=zoned),
        TaskPlaced("e", 1, "n2", (0,), at=1.0),
        TaskReleasing("e", 1),
        TaskPlaced("e", 0, "n1", (0,), at=2.0),
    )
    assert decide(state, NOW).bindings == ()
    apply(state, [TaskReleased("x", 0, Outcome.GONE, NOW), WorkloadRemoved("x")])
    assert [(one.index, one.node) for one in decide(state, NOW).bindings] == [(2, "n1")]


def test_what_only_just_got_room_goes_before_what_has_to_run_for_a_while() -> None:
    """`e` keeps its minimum: what runs, and not what this decision has started beside it."""
    pair = Group(requests=(asking(1),) * 2, min_tasks=1)
    state = state_of(
        node("n", 3),
        queue("a", 0, reclaim_min_runtime_s=1000.0),
        queue("b", 2),
        queue("c", 0),
        training("e", "a", gang=pair),
        TaskPlaced("e", 1, "n", (1,), at=NOW - 1),
        *running(training("v", "c"), "n", 2),
        training("w", "b", 2),
    )
    plan = decide(state, NOW)
    assert [one.uid for one in plan.evictions] == ["v"]
    assert [(one.uid, one.places) for one in plan.nominations] == [("w", (("n", (0, 2), 0),))]


def test_a_promise_to_a_group_whose_other_half_has_ended_starts_nothing() -> None:
    """`e` works without its second group, whose two tasks are of no use by themselves."""
    one = Group(requests=(asking(1),))
    state = state_of(
        node("n", 2),
        queue("a", 9),
        training("e", "a", gang=Group(groups=(one, Group(groups=(one, one))), min_groups=1)),
        TaskPlaced("e", 0, "n", (0,), at=1.0),
        CapacityReserved("e", (("n", (1,), 0),), (1,)),
    )
    assert decide(state, NOW).bindings == ()
    apply(state, [node("n", 3)])
    assert [one.index for one in decide(state, NOW).bindings] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "fixed"),
    [
        (Preemptibility.YES, [0, 0, 0, 0]),
        (Preemptibility.NO, [1000, 1000, 1000, 1000]),
        (Preemptibility.SURPLUS, [0, 0, 1000, 1000]),
    ],
)
def test_what_is_held_for_it_is_for_its_minimum_once_that_is_gone(
    kind: Preemptibility, fixed: list[int]
) -> None:
    """Three of four run and one place is held; one after the other ends."""
    state = state_of(
        *(node("n", 8), queue("a", 8), elastic("e", "a", 4, 2, preemptible=kind)),
        *(TaskPlaced("e", index, "n", (index,), 1.0) for index in range(3)),
        CapacityReserved("e", (("n", (5,), 0),), (3,)),
    )
    found = [state.queues.reserved_fixed.item(0, 0)]
    for index in (2, 1, 0):
        state.apply(TaskReleased("e", index, Outcome.AGAIN, 2.0))
        assert state.queues.reserved.item(0, 0) == 1000
        found.append(state.queues.reserved_fixed.item(0, 0))
    assert found == fixed


def test_who_starts_takes_back_the_rest_of_its_guarantee_at_once() -> None:
    """One device is idle for its minimum; the others are lent, and two of them are its own."""
    borrowed = (one for n in (1, 2, 3) for one in running(training(f"b{n}", "b"), "n", n))
    state = state_of(
        *(node("n", 4), queue("a", 3), queue("b", 1)), *borrowed, elastic("e", "a", 4, 1)
    )
    plan = decide(state, NOW)
    assert [one.index for one in plan.bindings] == [0]
    assert [(one.uid, one.indices) for one in plan.nominations] == [("e", (1, 2))]
    assert len(plan.evictions) == 2
