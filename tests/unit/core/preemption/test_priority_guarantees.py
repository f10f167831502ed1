"""What a queue keeps by priority is not reclaimed, and work that nobody changes comes to rest."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.events import Event, QueueSet, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.layers import LARGEST
from carrel_scheduler.core.preemption.legality import ReclaimRequest
from carrel_scheduler.core.preemption.priority_guarantees import PriorityGuarantees
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.requests import NodeConstraint, Request
from unit.core.runs import Run
from unit.core.situations import asking, node, queue, running, state_of, training, workspace

SMALL, LARGE = frozenset({"a1", "a2"}), frozenset({"h"})
NODES = {"a1": 2, "a2": 2, "h": 4}
REST = 60
"""Steps after which nothing moves any more."""


def nodes() -> Iterator[Event]:
    """Two nodes of two GPUs, and one of four."""
    for name, gpus in NODES.items():
        yield node(name, gpus)


def evictions_at_rest(run: Run) -> dict[str, int]:
    """How often each workload is evicted in the 30 steps after the first ``REST``."""
    for _ in range(REST):
        run.wait(5)
    before = {uid: len(tokens) for uid, tokens in run.evicted.items()}
    for _ in range(30):
        run.wait(5)
    return {
        uid: more
        for uid, tokens in run.evicted.items()
        if (more := len(tokens) - before.get(uid, 0))
    }


def said(run: Run) -> dict[str, bool]:
    """Which workloads run."""
    return {uid: bool(job.rows) for uid, job in run.state.jobs.by_uid.items()}


def test_what_the_cycle_evicts_no_longer_counts_as_lower_priority() -> None:
    state = state_of(
        *(node("n", 4), queue("a", 8), queue("b", 2, weight=(0, 0, 0))),
        *running(training("low", "b", 2, priority=25), "n", 0, 1),
        *running(training("high", "b", 2, priority=75), "n", 2, 3),
        training("waits", "a"),
    )
    cycle, queues = Cycle(state, 100.0), state.queues.slots

    def kept_from() -> int:
        demand, kept = (1000, 1000, 1024), PriorityGuarantees(cycle)
        request = ReclaimRequest(cycle.queue_usage, queues["a"], demand, priorities=kept)
        return request.kept_from(queues["b"])

    mark = cycle.moves.mark()
    assert kept_from() == 75
    cycle.moves.evict(state.job("low"), 0, Cause(Token.RECLAIMED))
    assert kept_from() == LARGEST
    cycle.moves.rollback(mark)
    assert kept_from() == 75


def start(run: Run, *queued: WorkloadQueued) -> None:
    """Submit one after another, each with a cycle of its own."""
    for one in queued:
        run.submit(one)
        run.wait(1)


def test_work_covered_by_quota_is_not_reclaimed_by_fair_share_for_what_is_beside_it() -> None:
    """``low`` borrows elsewhere; that makes ``high`` no victim of those it took its node from."""
    run = Run(*nodes(), queue("a", 2), queue("b", 2), queue("c", 2))
    start(
        run, workspace("c-w", "c", 1, nodes=SMALL), training("c75", "c", priority=75, nodes=SMALL)
    )
    start(run, workspace("a-w", "a", 2, nodes=LARGE))
    start(run, training("c50", "c", nodes=LARGE), training("a50", "a", nodes=LARGE))
    start(
        run,
        training("low", "b", 2, nodes=SMALL),
        training("high", "b", 2, priority=75, nodes=LARGE),
    )
    assert evictions_at_rest(run) == {}
    assert {uid: run.evicted[uid][0] for uid in ("a50", "c50")} == dict.fromkeys(
        ("a50", "c50"), Token.RECLAIMED
    )
    assert len(run.evicted["a50"]) == 1
    assert said(run)["high"]
    assert said(run)["low"]


ONE, N1 = asking(1), NodeConstraint(nodes=frozenset({"n1"}))
WHOLE = asking(0, share_milli=0, mig_profile="7g.40gb")


@pytest.mark.parametrize(
    ("held", "asked"),
    [(ONE, (ONE,)), (ONE, (ONE, replace(ONE, gpus=0))), (WHOLE, (WHOLE,))],
    ids=["plain", "unlike tasks", "instances"],
)
def test_nor_for_whatever_work_while_what_is_beside_it_keeps_its_run_time(
    held: Request, asked: tuple[Request, ...]
) -> None:
    """``b`` is beyond its quota by ``low``, which has only just begun."""
    nodes = (node(name, 1, mig_model="A100-40GB") for name in ("n1", "n2"))
    run = Run(*nodes, queue("a", 1), queue("b", 1, reclaim_min_runtime_s=1000))
    for uid, priority, place, at in (("high", 75, "n1", -2000.0), ("low", 25, "n2", 0.0)):
        where = NodeConstraint(nodes=frozenset({place}))
        run.tell(training(uid, "b", priority=priority, request=replace(held, where=where)))
        run.tell(TaskPlaced(uid, 0, place, (0,), at, 255 * bool(held.mig_profile)))
    gang = Group(requests=tuple(replace(request, where=N1) for request in asked))
    start(run, training("mine", "a", gang=gang))
    assert run.evicted == {}


def test_in_a_department_what_a_sibling_borrows_counts_as_gone_first() -> None:
    """``high`` is within its project's and department's quota; ``low`` of a sibling is beyond."""
    run = Run(
        *nodes(),
        *(queue("x", 2), queue("y", 4)),
        *(queue("x1", 2, parent="x"), queue("x2", 0, parent="x"), queue("y1", 4, parent="y")),
    )
    start(run, training("y-a", "y1", 2, priority=75, nodes=LARGE))
    start(run, training("high", "x1", 2, priority=75, nodes=LARGE))
    start(run, training("lower", "x1", 1, priority=25, nodes=SMALL))
    start(run, training("low", "x2", 2, nodes=SMALL))
    start(run, training("y-b", "y1", 2, nodes=LARGE))
    assert evictions_at_rest(run) == {}
    assert "high" not in run.evicted
    assert said(run)["high"]


@pytest.mark.parametrize("lower", [25, 50])
def test_what_is_beyond_goes_from_the_lowest_priority_up(lower: int) -> None:
    """A queue beyond its quota loses its lower priority wherever it is of use."""
    run = Run(node("n", 4), queue("a", 2), queue("b", 2))
    start(run, training("high", "b", 2, priority=75), training("low", "b", 2, priority=lower))
    start(run, training("mine", "a", 2))
    run.wait(5)
    assert run.evicted == {"low": [Token.RECLAIMED]}
    assert said(run)["mine"]


def test_equal_priorities_keep_nothing_beyond_the_quota() -> None:
    """Where all is of one priority, what lies on the only useful node is taken."""
    run = Run(*nodes(), queue("a", 2), queue("b", 2))
    start(run, training("first", "b", 2, nodes=LARGE), training("second", "b", 2, nodes=LARGE))
    start(run, training("third", "b", 2, nodes=SMALL), training("mine", "a", 2, nodes=LARGE))
    run.wait(5)
    assert said(run)["mine"]
    assert evictions_at_rest(run) == {}


def a_story(seed: int) -> Run:
    """Random queues, in departments or not, and work bound to some of the nodes."""
    dice = random.Random(seed)
    names = list(NODES)

    def where() -> frozenset[str]:
        choices = [["a1", "a2"], ["h"], names, ["a1"], ["a1", "h"]]
        return frozenset(dice.choice(choices))

    above = [queue(name, dice.choice([2, 3, 4])) for name in "xy"] if dice.random() < 0.5 else []
    leaves: list[QueueSet] = []
    for name in "abcd"[: dice.choice([2, 3, 4])]:
        parent = dice.choice("xy") if above else ""
        leaves.append(queue(name, dice.choice([0, 1, 2, 2, 3]), parent=parent))
    run = Run(*nodes(), *above, *leaves)
    for number in range(dice.randint(5, 12)):
        project, gpus = dice.choice(leaves).name, dice.choice([1, 1, 2])
        if dice.random() < 0.15:
            run.submit(workspace(f"w{number}", project, gpus, nodes=where()))
        else:
            priority = dice.choice([25, 50, 75])
            run.submit(training(f"t{number}", project, gpus, priority=priority, nodes=where()))
        run.wait(dice.choice([0, 1, 5]))
    return run


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_without_new_facts_evictions_end(first: int) -> None:
    """Nobody submits, nothing ends: after some time nothing is evicted any more."""
    for seed in range(first, first + 10):
        assert evictions_at_rest(a_story(seed)) == {}, f"story {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [459, *range(1000, 1060)])
def test_without_new_facts_evictions_end_in_many_stories(seed: int) -> None:
    """The same, with one that went on for ever where priorities do not count."""
    assert evictions_at_rest(a_story(seed)) == {}
