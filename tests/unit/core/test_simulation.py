"""The virtual-time driver itself."""

import pytest

from carrel_scheduler.simulation import Simulation
from unit.core.situations import node, project, simulation, training, workspace


@pytest.fixture
def sim() -> Simulation:
    return simulation(node("n", 1), project("a", 0), project("b", 1, created_at=1.0), grace=5.0)


def test_work_ends_after_its_duration(sim: Simulation) -> None:
    sim.submit(training("x", "a"), duration=10)
    sim.submit(training("y", "a", created_at=1.0), duration=10)
    sim.run_until(9.5)
    assert (sim.running(), sim.waiting()) == (["x"], ["y"])
    sim.run_until(19.5)
    assert (sim.running(), sim.waiting()) == (["y"], [])
    sim.run_until(20)
    assert sim.jobs == {}


def test_unsaved_work_is_done_again(sim: Simulation) -> None:
    sim.submit(training("x", "a"), duration=20)
    sim.run_until(8)
    sim.submit(workspace("desk", "b"), duration=1)
    sim.run_until(13)
    assert (sim.running(), sim.jobs["x"].evictions) == (["desk"], 1)
    sim.run_until(14)
    assert sim.running() == ["x"]
    sim.run_until(33.5)
    assert sim.running() == ["x"]
    sim.run_until(34)
    assert sim.running() == []


def test_work_that_ends_while_giving_way_is_gone(sim: Simulation) -> None:
    sim.submit(training("x", "a"), duration=10)
    sim.run_until(8)
    sim.submit(workspace("desk", "b"))
    sim.run_until(10)
    assert (sim.running(), sorted(sim.jobs)) == (["desk"], ["desk"])


def test_what_was_planned_happens_in_order(sim: Simulation) -> None:
    seen: list[str] = []
    sim.at(2.0, lambda: seen.append("second"))
    sim.at(1.0, lambda: seen.append("first"))
    sim.at(2.0, lambda: seen.append("third"))
    sim.run_until(1.5)
    assert seen == ["first"]
    sim.run_until(2.0)
    assert (seen, sim.now) == (["first", "second", "third"], 2.0)


def test_two_equal_runs_are_equal() -> None:
    def run() -> str:
        sim = simulation(node("n", 2), project("a", 1), project("b", 1, created_at=1.0))
        for number in range(6):
            queued = training(f"w{number}", "ab"[number % 2], created_at=float(number))
            sim.submit(queued, duration=7.0 + number, checkpoint_every=2.0)
        sim.run_until(60)
        return repr(sim.plans)

    assert run() == run()
