"""Gangs that are stopped for others as a whole only, surplus and minimum together."""

from dataclasses import replace

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Event, NodeSet, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State
from unit.core.situations import NOW, gang, node, queue, state_of, training


def spread(nodes: int, *, whole: bool, tasks: int = 3) -> list[Event]:
    """A gang with one task more than its minimum, one after the other on nodes of four GPUs."""
    group = replace(gang(tasks, least=tasks - 1), whole=whole)
    found: list[Event] = [node(f"n{number}", 4) for number in range(nodes)]
    found += [queue("a", 8), queue("b", 8), training("g", "a", gang=group)]
    taken = [0] * nodes
    for index in range(tasks):
        place = index % nodes
        found.append(TaskPlaced("g", index, f"n{place}", (taken[place],), at=1.0))
        taken[place] += 1
    return found


def evicted(state: State) -> dict[str, set[int]]:
    plan: Plan = decide(state, NOW)
    return {one.uid: set(one.indices) or set(state.job(one.uid).rows) for one in plan.evictions}


@pytest.mark.parametrize(("whole", "tasks"), [(False, {2}), (True, {0, 1, 2})])
def test_who_needs_one_of_its_gpus_takes_all_or_what_is_beyond_its_minimum(
    whole: bool, tasks: set[int]
) -> None:
    urgent = training("urgent", "a", 2, priority=80)
    assert evicted(state_of(*spread(1, whole=whole), urgent)) == {"g": tasks}


def test_among_several_one_that_goes_by_itself_is_enough() -> None:
    """The gang is no cheaper for being elastic."""
    single = training("single", "a", 1)
    state = state_of(
        *spread(1, whole=True), single, TaskPlaced("single", 0, "n0", (3,), at=NOW - 1.0)
    )
    state.apply(training("urgent", "a", 1, priority=80))
    assert evicted(state) == {"single": {0}}


@pytest.mark.parametrize("quota", [0, 2, 3, 4])
def test_it_is_reclaimed_as_a_gang_of_its_size_is(quota: int) -> None:
    def plan_for(group_least: int | None, *, whole: bool) -> dict[str, set[int]]:
        group = replace(gang(4, least=group_least), whole=whole)
        queued: WorkloadQueued = training("g", "a", gang=group)
        machine: NodeSet = node("n0", 4)
        events: list[Event] = [machine, queue("a", quota), queue("b", 4 - quota), queued]
        events += [TaskPlaced("g", index, "n0", (index,), at=1.0) for index in range(4)]
        return evicted(state_of(*events, training("claims", "b", 1)))

    assert plan_for(2, whole=True) == plan_for(None, whole=False)


@pytest.mark.parametrize("whole", [False, True])
def test_none_of_it_moves_alone(whole: bool) -> None:
    """A job for a whole node gets one when a task of the gang moves, if it may."""
    state = state_of(*spread(2, whole=whole, tasks=2), training("large", "a", 4))
    found = evicted(state)
    assert found == ({} if whole else {"g": {0}} if 0 in found.get("g", ()) else {"g": {1}})
