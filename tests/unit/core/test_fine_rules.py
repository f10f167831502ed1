"""Rules that decide rarely, each in the smallest situation in which it is the one that decides."""

from dataclasses import replace
from typing import Any

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.events import Event, QueueSet, TaskPlaced, TaskReleasing
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from unit.core.invariants.evictions import check_plan
from unit.core.situations import node, queue, training, workspace


def state_of(*events: Event) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state


def plan_of(*events: Event) -> Plan:
    state = state_of(*events)
    plan = decide(state, 100.0)
    assert check_plan(state, plan, 100.0) == []
    return plan


def running(queued: Any, place: str, *devices: int) -> tuple[Event, Event]:
    return queued, TaskPlaced(queued.uid, 0, place, devices, at=1.0)


def victims(plan: Plan) -> list[str]:
    return [eviction.uid for eviction in plan.evictions]


# The order of service


def test_the_smaller_present_share_comes_first_where_both_would_end_equal() -> None:
    order = plan_of(
        node("n", 4),
        queue("a", 4, created_at=0.0),
        queue("b", 4, created_at=1.0),
        *running(training("r", "a", 2), "n", 0, 1),
        *running(training("s", "b", 1), "n", 2),
        training("x", "a", 1, created_at=1.0),
        training("y", "b", 2, created_at=2.0),
    ).queue
    assert order == ("y", "x")


def test_beyond_the_fair_share_of_one_resource_is_not_beyond_it() -> None:
    """`a` holds more than its share of the cores, but not of the GPUs."""
    no_cpu = ResourceVector(1000, 0, UNLIMITED)
    order = plan_of(
        node("n", 8, cpu=10),
        QueueSet("a", no_cpu),
        QueueSet("b", no_cpu, created_at=1.0),
        *running(training("r", "a", 1, cpu=8), "n", 0),
        training("x", "a", 1, cpu=1),
        training("y", "b", 1, cpu=10),
    ).queue
    assert order[0] == "x"


# Limits and quotas


def test_a_bound_exceeded_in_a_resource_not_asked_for_is_not_in_the_way() -> None:
    before, after = queue("a", 4, limit=2), queue("a", 4, limit=1)
    plan = plan_of(
        node("n", 4),
        before,
        *running(training("r", "a", 2), "n", 0, 1),
        after,
        training("x", "a", 0),
    )
    assert [binding.uid for binding in plan.bindings] == ["x"]


def test_work_that_may_be_interrupted_uses_up_no_guarantee_of_work_that_may_not() -> None:
    plan = plan_of(
        node("n", 4),
        queue("a", 2),
        *running(training("r", "a", 2), "n", 0, 1),
        workspace("desk", "a"),
    )
    assert [binding.uid for binding in plan.bindings] == ["desk"]


# Victims


def test_a_lower_priority_gives_way_even_below_the_quota() -> None:
    """A single GPU would do, but priority comes before size."""
    plan = plan_of(
        node("n", 3),
        queue("a", 2),
        queue("b", 1),
        *running(training("pair", "a", 2, priority=40), "n", 0, 1),
        *running(training("single", "a", 1, priority=50), "n", 2),
        training("claim", "b"),
    )
    assert victims(plan) == ["pair"]


def test_work_without_gpus_stays_while_work_with_gpus_is_enough() -> None:
    nothing = ResourceVector(0, 0, UNLIMITED)
    plan = plan_of(
        node("n", 2, cpu=4),
        QueueSet("a", nothing),
        QueueSet("b", ResourceVector(2000, 4000, UNLIMITED)),
        *running(training("g1", "a", 1, created_at=1.0), "n", 0),
        *running(training("g2", "a", 1, created_at=2.0), "n", 1),
        *running(training("c", "a", 0, cpu=2, created_at=3.0), "n"),
        training("claim", "b", 1, cpu=2),
    )
    assert sorted(victims(plan)) == ["g1", "g2"]


def test_a_gang_finds_the_nodes_on_which_its_rights_suffice() -> None:
    """Victim after victim from everywhere would use up the claim on half-empty nodes."""
    events: list[Event] = [node(f"n{n}", 2) for n in range(4)]
    events += [queue("a", 4), queue("b", 4)]
    for number in range(8):
        queued = training(f"r{number}", "a", created_at=float(number))
        events += running(queued, f"n{number % 4}", number // 4)
    plan = plan_of(*events, training("gang", "b", 2, tasks=2))
    assert len(victims(plan)) == 4
    assert [nomination.uid for nomination in plan.nominations] == ["gang"]


def test_the_most_deserving_is_spared_first() -> None:
    """One of two small ones is enough beside the large one: the younger gives way."""
    plan = plan_of(
        node("n", 4),
        queue("a", 0),
        queue("b", 4),
        *running(training("large", "a", 2, created_at=1.0), "n", 0, 1),
        *running(training("older", "a", 1, created_at=2.0), "n", 2),
        *running(training("younger", "a", 1, created_at=3.0), "n", 3),
        training("claim", "b", 3),
    )
    assert sorted(victims(plan)) == ["large", "younger"]


# Inside a project


def test_equal_priority_stays_even_when_it_would_make_room_below_the_limit() -> None:
    plan = plan_of(
        node("n", 8),
        queue("a", 8, limit=3),
        *running(training("low", "a", priority=40), "n", 0),
        *running(training("equal-1", "a"), "n", 1),
        *running(training("equal-2", "a"), "n", 2),
        training("claim", "a", 2),
    )
    assert victims(plan) == []


def test_a_limit_is_kept_by_evicting_where_the_claim_could_not_run() -> None:
    plan = plan_of(
        node("small", 1),
        node("large", 2),
        queue("a", 4, limit=2),
        *running(training("low", "a", priority=40), "small", 0),
        training("claim", "a", 2),
    )
    assert victims(plan) == ["low"]


# Placement


def test_what_is_idle_is_used_before_what_is_coming() -> None:
    stopping = training("stopping", "a", 2)
    plan = plan_of(
        node("n0", 2),
        node("n1", 1),
        queue("a", 4),
        *running(stopping, "n0", 0, 1),
        TaskReleasing("stopping", 0),
        training("gang", "a", tasks=2),
    )
    assert sorted(place for place, _, _ in plan.nominations[0].places) == ["n0", "n1"]


# Reclaim in masses


def test_every_claim_of_many_gets_room_of_its_own() -> None:
    """Bounds are kept up to date node by node: no room is counted twice, none is overlooked."""
    events: list[Event] = [node(f"n{n}", 4) for n in range(6)]
    events += [queue("a", 6), queue("b", 6), queue("c", 12)]
    for number in range(24):
        owner = "ab"[number // 6 % 2]
        queued = training(f"r{number}", owner, created_at=float(number))
        events += running(queued, f"n{number % 6}", number // 6)
    claims = [training(f"w{number}", "c", 1 + number % 2) for number in range(8)]
    plan = plan_of(*events, *claims)
    assert len([n for n in plan.nominations if n.places]) == 8
    assert len(victims(plan)) == 12


def test_a_node_that_lost_capacity_is_cleared_by_what_it_lacks() -> None:
    """It reports fewer cores than are held: freeing them first makes up for what is missing."""
    one: dict[str, Any] = {"cpu": 2, "created_at": 1.0}
    shrunk = replace(node("n", 4, cpu=8), cpu_milli=5000)
    nothing = ResourceVector(0, 0, UNLIMITED)
    plan = plan_of(
        node("n", 4, cpu=8),
        QueueSet("a", nothing),
        QueueSet("b", ResourceVector(4000, 8000, UNLIMITED)),
        *[event for n in range(4) for event in running(training(f"r{n}", "a", **one), "n", n)],
        shrunk,
        training("claim", "b", 1, cpu=3),
    )
    assert len(victims(plan)) == 3
