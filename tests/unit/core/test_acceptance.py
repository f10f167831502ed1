"""Acceptance walk-throughs against the core, in virtual time, every invariant around every plan."""

import pytest

from carrel_scheduler.core.events import (
    NodeSet,
    Outcome,
    Preemptibility,
    TopologySet,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group, Growth, Level
from carrel_scheduler.core.requests import HOST, NodeConstraint, Request
from unit.core.runs import Run
from unit.core.situations import asking, node, queue, training, workspace
from unit.core.stories import tell

NODES = (node("node-1", 2), node("node-2", 2))


def two_by_two(a: float = 2, b: float = 2) -> Run:
    """Two nodes of two GPUs, two projects."""
    return Run(*NODES, queue("a", a), queue("b", b, created_at=1.0))


def start(run: Run, *queued: WorkloadQueued) -> None:
    """One after the other, a while apart."""
    for spec in queued:
        run.submit(spec)
        run.step()
        run.wait(10)


def elastic(uid: str, gpus: int, project: str = "a") -> WorkloadQueued:
    """It starts with one GPU and doubles on its node."""
    group = Group("", (asking(1),) * gpus, 1, level=Level(HOST), growth=Growth.DOUBLE)
    return training(uid, project, gang=group)


def test_t1_over_quota_gives_way_and_comes_back() -> None:
    run = two_by_two()
    start(run, training("a2", "a", 2), training("a1", "a"), training("b1", "b"))
    assert run.running() == ["a1", "a2", "b1"]
    assert run.used("a") == 3
    start(run, training("b2", "b"))
    assert run.running() == ["a2", "b1", "b2"]
    assert run.evicted == {"a1": ["Reclaimed"]}
    run.finish("a2")
    run.settle()
    assert run.running() == ["a1", "b1", "b2"]


def test_t1_consolidation_moves_one_job_and_loses_nothing() -> None:
    run = two_by_two(a=4, b=1)
    start(run, training("one", "a"), training("two", "a"), training("three", "a"))
    assert run.nodes_of("one") == run.nodes_of("two") != run.nodes_of("three")
    run.finish("one")
    run.submit(training("pair", "a", 2))
    run.settle()
    assert run.running() == ["pair", "three", "two"]
    assert list(run.evicted.values()) == [["Consolidated"]]
    assert len(run.evicted) == 1


def test_t2_projects_share_at_once_and_then_take_turns() -> None:
    run = two_by_two(1, 1)
    run.submit(*(training(f"a{n}", "a") for n in range(1, 9)))
    run.settle()
    assert len(run.running()) == 4
    run.now += 100
    run.submit(*(training(f"b{n}", "b") for n in range(1, 9)))
    run.settle()
    assert (run.used("a"), run.used("b")) == (2, 2)
    before, turns = set(run.running()), []
    for turn in range(4):
        run.finish(min(uid for uid in before if uid[0] == "ab"[turn % 2]))
        run.settle()
        (new,) = set(run.running()) - before
        turns.append(new[0])
        before = set(run.running())
        assert (run.used("a"), run.used("b")) == (2, 2)
    assert turns == ["a", "b", "a", "b"]


def test_t3_the_surplus_follows_the_quotas() -> None:
    run = Run(node("n", 8), queue("a", 3), queue("b", 1, created_at=1.0))
    run.submit(*(training(f"a{n}", "a") for n in range(9)))
    run.submit(*(training(f"b{n}", "b") for n in range(9)))
    run.settle()
    assert (run.used("a"), run.used("b")) == (6, 2)
    for uid in sorted(run.state.jobs.by_uid):
        if uid.startswith("b") and uid not in run.running():
            run.finish(uid)
    run.finish(next(uid for uid in run.running() if uid.startswith("b")))
    run.settle()
    assert (run.used("a"), run.used("b")) == (7, 1)


def test_t4_elastic_work_fills_shrinks_and_grows_again() -> None:
    run = Run(node("n", 2), queue("a", 2))
    run.submit(elastic("grows", 2))
    run.settle()
    assert run.sizes() == {"grows": 2}
    run.submit(workspace("filler", "a"))
    run.settle()
    assert run.sizes() == {"filler": 1, "grows": 1}
    run.finish("grows")
    run.submit(elastic("later", 2))
    run.settle()
    assert run.sizes() == {"filler": 1, "later": 1}
    run.finish("filler")
    run.settle()
    assert run.sizes() == {"later": 2}


def test_t5_interactive_work_stays_within_quota() -> None:
    run = Run(node("n", 4), queue("a", 1), queue("b", 3, created_at=1.0))
    run.submit(workspace("desk", "a", 2))
    run.settle()
    assert run.running() == []
    run.finish("desk")
    run.submit(workspace("desk", "a", 2, preemptible=Preemptibility.YES))
    run.settle()
    assert run.running() == ["desk"]
    run.submit(training("theirs", "b", 3))
    run.settle()
    assert run.running() == ["theirs"]
    assert run.evicted["desk"] == ["Reclaimed"]


@pytest.mark.parametrize("priority", [100, 125])
def test_t6_t7_interactive_and_inference_beat_training_of_their_project(priority: int) -> None:
    run = two_by_two()
    start(run, *(workspace(f"b{n}", "b") for n in range(2)))
    start(run, training("old", "a"), training("new", "a"))
    start(run, workspace("served", "a", priority=priority, interactive=priority == 100))
    assert run.running() == ["b0", "b1", "old", "served"]
    assert run.evicted == {"new": ["Preempted"]}
    run.submit(*(training(f"urgent{n}", project, priority=1000) for n, project in enumerate("ab")))
    run.settle()
    assert {"b0", "b1", "served"} <= set(run.running())


def mig(uid: str, project: str, **request: str | int) -> WorkloadQueued:
    """A workload on a part of a GPU."""
    return training(uid, project, request=Request(cpu_milli=1000, **request))  # type: ignore[arg-type]


def test_t9_the_training_gives_way_whose_removal_makes_a_legal_place() -> None:
    a100 = NodeSet("n", 1, 64_000, 1 << 18, gpu_memory_mib=40960, mig_model="A100-40GB")
    run = Run(a100, queue("a", 0.5), queue("b", 0.5, created_at=1.0))
    start(
        run,
        mig("memory", "a", gpu_memory_mib=9000),
        mig("two", "a", mig_profile="2g.10gb"),
        mig("three", "a", mig_profile="2g.10gb"),
    )
    assert run.running() == ["memory", "three", "two"]
    desk = workspace("desk", "b", request=Request(mig_profile="3g.20gb", cpu_milli=1000))
    run.submit(desk)
    run.settle()
    assert "desk" in run.running()
    assert len(run.running()) == 3
    assert len(run.evicted) == 1


def test_t10_trials_are_independent() -> None:
    run = Run(node("n", 3), queue("a", 2), queue("b", 1, created_at=1.0))
    names = [f"trial{n}" for n in range(12)]
    run.submit(*(training(uid, "a") for uid in names[:3]))
    run.settle()
    assert len(run.running()) == 3
    run.submit(training("other", "b"))
    run.settle()
    assert run.used("a") == 2
    ((evicted, _),) = run.evicted.items()
    done: list[str] = []
    waiting = names[3:]
    for _ in range(40):
        mine = [uid for uid in run.running() if uid != "other"]
        assert len(mine) <= 2
        if not mine:
            break
        run.finish(mine[0])
        done.append(mine[0])
        if waiting:
            run.submit(training(waiting.pop(0), "a"))
        run.settle()
    assert sorted(done) == sorted(names)
    assert evicted in done


def test_t13_a_gang_starts_whole_restarts_whole_and_leaves_nothing() -> None:
    run = two_by_two(4, 1)
    start(run, training("single", "a"))
    run.submit(training("gang", "a", 2, tasks=2, stale_grace_s=0.0))
    run.settle()
    assert run.running() == ["single"]
    run.finish("single")
    run.settle()
    assert run.sizes() == {"gang": 2}
    run.end_task("gang", 1, Outcome.AGAIN)
    run.tell(NodeSet("node-1", 2, 64_000, 1 << 18, schedulable=False))
    run.tell(NodeSet("node-2", 2, 64_000, 1 << 18, schedulable=False))
    run.settle()
    assert run.sizes() == {}
    run.tell(*NODES)
    run.settle()
    assert run.sizes() == {"gang": 2}
    run.finish("gang")
    assert not run.state.holding
    assert not run.state.jobs.by_uid


def test_t14_a_gang_lies_in_the_tightest_rack_that_holds_it() -> None:
    racks = [node(f"n{n}", 2, labels=(("rack", f"r{n // 2}"),)) for n in range(6)]
    run = Run(TopologySet("tree", ("rack",)), *racks, queue("a", 12))
    # r0 lacks one GPU and is too small; r1 and r2 hold the gang, r2 is whole, r1 has one in use.
    for number, place in enumerate(("n0", "n0", "n2")):
        run.submit(training(f"used{number}", "a", nodes=frozenset({place})))
    run.settle()
    group = Group("", (asking(1),) * 3, level=Level("rack"))
    run.submit(training("gang", "a", gang=group))
    run.settle()
    assert {"n2", "n3"} == set(run.nodes_of("gang"))


def test_t15_a_department_bounds_what_its_projects_hold_for_good() -> None:
    run = Run(
        node("n", 8),
        queue("department", 4),
        queue("one", 3, parent="department", created_at=1.0),
        queue("two", 3, parent="department", created_at=2.0),
    )
    run.submit(*(workspace(f"{owner}{n}", owner) for owner in ("one", "two") for n in range(3)))
    run.settle()
    assert len(run.running()) == 4
    assert run.used("department") == 4


def test_t16_affinity_of_a_project_bounds_its_training() -> None:
    old = node("old", 2, labels=(("run.ai/type", "v100"),))
    new = node("new", 1, labels=(("run.ai/type", "dgx-2"),))
    run = Run(old, new, queue("a", 3))
    there = NodeConstraint(labels=(("run.ai/type", frozenset({"dgx-2"})),))
    run.submit(*(training(f"t{n}", "a", request=asking(1, where=there)) for n in range(2)))
    run.settle()
    assert [run.nodes_of(uid) for uid in run.running()] == [["new"]]


@pytest.mark.slow
def test_t26_ten_thousand_steps_hold_every_invariant() -> None:
    """Most of them are in the state machine: 480 runs of 20 steps; here are longer ones."""
    stories = [tell(seed, 80) for seed in range(26, 31)]
    assert sum(len(story.run.plans) for story in stories) >= 400
    evicted = [tokens for story in stories for tokens in story.run.evicted.values()]
    assert sum(map(len, evicted)) > 5


def test_evictions_cost_only_what_was_not_saved() -> None:
    run = Run(node("n", 2), queue("a", 0), queue("b", 1, created_at=1.0))
    start(run, training("saves", "a"), training("late", "a"))
    run.now += 100
    run.save("saves")
    start(run, training("claims", "b"))
    assert run.evicted == {"saves": ["Reclaimed"]}
