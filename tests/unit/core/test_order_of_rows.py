"""Who is served in one decision: rows, gangs that grow, and what waits behind large work."""

import pytest

from carrel_scheduler.core.actions.allocate import allocate
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import NodeSet, QueueSet, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.resources import ResourceVector
from carrel_scheduler.core.settings import Settings, Strategy
from carrel_scheduler.core.views import NodeSnapshot, TaskPlacement, WorkloadView
from unit.core.invariants.evictions import check_plan
from unit.core.situations import NOW, asking, node, queue, running, state_of, training, workspace


def test_what_a_decision_starts_counts_as_much_as_what_runs() -> None:
    """Or one that starts thousands would search all of them for whoever claims room."""
    state = state_of(node("n", 0), queue("a", 0), *(training(f"t{k}", "a", 0) for k in range(64)))
    cycle = Cycle(state, NOW)
    assert cycle.is_small
    allocate(cycle)
    assert len(cycle.moves.started) == 64
    assert not cycle.is_small


def growing(uid: str, project: str, **more: object) -> WorkloadQueued:
    members = Group(requests=(asking(1),) * 2, min_tasks=1)
    return training(uid, project, gang=members, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("claims", [1, 2])
def test_all_of_a_row_are_served_that_one_by_one_finds_victims_for(claims: int) -> None:
    """Who gives way are minima of elastic work, which the search over arrays leaves out."""
    victims = [growing(f"v{k}", "a") for k in range(2)]
    state = state_of(
        *(node("n", 2), queue("a", 0), queue("b", 2)),
        *victims,
        *(TaskPlaced(f"v{k}", 0, "n", (k,), 1.0) for k in range(2)),
        *(workspace(f"claim{k}", "b") for k in range(claims)),
    )
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    assert {one.uid for one in plan.nominations} == {f"claim{k}" for k in range(claims)}
    assert len(plan.evictions) == claims


@pytest.mark.parametrize(
    ("project", "created", "priority", "grows"),
    [
        ("a", 1.0, 50, False),
        ("a", -1.0, 50, True),
        ("a", 1.0, 60, True),
        ("a", -1.0, 40, False),
        ("b", 1.0, 50, True),
    ],
)
def test_what_is_served_after_large_work_of_its_queue_that_waits_too_long_does_not_grow(
    project: str, created: float, priority: int, grows: bool
) -> None:
    """`big` has waited for 100 seconds for a whole node; one GPU is free."""
    small = growing("small", project, created_at=created, priority=priority)
    state = state_of(
        *(node("n", 2), queue("a", 4), queue("b", 4), small),
        TaskPlaced("small", 0, "n", (0,), 1.0),
        training("big", "a", 2, created_at=0.0, priority=max(priority, 50) if grows else 50),
        settings=Settings(reservation_delay_s=10.0, consolidate=False),
    )
    if project == "a" and priority == 60:
        state.apply(training("big", "a", 2, created_at=0.0, priority=50))
    bindings = decide(state, NOW).bindings
    assert [(one.uid, one.index) for one in bindings] == ([("small", 1)] if grows else [])


def test_small_work_of_another_queue_starts_beside_large_work_that_waits() -> None:
    state = state_of(
        *(node("n", 2), queue("a", 2), queue("b", 2)),
        *running(training("x", "b"), "n", 0),
        training("big", "a", 2, created_at=0.0),
        training("same", "a", created_at=1.0),
        training("other", "b", created_at=1.0),
        settings=Settings(reservation_delay_s=10.0, consolidate=False),
    )
    assert [one.uid for one in decide(state, NOW).bindings] == ["other"]


def test_what_is_not_told_is_nothing_in_particular() -> None:
    rule = QueueSet("q", ResourceVector())
    assert (rule.created_at, rule.rank, rule.over_quota, rule.parent) == (0.0, 0, True, "")
    assert (rule.weight, rule.preempt_min_runtime_s, rule.reclaim_min_runtime_s) == (None,) * 3
    machine = NodeSet("n", 1, 1, 1)
    assert (machine.schedulable, machine.draining, machine.gpu_memory_mib) == (True, False, 0)
    work = training("w", "q")
    assert (work.created_at, work.tasks, work.interactive) == (0.0, 1, False)
    assert (work.evicted_at, work.preemption_delay_s, work.stale_grace_s) == (None, 0.0, None)
    place = TaskPlacement(0, "n", (), releasing=False)
    assert (place.slots, place.stuck) == (0, False)
    view = WorkloadView(
        work, waiting=True, places=(), started_at=None, checkpoint_at=None, reserved=()
    )
    assert (view.reserved_indices, view.pending, view.tasks, view.stale_since) == ((), (), 1, None)
    seen = NodeSnapshot(
        "n",
        schedulable=True,
        cpu_milli=1,
        cpu_allocated_milli=0,
        memory_mib=1,
        memory_allocated_mib=0,
        devices=(),
    )
    assert (seen.draining, seen.mig_model, seen.extended) == (False, "", ())


def test_what_is_decided_without_other_settings() -> None:
    assert Settings() == Settings(
        gpu_strategy=Strategy.BIN_PACK,
        cpu_strategy=Strategy.BIN_PACK,
        usage_factor_millionths=0,
        saturation_milli=1000,
        stale_grace_s=60.0,
        reservation_delay_s=600.0,
        most_reserved=4,
        consolidate=True,
        min_runtime_s=0.0,
        claims_per_cycle=32,
        search_steps=1000,
    )
