"""What decisions remember changes none of them.

Random histories are told; after each step the next decision is made several times, with what was
remembered so far and with nothing: at once, later, amid questions of a speculation. All are equal,
byte for byte, reasons included.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.decision_cases import borrowed, hard_no
from benchmarks.decision_cases import reclaim as reclaiming
from carrel_scheduler.core.actions.allocate import allocate
from carrel_scheduler.core.columns import DecisionCache
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CapacityReserved,
    CheckpointSeen,
    Event,
    NodeSet,
    Outcome,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TaskReleased,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI, UNLIMITED, ResourceVector
from carrel_scheduler.core.scoring.value import FIRST
from carrel_scheduler.core.settings import Settings
from carrel_scheduler.core.speculation import what_if
from carrel_scheduler.core.state import State
from unit.core.dice import random_workload
from unit.core.runs import Run, text_of
from unit.core.situations import searches_made
from unit.core.stories import Story, advance

GIB = 1024
NO_GPU = ResourceVector(0, UNLIMITED, UNLIMITED)
OTHER = WorkloadQueued("x", "x", "b", "user", 50, Preemptibility.YES, Request(gpus=1))


def told(plan: Plan) -> str:
    """Everything that a plan says."""
    reasons = plan.reasons
    return "\n".join([text_of(plan), *(f"{uid} {reasons[uid]!r}" for uid in sorted(reasons))])


def without_memory(state: State, now: float, tell: Callable[[Plan], str] = told) -> str:
    """The next plan, with nothing remembered; what was remembered is there again afterwards."""
    memory, division = state.cache, state.division
    state.cache, state.division = DecisionCache(), Division(state.settings.usage_factor_millionths)
    try:
        return tell(decide(state, now))
    finally:
        state.cache, state.division = memory, division


def check_equal(state: State, now: float) -> None:
    """The next decisions are the same with memory and without."""
    for later, reasons in ((0.0, True), (0.0, True), (1.0, False), (7.0, False), (0.0, False)):
        tell = told if reasons else text_of
        found = tell(decide(state, now + later))
        assert found == without_memory(state, now + later, tell), later


def test_a_story_is_decided_alike_with_memory_and_without() -> None:
    told_alike(seed=5, steps=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_long_stories_are_decided_alike_with_memory_and_without(seed: int) -> None:
    told_alike(seed, steps=24)


def told_alike(seed: int, steps: int) -> None:
    """A story of so many steps; amid it somebody asks what would be."""
    dice, story = random.Random(seed), Story(seed, checked=False)
    for number in range(steps):
        advance(story, dice)
        state, now = story.run.state, story.run.now
        check_equal(state, now)
        asked = random_workload(dice, f"asked-{number}", dice.choice(story.leaves), now)
        first = what_if(state, asked, now)
        state.cache, memory = DecisionCache(), state.cache
        assert what_if(state, asked, now) == first
        state.cache = memory
        assert told(decide(state, now)) == without_memory(state, now)


def crowded(dice: random.Random) -> Run:
    """More work than is searched one by one: two departments that borrow, on fourteen nodes."""
    nodes = [NodeSet(f"n{i:02}", 8, 64_000, 512 * GIB) for i in range(14)]
    queues = [QueueSet(name, amounts(56)) for name in ("a", "b")]
    queues += [
        QueueSet(f"{parent}{i}", amounts(dice.randint(8, 20)), parent=parent, created_at=float(i))
        for parent in ("a", "b")
        for i in range(3)
    ]
    run = Run(
        *nodes, *queues, settings=Settings(min_runtime_s=dice.choice((0.0, 5.0))), checked=False
    )
    leaves = [queue.name for queue in queues[2:]]
    started: list[Event] = []
    for node in nodes:
        for device in range(8):
            queued = workload(dice, f"r{len(started)}", leaves[min(5, dice.randrange(8))])
            started.append(replace(queued, request=Request(gpus=1, cpu_milli=4000)))
            started.append(TaskPlaced(queued.uid, 0, node.name, (device,), -dice.random() * 900))
    run.tell(*started)
    return run


def amounts(gpus: int) -> ResourceVector:
    return ResourceVector(gpus * MILLI, UNLIMITED, UNLIMITED)


def workload(dice: random.Random, uid: str, queue: str, now: float = -1000.0) -> WorkloadQueued:
    """Some work; what may not be stopped is rare."""
    request = Request(gpus=dice.choice((1, 1, 2, 4, 8)), cpu_milli=1000, memory_mib=GIB)
    kind = Preemptibility.NO if dice.random() < 0.1 else Preemptibility.YES
    tasks, priority = dice.choice((1, 1, 2, 3)), dice.choice((50, 50, 75))
    return WorkloadQueued(uid, uid, queue, "user", priority, kind, request, tasks, created_at=now)


def test_a_crowded_cluster_is_decided_alike_with_memory_and_without() -> None:
    crowded_alike(seed=2, steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_crowded_clusters_are_decided_alike_with_memory_and_without(seed: int) -> None:
    crowded_alike(seed, steps=12)


def crowded_alike(seed: int, steps: int) -> None:
    """So many things happen to a cluster in which nearly everything is in use."""
    dice = random.Random(seed)
    run = crowded(dice)
    recalled = 0
    for number in range(steps):
        queued = workload(dice, f"w{number}", f"{dice.choice('ab')}{dice.randrange(3)}", run.now)
        run.submit(queued)
        check_equal(run.state, run.now)
        what = dice.randrange(4)
        holding = sorted(run.state.holding)
        uid = dice.choice(holding)
        if what == 0:
            run.step()
        elif what == 1:
            run.finish(uid)
        elif what == 2:
            run.save(uid)
        else:
            run.wait(2.0)
        check_equal(run.state, run.now)
        recalled += len(run.state.cache.searches)
    assert recalled, "nothing was remembered"


def beset() -> Run:
    """Somebody whose claim is in vain: what may not be stopped lies on both nodes."""
    nodes = [NodeSet(name, 4, 64_000, 512 * GIB) for name in ("n0", "n1")]
    queues = [
        QueueSet("a", amounts(4)),
        QueueSet("b", amounts(2)),
        QueueSet("c", NO_GPU, weight=(1000, 1, 1)),
    ]
    run = Run(*nodes, *queues, checked=False)
    for number in range(8):
        kind = Preemptibility.NO if number in (0, 4) else Preemptibility.YES
        uid, place = f"r{number}", (f"n{number // 4}", (number % 4,))
        work = WorkloadQueued(uid, uid, "b", "user", 50, kind, Request(gpus=1))
        run.tell(work, TaskPlaced(uid, 0, *place, 0.0))
    run.tell(WorkloadQueued("w", "w", "a", "user", 50, Preemptibility.YES, Request(gpus=4)))
    return run


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Uids of those for whom victims in other queues were searched."""
    return searches_made(monkeypatch, "reclaim")


def test_a_search_in_vain_is_not_made_again_for_what_merely_waits(searches: list[str]) -> None:
    run = beset()
    decide(run.state, 1.0)
    assert searches == ["w"]
    decide(run.state, 1.0)
    what_if(run.state, OTHER, 1.0)
    run.tell(OTHER)
    decide(run.state, 1.0)
    assert searches == ["w"]


CHANGES = {
    "time": (2.0, ()),
    "a task ended": (1.0, (TaskReleased("r1", 0, Outcome.SUCCEEDED, 1.0), WorkloadRemoved("r1"))),
    "a checkpoint": (1.0, (CheckpointSeen("r1", 1.0),)),
    "other rules": (1.0, (QueueSet("b", amounts(3)),)),
    "shares": (1.0, (replace(OTHER, project="c"),)),
    "a node": (1.0, (NodeSet("n2", 0, 1000, GIB),)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_it_is_made_again_once_something_changed_that_it_looked_at(
    searches: list[str], change: str
) -> None:
    run = beset()
    decide(run.state, 1.0)
    now, events = CHANGES[change]
    run.tell(*events)
    decide(run.state, now)
    assert searches[:2] == ["w", "w"]


def test_it_is_made_again_with_other_values_of_room(searches: list[str]) -> None:
    """Enough arrivals to learn from, all of which have gone: nothing else is different then."""
    run = beset()
    decide(run.state, 1.0)
    before = run.state.chooser.value.prices
    for number in range(FIRST):
        uid = f"x{number}"
        run.tell(replace(OTHER, uid=uid, name=uid), WorkloadRemoved(uid))
    assert run.state.chooser.value.prices is not before
    decide(run.state, 1.0)
    assert searches == ["w", "w"]


def test_a_search_for_other_places_than_those_held_is_remembered_too(searches: list[str]) -> None:
    run = beset()
    run.tell(CapacityReserved("w", (("n0", (0, 1, 2, 3), 0),), (0,)))
    late = run.state.settings.reservation_delay_s + 1.0
    decide(run.state, late)
    decide(run.state, late)
    assert searches == ["w"]
    run.tell(TaskReleased("r1", 0, Outcome.SUCCEEDED, 1.0), WorkloadRemoved("r1"))
    decide(run.state, late)
    assert searches == ["w", "w"]


def test_that_a_search_ended_at_its_limits_is_remembered_too() -> None:
    claim = hard_no.puzzle(60)
    state = reclaiming.prepared(claim)
    reclaiming.again(state, claim)
    for _ in range(2):
        reason = decide(state, borrowed.NOW).reasons[claim.gang.uid]
        assert reason.token is Token.NO_VICTIMS_FOUND


def test_counts_follow_a_cycle_also_when_another_has_looked_in_between() -> None:
    run = crowded(random.Random(1))
    run.tell(NodeSet("spare", 2, 64_000, 512 * GIB))
    run.submit(replace(OTHER, project="a0"))
    state = run.state
    cls = state.job("x").shape.cls
    first = Cycle(state, run.now)
    allocate(first)
    assert first.moves.started
    for cycle in (first, Cycle(state, run.now), first):
        counted = state.capacity.counts(cycle.free_capacity.idle, cls)
        assert cycle.counts(cls, soon=False).tolist() == counted.tolist()
