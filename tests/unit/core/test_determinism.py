"""The same facts and time give the same plan, byte for byte.

One hash over all plans of a story told by dice: the same in every run and in a fresh interpreter
with another hash seed; and the same plan when the facts arrived in another order, so that slots,
rows and numbers of classes differ.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    Event,
    NodeRemoved,
    NodeSet,
    QueueRemoved,
    QueueSet,
    TaskPlaced,
    TaskReleasing,
    TopologySet,
    WorkloadQueued,
)
from carrel_scheduler.core.resources import MILLI, ResourceVector
from carrel_scheduler.core.state import State
from unit.core.dice import LEVELS, leaves_of, random_nodes, random_queues, random_workload
from unit.core.runs import Run, fingerprint, text_of
from unit.core.stories import tell

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
SEED, STEPS = 11, 40
TELL = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from unit.core.stories import tell
print(tell({SEED}, {STEPS}, checked=False).run.hash)
"""


def test_one_hash_in_every_run_and_interpreter() -> None:
    first = tell(SEED, STEPS, checked=False).run
    assert first.hash == tell(SEED, STEPS).run.hash, "checking changes what is decided"
    assert any("Binding" in plan for plan in first.plans)
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        told = subprocess.run(
            [sys.executable, "-c", TELL],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.strip() == first.hash


def test_another_story_has_another_hash() -> None:
    told = {tell(seed, STEPS, checked=False).run.hash for seed in range(3)}
    assert len(told) == 3


class Facts:
    """A situation in groups of events; inside a group the order does not matter."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        nodes, queues = random_nodes(dice), random_queues(dice)
        owners = leaves_of(queues)
        workloads = [
            random_workload(dice, f"w{n}", dice.choice(owners), float(n % 4)) for n in range(20)
        ]
        depth = sorted({len(queue.name) for queue in queues})
        self.late = [random_workload(dice, f"x{n}", dice.choice(owners), 5.0) for n in range(6)]
        self.groups: list[list[Event]] = [
            [TopologySet("tree", LEVELS), *nodes],
            *(list[Event](q for q in queues if len(q.name) == size) for size in depth),
            list(workloads),
        ]

    def running(self) -> None:
        """Some of the work runs, some is being stopped, as a run would have it."""
        run = Run(*(event for group in self.groups for event in group), checked=False)
        for _ in range(3):
            run.wait(1.0)
        state, placed, stops = run.state, list[Event](), list[Event]()
        for uid, job in sorted(state.holding.items()):
            for index, row in sorted(job.rows.items()):
                place = state.tasks.footprint(row)
                node = state.nodes.names[place.node]
                at = job.started
                placed.append(TaskPlaced(uid, index, node, place.devices, at, place.slots))
            stops += [TaskReleasing(uid, index) for index in sorted(job.halted)]
        self.groups += [placed, stops, list(self.late)]

    def state(self, dice: random.Random, *, detour: bool) -> State:
        """The state after these facts in some order, with or without a past."""
        state = State()
        past: list[Event] = [NodeSet("zz", 8, 64_000, 1 << 18), NodeSet("aa", 2, 8_000, 1 << 14)]
        gone = QueueSet("gone", ResourceVector(9 * MILLI, 0, 0))
        if detour:
            for fact in (past[0], gone, past[1], NodeRemoved("zz")):
                state.apply(fact)
        for group in self.groups:
            # The value of nodes is learned from arrivals, so their order is part of the facts.
            arrivals = isinstance(group[0], WorkloadQueued) if group else False
            for event in group if arrivals else dice.sample(group, len(group)):
                state.apply(event)
        if detour:
            state.apply(NodeRemoved("aa"))
            state.apply(QueueRemoved("gone"))
        return state


@pytest.mark.parametrize("seed", range(12))
def test_the_order_of_unrelated_events_changes_nothing(seed: int) -> None:
    facts = Facts(seed)
    facts.running()
    plain = facts.state(random.Random(0), detour=False)
    other = facts.state(random.Random(seed), detour=bool(seed % 2))
    assert fingerprint(plain) == fingerprint(other)
    assert text_of(decide(plain, 8.0)) == text_of(decide(other, 8.0))


def test_deciding_changes_nothing() -> None:
    facts = Facts(3)
    facts.running()
    state = facts.state(random.Random(0), detour=False)
    before = fingerprint(state)
    texts = {text_of(decide(state, 8.0)) for _ in range(3)}
    assert len(texts) == 1
    assert fingerprint(state) == before
