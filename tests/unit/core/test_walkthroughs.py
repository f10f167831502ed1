"""Acceptance walk-throughs in virtual time; all invariants are checked around every plan."""

import pytest

from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.simulation import Simulation
from unit.core.situations import node, project, simulation, training, workspace

NODES = (node("node-1", 2), node("node-2", 2))


@pytest.fixture
def two_by_two() -> Simulation:
    """Two nodes of two GPUs, two projects that are guaranteed two each."""
    return simulation(*NODES, project("a", 2), project("b", 2, created_at=1.0))


def test_over_quota_gives_way_and_comes_back(two_by_two: Simulation) -> None:
    sim = two_by_two
    for uid, owner, gpus in (("a2", "a", 2), ("a1", "a", 1), ("b1", "b", 1)):
        sim.submit(training(uid, owner, gpus, created_at=sim.now))
        sim.run_until(sim.now + 10)
    assert sim.running() == ["a1", "a2", "b1"]
    assert sim.state.project_use("a").gpu_borrowed_milli == 1000
    assert [sim.state.is_borrowed(uid) for uid in ("a2", "a1", "b1")] == [False, True, False]

    sim.submit(training("b2", "b", created_at=sim.now))
    plan = sim.step()
    assert [eviction.uid for eviction in plan.evictions] == ["a1"]
    assert plan.evictions[0].reason.token is Token.RECLAIMED
    reason = plan.reasons["b2"]
    assert (reason.token, reason.cls) == (Token.WAITS_FOR_ROOM, ReasonClass.NOT_NOW)
    assert [holder.uid for holder in reason.holders] == ["a1"]

    sim.run_until(sim.now + 60)
    assert sim.running() == ["a2", "b1", "b2"]
    assert sim.jobs["a2"].evictions == 0
    assert sim.plans[-1][1].reasons["a1"].token is Token.QUOTA_USED

    sim.delete("a2")
    sim.run_until(sim.now + 1)
    assert sim.running() == ["a1", "b1", "b2"]


def test_projects_share_in_one_cycle_and_then_alternate() -> None:
    sim = simulation(*NODES, project("a", 1), project("b", 1, created_at=1.0))
    for number in range(1, 9):
        sim.submit(training(f"a{number}", "a", created_at=number))
    sim.run_until(100)
    assert sim.running() == ["a1", "a2", "a3", "a4"]

    for number in range(1, 9):
        sim.submit(training(f"b{number}", "b", created_at=100 + number))
    plan = sim.step()
    assert sorted(eviction.uid for eviction in plan.evictions) == ["a3", "a4"]
    assert [nomination.uid for nomination in plan.nominations] == ["b1", "b2"]
    sim.run_until(200)
    assert sim.running() == ["a1", "a2", "b1", "b2"]

    started = []
    for uid in ("a1", "b1", "a2", "b2"):
        before = set(sim.running())
        sim.delete(uid)
        sim.run_until(sim.now + 10)
        started += sorted(set(sim.running()) - before)
    assert started == ["a3", "b3", "a4", "b4"]


def test_room_that_comes_at_once_is_dealt_in_turns() -> None:
    sim = simulation(*NODES, project("a", 1), project("b", 1, created_at=1.0))
    for number in range(4):
        sim.submit(training(f"a{number}", "a", created_at=number))
    for number in range(4):
        sim.submit(training(f"b{number}", "b", created_at=100 + number))
    plan = sim.step()
    assert [binding.uid for binding in plan.bindings] == ["a0", "b0", "a1", "b1"]
    assert plan.queue == ("a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3")


def test_surplus_follows_the_ratio_of_quotas() -> None:
    sim = simulation(node("n", 8), project("a", 3), project("b", 1, created_at=1.0))
    for number in range(8):
        sim.submit(training(f"a{number}", "a", created_at=number))
        sim.submit(training(f"b{number}", "b", created_at=number))
    plan = sim.step()
    assert plan.fair_share == {"a": 6000, "b": 2000}
    assert sum(uid.startswith("a") for uid in sim.running()) == 6

    for uid in [uid for uid in sim.jobs if uid.startswith("b") and uid not in sim.running()]:
        sim.delete(uid)
    sim.delete(next(uid for uid in sim.running() if uid.startswith("b")))
    sim.run_until(100)
    assert sum(uid.startswith("a") for uid in sim.running()) == 7


def test_shares_move_when_the_other_project_arrives_later() -> None:
    sim = simulation(node("n", 8), project("a", 3), project("b", 1, created_at=1.0))
    for number in range(8):
        sim.submit(training(f"a{number}", "a", created_at=number))
    sim.run_until(100)
    assert len(sim.running()) == 8
    for number in range(8):
        sim.submit(training(f"b{number}", "b", created_at=100 + number))
    sim.run_until(200)
    assert sum(uid.startswith("a") for uid in sim.running()) == 6
    assert sum(uid.startswith("b") for uid in sim.running()) == 2


def test_interactive_work_stays_within_the_guarantee() -> None:
    sim = simulation(node("n", 4), project("a", 1), project("b", 3, created_at=1.0))
    sim.submit(workspace("desk", "a", 2))
    reason = sim.step().reasons["desk"]
    assert reason.token is Token.NON_PREEMPTIBLE_BEYOND_QUOTA
    assert (reason.requested, reason.bound, reason.project) == (2000, 1000, "a")

    sim.delete("desk")
    sim.submit(workspace("desk", "a", 2, preemptible=True, priority=75))
    sim.run_until(10)
    assert sim.running() == ["desk"]
    assert sim.state.is_borrowed("desk")

    sim.submit(workspace("theirs", "b", 3))
    plan = sim.step()
    assert [eviction.uid for eviction in plan.evictions] == ["desk"]
    sim.run_until(100)
    assert sim.running() == ["theirs"]
    assert sim.plans[-1][1].reasons["desk"].token is Token.QUOTA_USED


def test_a_second_workspace_waits_for_the_guarantee() -> None:
    sim = simulation(node("n", 4), project("a", 2))
    sim.submit(workspace("first", "a", 2))
    sim.run_until(10)
    sim.submit(workspace("second", "a", 1))
    reason = sim.step().reasons["second"]
    assert (reason.cls, reason.token) == (
        ReasonClass.HELD_BACK,
        Token.NON_PREEMPTIBLE_BEYOND_QUOTA,
    )
    assert (reason.short, [holder.uid for holder in reason.holders]) == (1000, ["first"])


def test_a_workspace_beats_training_of_its_own_project() -> None:
    sim = simulation(*NODES, project("a", 2), project("b", 2, created_at=1.0))
    for uid in ("a-old", "a-new"):
        sim.submit(training(uid, "a", created_at=sim.now))
        sim.run_until(sim.now + 10)
    for uid in ("b1", "b2"):
        sim.submit(workspace(uid, "b", created_at=sim.now))
    sim.run_until(50)
    assert len(sim.running()) == 4

    sim.submit(workspace("desk", "a", created_at=sim.now))
    plan = sim.step()
    assert [eviction.uid for eviction in plan.evictions] == ["a-new"]
    assert plan.evictions[0].reason.token is Token.PREEMPTED
    sim.run_until(100)
    assert sim.running() == ["a-old", "b1", "b2", "desk"]
    for number in range(5):
        sim.submit(workspace(f"more-{number}", "a", priority=1000))
        sim.submit(training(f"theirs-{number}", "b", priority=1000))
    sim.run_until(200)
    assert {"b1", "b2", "desk"} <= set(sim.running())


def test_work_is_lost_only_since_the_last_checkpoint() -> None:
    sim = simulation(node("n", 1), project("a", 0), project("b", 1, created_at=1.0))
    sim.submit(training("long", "a"), duration=100, checkpoint_every=10)
    sim.run_until(45)
    sim.submit(workspace("desk", "b"), duration=20)
    sim.run_until(76)
    assert sim.running() == ["desk"]
    sim.run_until(95.5)
    assert sim.running() == ["long"]
    sim.run_until(134)
    assert sim.running() == ["long"]
    sim.run_until(155)
    assert sim.running() == []
