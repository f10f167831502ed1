"""Which MIG instances give way, as decisions show it."""

import itertools

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import CheckpointSeen, Event, NodeSet, TaskPlaced
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.settings import Settings
from carrel_scheduler.core.state import State
from unit.core.invariants.evictions import check_plan
from unit.core.situations import NOW, asking, node, queue, state_of, training, workspace

SMALL, LARGE = "2g.10gb", "3g.20gb"


def divided(name: str) -> NodeSet:
    return node(name, 1, mig_model="A100-40GB")


def instance(profile: str) -> Request:
    return asking(0, share_milli=0, mig_profile=profile)


def on(uid: str, project: str, start: int, age: float, place: str = "m") -> tuple[Event, Event]:
    """A training in two memory slots, from this one on."""
    queued = training(uid, project, request=instance(SMALL), created_at=age)
    return queued, TaskPlaced(uid, 0, place, (0,), age, 0b11 << start)


def stopped(state: State) -> list[str]:
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    return sorted(one.uid for one in plan.evictions)


@pytest.mark.parametrize("ages", list(itertools.permutations((0.0, 1.0, 2.0))))
@pytest.mark.parametrize("by_priority", [False, True])
def test_the_one_training_is_stopped_whose_end_makes_a_legal_place(
    ages: tuple[float, ...], by_priority: bool
) -> None:
    """Four slots lie at 0 or at 4; whoever holds slots 4 and 5 is alone in the way."""
    trainings = [
        event
        for start, age in zip((0, 2, 4), ages, strict=True)
        for event in on(f"at-{start}", "a", start, age)
    ]
    claim = (
        training("claim", "a", request=instance(LARGE), priority=80)
        if by_priority
        else workspace("claim", "b", request=instance(LARGE))
    )
    rules = (queue("a", 0 if not by_priority else 4), queue("b", 1))
    assert stopped(state_of(divided("m"), *rules, *trainings, claim)) == ["at-4"]


def test_who_is_within_quota_stays_though_alone_in_the_way() -> None:
    state = state_of(
        *(divided("m"), queue("a", 0), queue("b", 1), queue("kept", 1)),
        *(*on("x", "a", 0, 0.0), *on("y", "a", 2, 1.0), *on("z", "kept", 4, 2.0)),
        workspace("claim", "b", request=instance(LARGE)),
    )
    assert stopped(state) == ["x", "y"]


def test_of_nodes_the_one_is_cleared_that_loses_least() -> None:
    state = state_of(
        *(divided("m"), divided("n"), queue("a", 0), queue("b", 1)),
        *(*on("m0", "a", 0, 0.0), *on("m4", "a", 4, 0.0)),
        *(*on("n0", "a", 0, 0.0, "n"), *on("n4", "a", 4, 0.0, "n")),
        CheckpointSeen("n0", NOW),
        workspace("claim", "b", request=instance(LARGE)),
        settings=Settings(consolidate=False),
    )
    assert stopped(state) == ["n0"]


def test_an_instance_moves_to_make_a_legal_place() -> None:
    """Four slots are free on each GPU, and nowhere in one piece."""
    state = state_of(
        *(divided("m"), divided("n"), queue("a", 4)),
        *(*on("m0", "a", 0, 0.0), *on("m4", "a", 4, 0.0)),
        *(*on("n0", "a", 0, 0.0, "n"), *on("n4", "a", 4, 0.0, "n")),
        training("claim", "a", request=instance(LARGE)),
    )
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    [moved] = plan.evictions
    assert moved.moved
    held = {one.uid: one.places for one in plan.nominations}
    assert held.keys() == {"claim", moved.uid}
    assert plan.bindings == ()


def test_where_those_of_the_cheapest_place_can_go_nowhere_another_is_cleared() -> None:
    """`long` fits nowhere else; the two others, which lose more, fit on the second GPU."""
    state = state_of(
        *(divided("m"), divided("n"), queue("a", 4)),
        training("half", "a", request=instance(LARGE), created_at=900.0),
        TaskPlaced("half", 0, "m", (0,), 900.0, 0b1111),
        *(*on("m4", "a", 4, 1.0), *on("n0", "a", 0, 0.0, "n"), *on("n4", "a", 4, 0.0, "n")),
        training("claim", "a", request=instance(LARGE)),
        settings=Settings(reservation_delay_s=-1.0),
    )
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    assert "half" not in {one.uid for one in plan.evictions}
    assert "claim" in {one.uid for one in plan.nominations}
    assert all(one.moved for one in plan.evictions)


def test_whole_gpus_and_memory_are_cleared_for_each_other() -> None:
    whole = training("whole", "a", 1)
    state = state_of(
        *(divided("m"), queue("a", 0), queue("b", 1), whole),
        TaskPlaced("whole", 0, "m", (0,), 1.0),
        workspace("claim", "b", request=asking(0, share_milli=0, gpu_memory_mib=15_000)),
    )
    assert stopped(state) == ["whole"]
