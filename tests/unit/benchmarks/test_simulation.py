"""The virtual-time driver: arrivals, ends, checkpoints, evictions, failures, lost nodes."""

from functools import partial

import pytest

from benchmarks.simulation import Simulation
from carrel_scheduler.core.events import Event, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from unit.core.situations import asking, node, queue, state_of, training, workspace


def simulation(*events: Event) -> Simulation:
    return Simulation(state_of(*events), grace_seconds=5.0)


@pytest.fixture
def sim() -> Simulation:
    return simulation(node("n", 1), queue("a", 0), queue("b", 1, created_at=1.0))


def test_work_ends_after_its_duration(sim: Simulation) -> None:
    sim.submit(training("x", "a"), duration=10)
    sim.submit(training("y", "a", created_at=1.0), duration=10)
    sim.run_until(9.5)
    assert (sim.running(), sim.waiting()) == (["x"], ["y"])
    sim.run_until(19.5)
    assert (sim.running(), sim.waiting()) == (["y"], [])
    sim.run_until(20)
    assert (sim.jobs, [work.waited for work in sim.ended]) == ({}, [0.0, 10.0])


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
    assert (sim.measures.lost, sim.measures.useful) == (13.0, 21.0)
    assert sim.measures.lost_part == 13 / 34
    assert sim.ended[-1].waited == 1.0


def test_a_checkpoint_is_where_it_goes_on(sim: Simulation) -> None:
    sim.submit(training("x", "a"), duration=20, checkpoint_every=6)
    sim.run_until(8)
    sim.submit(workspace("desk", "b"), duration=1)
    sim.run_until(14)
    assert (sim.measures.lost, sim.jobs["x"].saved) == (1.0, 12.0)
    sim.run_until(22)
    assert sim.running() == []


def test_work_that_ends_while_giving_way_is_gone(sim: Simulation) -> None:
    sim.submit(training("x", "a"), duration=10)
    sim.run_until(8)
    sim.submit(workspace("desk", "b"))
    sim.run_until(10)
    assert (sim.running(), sorted(sim.jobs)) == (["desk"], ["desk"])
    assert sim.measures.lost == 0


def test_what_was_planned_happens_in_order(sim: Simulation) -> None:
    seen: list[str] = []
    sim.at(2.0, lambda: seen.append("second"))
    sim.at(1.0, lambda: seen.append("first"))
    sim.at(2.0, lambda: seen.append("third"))
    sim.run_until(1.5)
    assert seen == ["first"]
    sim.run_until(2.0)
    assert (seen, sim.now) == (["first", "second", "third"], 2.0)


def elastic(uid: str, least: int, most: int) -> WorkloadQueued:
    leaf = Group(requests=(asking(1),) * most, min_tasks=least)
    return training(uid, "a", gang=leaf)


def test_more_members_do_the_work_sooner() -> None:
    sim = simulation(node("n", 4), queue("a", 4))
    sim.submit(elastic("x", 1, 4), duration=40)
    sim.run_until(9.9)
    assert sim.running() == ["x"]
    sim.run_until(10)
    assert sim.jobs == {}
    assert sim.measures.useful == 40


def test_a_failure_falls_back_to_the_checkpoint() -> None:
    sim = simulation(node("n", 2), queue("a", 2))
    sim.submit(training("x", "a", tasks=2), duration=10, checkpoint_every=4)
    sim.at(7.0, lambda: sim.fail("x"))
    sim.run_until(12.9)
    assert sim.running() == ["x"]
    sim.run_until(13)
    assert (sim.jobs, sim.measures.lost, sim.ended[0].losses) == ({}, 6.0, 1)


def test_a_lost_node_takes_the_whole_gang_and_comes_back() -> None:
    sim = simulation(node("n1", 1), node("n2", 1), queue("a", 2))
    sim.submit(training("x", "a", tasks=2), duration=10)
    sim.submit(training("y", "a", created_at=1.0), duration=3)
    sim.at(5.0, lambda: sim.lose_node("n1", back_after=10))
    sim.run_until(6)
    assert sim.running() == ["y"]
    sim.run_until(16)
    assert (sim.running(), sim.measures.capacity) == (["x"], 2 * 5 + 10 + 2)
    sim.run_until(25)
    assert sim.jobs == {}


def test_events_of_a_batch_are_decided_upon_together() -> None:
    state = state_of(node("n", 1), queue("a", 1))
    sim = Simulation(state, batch_seconds=10, settles=False)
    sim.run_until(0)
    before = sim.decisions
    for second in range(8):
        job = training(f"x{second}", "a", created_at=float(second))
        sim.at(20.0 + second, partial(sim.submit, job, duration=100))
    sim.run_until(31)
    assert (sim.decisions - before, sim.running()) == (1, ["x0"])


def test_idle_counts_as_far_as_somebody_asks() -> None:
    sim = simulation(node("n", 4), queue("a", 4))
    sim.submit(training("x", "a", 3), duration=10)
    sim.submit(training("y", "a", 2, created_at=1.0), duration=10)
    sim.run_to_end()
    assert (sim.now, sim.measures.asked_capacity) == (20.0, 40.0)
    assert (sim.measures.idle_while_asked, sim.measures.in_use_while_asked) == (10.0, 0.75)


def test_two_equal_runs_are_equal() -> None:
    def run() -> str:
        sim = simulation(node("n", 2), queue("a", 1), queue("b", 1, created_at=1.0))
        for number in range(6):
            queued = training(f"w{number}", "ab"[number % 2], created_at=float(number))
            sim.submit(queued, duration=7.0 + number, checkpoint_every=2.0)
        sim.run_to_end()
        return repr((sim.ended, sim.measures, sim.decisions))

    assert run() == run()
