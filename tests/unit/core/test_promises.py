"""Room being freed is held for the one it is freed for, and for nobody else."""

import pytest

from carrel_scheduler.core.reasons import Token
from carrel_scheduler.simulation import Simulation
from unit.core.situations import node, project, simulation, training, workspace


@pytest.fixture
def promised() -> Simulation:
    """One node of two GPUs: `lent` gives way to `desk`, `kept` stays."""
    sim = simulation(node("n", 2), project("a", 1), project("b", 1, created_at=1.0))
    sim.submit(training("kept", "a", created_at=1.0))
    sim.submit(training("lent", "a", created_at=2.0))
    sim.run_until(10)
    sim.submit(workspace("desk", "b", created_at=10.0))
    plan = sim.step()
    assert [eviction.uid for eviction in plan.evictions] == ["lent"]
    assert plan.nominations[0].places == (("n", (1,)),)
    return sim


def test_nobody_slips_in_and_nobody_else_is_evicted(promised: Simulation) -> None:
    promised.submit(training("sneak", "b", created_at=0.0))
    plan = promised.step()
    assert (plan.bindings, plan.evictions, plan.nominations) == ((), (), ())
    reason = plan.reasons["desk"]
    assert (reason.token, reason.workload_uid) == (Token.WAITS_FOR_ROOM, "desk")
    assert [(h.uid, h.borrowed, h.amount) for h in reason.holders] == [("lent", True, 1000)]
    promised.run_until(60)
    assert promised.running() == ["desk", "kept"]


def test_a_free_promised_place_is_held_while_others_are_freed() -> None:
    sim = simulation(node("n", 2), project("a", 0), project("b", 2, created_at=1.0))
    sim.submit(training("lent", "a"))
    sim.run_until(10)
    sim.submit(workspace("desk", "b", 2, created_at=10.0))
    sim.step()
    sim.submit(training("sneak", "b", created_at=0.0))
    plan = sim.step()
    assert plan.bindings == ()
    assert plan.reasons["sneak"].token is Token.HELD_FOR
    assert plan.reasons["sneak"].workload == "desk"
    sim.run_until(60)
    assert sim.running() == ["desk"]


def test_other_room_is_used_at_once(promised: Simulation) -> None:
    promised.apply(node("m", 1))
    plan = promised.step()
    assert [(b.uid, b.node) for b in plan.bindings] == [("desk", "m")]
    promised.run_until(60)
    assert promised.running() == ["desk", "kept", "lent"]


def test_backfill_uses_room_that_is_not_promised(promised: Simulation) -> None:
    promised.apply(node("m", 0))
    promised.submit(training("cpu", "a", 0))
    plan = promised.step()
    assert [binding.uid for binding in plan.bindings] == ["cpu"]


def test_a_broken_place_is_given_up_and_another_is_found(promised: Simulation) -> None:
    promised.apply(node("n", 2, broken_devices=frozenset({1})))
    plan = promised.step()
    assert plan.nominations[0].places == ()
    assert [e.uid for e in plan.evictions] == []
    assert plan.reasons["desk"].token is Token.WAITS_FOR_ROOM
    promised.apply(node("m", 1))
    promised.run_until(60)
    assert "desk" in promised.running()


def test_a_promise_dies_with_its_workload(promised: Simulation) -> None:
    promised.delete("desk")
    promised.run_until(60)
    assert promised.running() == ["kept", "lent"]


def test_room_that_is_stopping_anyway_is_promised_without_evictions() -> None:
    sim = simulation(node("n", 1), project("a", 1))
    sim.submit(training("first", "a"))
    sim.run_until(10)
    sim._stop("first")
    sim.submit(training("second", "a", priority=80))
    plan = sim.step()
    assert (plan.evictions, plan.nominations[0].uid) == ((), "second")
    sim.run_until(100)
    assert sim.running() == ["second"]


def test_promised_room_counts_against_the_quota(promised: Simulation) -> None:
    """A second claim of the same project finds its right used up by the first."""
    promised.submit(workspace("more", "b", created_at=11.0))
    assert promised.step().reasons["more"].token is Token.NON_PREEMPTIBLE_BEYOND_QUOTA


def test_a_lowered_limit_ends_a_promise(promised: Simulation) -> None:
    promised.apply(project("b", 0, created_at=1.0))
    plan = promised.step()
    assert plan.nominations[0].places == ()
    promised.run_until(60)
    assert promised.running() == ["kept", "lent"]


def test_a_gang_waits_for_all_its_places() -> None:
    sim = simulation(
        node("n1", 1), node("n2", 1), project("a", 0), project("b", 2, created_at=1.0), grace=30
    )
    sim.submit(training("one", "a"))
    sim.run_until(1)
    sim.submit(training("two", "a"))
    sim.run_until(2)
    sim.submit(training("gang", "b", tasks=2))
    sim.step()
    sim.delete("one")
    plan = sim.step()
    assert plan.bindings == ()
    assert plan.reasons["gang"].token is Token.WAITS_FOR_ROOM
    sim.run_until(60)
    assert sim.running() == ["gang"]
