"""Random submissions, ends and changes: every invariant holds after every step.

No workload is evicted for one that it was evicted for before it, and when nothing happens any more
the cluster comes to rest.
"""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from carrel_scheduler.core.events import NodeSet, WorkloadQueued
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.simulation import Simulation
from unit.core.situations import node, project, simulation, sound_state, training, workspace

PROJECTS = (
    project("a", 3, limit=6),
    project("b", 2, created_at=1.0, weight=3),
    project("c", 0, created_at=2.0, rank=1, weight=1),
    project("d", 2, created_at=3.0, over_quota=False),
)
NODES = (node("n1", 4, cpu=16), node("n2", 2, cpu=8), node("n3", 2, cpu=8), node("n4", 0, cpu=8))
GRACE = 3.0


class Feuds:
    """Remembers who gave way to whom, and complains when it is paid back."""

    def __init__(self) -> None:
        self._evicted_for: set[tuple[str, str]] = set()

    def watch(self, plan: Plan) -> None:
        """Note the evictions of a plan."""
        for eviction in plan.evictions:
            pair = (eviction.uid, eviction.reason.workload_uid)
            assert pair[::-1] not in self._evicted_for, f"{pair} evict each other"
            self._evicted_for.add(pair)

    def forget(self) -> None:
        """Something changed from outside: old accounts are closed."""
        self._evicted_for.clear()


def _advance(sim: Simulation, feuds: Feuds, seconds: float) -> None:
    start = len(sim.plans)
    sim.run_until(sim.now + seconds)
    for _, plan in sim.plans[start:]:
        feuds.watch(plan)


def _comes_to_rest(sim: Simulation) -> None:
    """Without ends and submissions, evictions stop."""
    sim.endless = True
    sim.run_until(sim.now + 40 * GRACE)
    before = len(sim.plans)
    sim.run_until(sim.now + 40 * GRACE)
    assert not any(plan.evictions for _, plan in sim.plans[before:])


def _workload(dice: random.Random, uid: str, now: float) -> WorkloadQueued:
    owner = dice.choice("abcd")
    more = {
        "created_at": now,
        "tasks": dice.choice((1, 1, 1, 1, 2, 3)),
        "cpu": dice.choice((0, 1, 1, 4)),
        "memory_gib": dice.choice((1, 1, 32)),
        "nodes": dice.choice((None, None, None, frozenset({"n1"}), frozenset({"n2", "n3"}))),
    }
    gpus = dice.choice((0, 1, 1, 1, 2, 4))
    if dice.random() < 0.25:
        return workspace(uid, owner, gpus, **more)
    return training(uid, owner, gpus, priority=dice.choice((10, 50, 50, 80)), **more)


@pytest.mark.parametrize("seed", range(4))
def test_long_random_run(seed: int) -> None:
    dice, feuds = random.Random(seed), Feuds()
    sim = simulation(*NODES, *PROJECTS, grace=GRACE)
    for number in range(120):
        feuds.forget()
        for _ in range(dice.randint(0, 2)):
            uid = f"w{number}-{dice.randint(0, 9999)}"
            every = dice.choice((None, 2.0, 5.0))
            duration = dice.choice((None, 3.0, 20.0, 60.0))
            queued = _workload(dice, uid, sim.now)
            sim.submit(queued, duration=duration, checkpoint_every=every)
        if sim.jobs and dice.random() < 0.4:
            sim.delete(dice.choice(sorted(sim.jobs)))
        if dice.random() < 0.1:
            changed = dice.choice(NODES)
            broken = frozenset({0} if changed.devices and dice.random() < 0.5 else ())
            schedulable = dice.random() < 0.7
            sim.apply(replace(changed, broken_devices=broken, schedulable=schedulable))
        _advance(sim, feuds, dice.choice((0.0, 1.0, 2.5)))
    assert sum(bool(plan.evictions) for _, plan in sim.plans) > 5, "the run tests too little"
    _comes_to_rest(sim)


class Cluster(RuleBasedStateMachine):
    """Small steps chosen by hypothesis, so that a failure shrinks to its cause."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = simulation(*NODES, *PROJECTS, grace=GRACE)
        self.feuds = Feuds()
        self.count = 0

    @initialize(full=st.booleans())
    def fill(self, *, full: bool) -> None:
        if full:
            for number in range(8):
                self.sim.submit(training(f"first-{number}", "abc"[number % 3]))
            self.sim.settle()

    @rule(seed=st.integers(0, 1 << 20), lasts=st.sampled_from((None, 4.0, 30.0)))
    def submit(self, seed: int, lasts: float | None) -> None:
        self.count += 1
        queued = _workload(random.Random(seed), f"w{self.count}", self.sim.now)
        self.feuds.forget()
        self.sim.submit(queued, duration=lasts)

    @rule(place=st.integers(0, 1000))
    def delete(self, place: int) -> None:
        if self.sim.jobs:
            self.feuds.forget()
            self.sim.delete(sorted(self.sim.jobs)[place % len(self.sim.jobs)])

    @rule(place=st.integers(0, 3), schedulable=st.booleans())
    def change_node(self, place: int, *, schedulable: bool) -> None:
        self.feuds.forget()
        changed: NodeSet = replace(NODES[place], schedulable=schedulable)
        self.sim.apply(changed)

    @rule(seconds=st.sampled_from((0.0, 1.0, 5.0)))
    def let_time_pass(self, seconds: float) -> None:
        _advance(self.sim, self.feuds, seconds)

    @invariant()
    def sound(self) -> None:
        sound_state(self.sim.state)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
