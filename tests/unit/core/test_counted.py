"""Countable resources that are a part of a GPU count for the queue, and hold no device."""

from dataclasses import replace

import pytest

from benchmarks.decision_cases.loading import Listing, load
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import NodeSet, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.invariants.columns import check_books
from carrel_scheduler.core.messages.render import help_text, sentence
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.state import State
from unit.core.invariants.evictions import check_plan
from unit.core.situations import NOW, asking, node, queue, state_of, training, workspace

SEVENTH, HALF = "gpu/mig-1g", "gpu/mig-3g"
ASKED = Request(cpu_milli=100, memory_mib=64, extended=((SEVENTH, 1),), counted_milli=125)


def divided(name: str = "n", gpus: int = 0, instances: int = 7) -> NodeSet:
    return node(name, gpus, extended=((SEVENTH, instances),), counted_milli=125 * instances)


def small(uid: str, project: str = "a") -> WorkloadQueued:
    return training(uid, project, request=ASKED)


def held(state: State, queue: str) -> int:
    return int(state.queues.used[state.queues.slot(queue)][0])


def test_they_are_the_cluster_s_gpus_too() -> None:
    state = state_of(divided(gpus=2))
    assert state.nodes.total(state.tasks.counted_on)[0] == 2875
    state.apply(divided(gpus=2, instances=14))
    assert state.nodes.total(state.tasks.counted_on)[0] == 3750
    state.apply(replace(divided(gpus=2), schedulable=False))
    assert state.nodes.total(state.tasks.counted_on)[0] == 0


def test_what_runs_on_a_closed_node_is_still_shared_out() -> None:
    state = state_of(divided(), queue("a"), small("w"), TaskPlaced("w", 0, "n", (), 1.0))
    state.apply(replace(divided(), schedulable=False))
    assert state.nodes.total(state.tasks.counted_on)[0] == 125


def test_one_by_one_or_loaded_at_once_they_count_alike() -> None:
    waiting = [small(f"w{number}") for number in range(3)]
    places = [TaskPlaced(one.uid, 0, "n", (), 1.0) for one in waiting]
    told = state_of(divided(), queue("a"), *waiting, *places)
    loaded = State()
    load(loaded, Listing(nodes=[divided()], queues=[queue("a")], workloads=waiting, placed=places))
    for state in (told, loaded):
        assert held(state, "a") == 375
        assert check_books(state) == []


def test_a_limit_bounds_them() -> None:
    state = state_of(
        divided(), queue("a", 0.25, limit=0.25), *(small(f"w{number}") for number in range(4))
    )
    plan = decide(state, NOW)
    assert len(plan.bindings) == 2
    assert check_plan(state, plan, NOW) == []
    assert {reason.token for reason in plan.reasons.values()} == {
        Token.STARTING,
        Token.OVER_LIMIT,
    }


def test_work_that_may_not_be_stopped_stays_within_the_quota() -> None:
    asked = [workspace(f"w{number}", "a", request=ASKED) for number in range(4)]
    plan = decide(state_of(divided(), queue("a", 0.375), *asked), NOW)
    assert len(plan.bindings) == 3


def test_what_is_borrowed_is_reclaimed() -> None:
    borrowed = [small(f"b{number}", "b") for number in range(7)]
    state = state_of(
        divided(),
        queue("a", 0.25),
        queue("b", 0.625),
        *borrowed,
        *(TaskPlaced(one.uid, 0, "n", (), 1.0) for one in borrowed),
        *(small(f"w{number}") for number in range(3)),
    )
    plan = decide(state, NOW)
    assert len(plan.evictions) == 2
    assert check_plan(state, plan, NOW) == []


def test_whole_gpus_are_reclaimed_from_who_borrows_beside_instances() -> None:
    """Seven instances and a GPU are 1.875: of two queues that are owed half each, one has more."""
    borrowed = [small(f"b{number}", "b") for number in range(7)]
    whole = training("whole", "b", 1)
    state = state_of(
        divided(gpus=1),
        queue("a", 1),
        queue("b", 0.875),
        *borrowed,
        whole,
        *(TaskPlaced(one.uid, 0, "n", (), 1.0) for one in borrowed),
        TaskPlaced("whole", 0, "n", (0,), 2.0),
        training("mine", "a", 1),
    )
    assert [one.uid for one in decide(state, NOW).evictions] == ["whole"]


@pytest.mark.parametrize(("cores", "evicted"), [(34, 1), (44, 2), (54, 0)])
def test_who_needs_their_cores_takes_no_more_than_is_borrowed(cores: int, evicted: int) -> None:
    """Four instances of ten cores each are 0.5 GPUs: with the third one more than 0.25 are gone."""
    borrowed = [
        training(f"b{number}", "b", request=replace(ASKED, cpu_milli=10_000)) for number in range(4)
    ]
    state = state_of(
        divided(gpus=1),
        queue("a", 1),
        queue("b", 0.25),
        *borrowed,
        *(TaskPlaced(one.uid, 0, "n", (), 1.0) for one in borrowed),
        training("mine", "a", cpu=cores),
    )
    assert len(decide(state, NOW).evictions) == evicted


def test_what_no_node_has_is_told_with_what_there_is() -> None:
    asked = training("w", "a", request=asking(0, extended=((HALF, 1),), counted_milli=500))
    reason = decide(state_of(divided(), queue("a"), asked), NOW).reasons["w"]
    assert reason.token is Token.NEVER_FITS
    assert HALF in sentence(reason, "a")
    assert help_text(reason, "a") == f"Ask for something that the nodes have: `{SEVENTH}`."


def test_amounts_below_nothing_are_refused() -> None:
    with pytest.raises(InvalidEvent, match="counted_milli"):
        state_of(replace(divided(), counted_milli=-1))
    with pytest.raises(InvalidEvent, match="counted_milli"):
        state_of(queue("a"), training("w", "a", request=replace(ASKED, counted_milli=-1)))


def test_parts_of_its_own_queue_and_lent_ones_give_way_together() -> None:
    """Four parts: project `a` holds two with low priority, project `b` borrows the others."""
    half = queue("a", gpus=0.5)
    own = [replace(small(f"own{number}"), priority=10) for number in range(2)]
    lent = [small(f"lent{number}", "b") for number in range(2)]
    places = [TaskPlaced(one.uid, 0, "n", (), 1.0) for one in (*own, *lent)]
    asked = replace(ASKED, extended=((SEVENTH, 4),), counted_milli=500)
    urgent = replace(training("urgent", "a", request=asked), priority=80)
    state = state_of(divided(instances=4), half, queue("b", 0), *own, *lent, *places, urgent)
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    told = {one.uid: one.reason.token for one in plan.evictions}
    assert told == {
        "own0": Token.PREEMPTED, "own1": Token.PREEMPTED,
        "lent0": Token.RECLAIMED, "lent1": Token.RECLAIMED,
    }  # fmt: skip
