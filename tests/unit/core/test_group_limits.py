"""Limits of GPUs in groups of nodes: where work of a queue may go, and what it is told."""

import random
from dataclasses import replace
from typing import Any

import pytest

from carrel_scheduler.core import State, speculation
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import Preemptibility, QueueSet, TaskReleasing
from carrel_scheduler.core.messages.render import help_text, sentence
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.core.requests import IN_GROUP, NodeConstraint, Request
from carrel_scheduler.core.settings import Settings
from unit.core.node_groups import A100, H100, grouped, held_there, in_group
from unit.core.runs import Run
from unit.core.situations import queue, reasons, running, state_of, training, workspace
from unit.core.stories import Story


def limited(name: str, gpus: float = 8, *, a100: float = 2, **more: Any) -> QueueSet:
    return queue(name, gpus, group_limits=(("a100", round(a100 * 1000)),), **more)


def test_work_goes_elsewhere_when_the_limit_is_reached() -> None:
    run = Run(A100, H100, limited("vision"))
    run.submit(*(training(f"t{i}", "vision") for i in range(6)))
    run.settle()
    assert len(run.running()) == 6
    assert held_there(run, "vision") == 2
    assert held_there(run, "vision", "h100") == 4


@pytest.mark.parametrize("level", ["vision", "science"])
def test_the_limit_holds_at_every_level(level: str) -> None:
    rules = [queue("science", 8), queue("vision", 4, parent="science")]
    rules = [
        replace(one, group_limits=(("a100", 3000),)) if one.name == level else one for one in rules
    ]
    run = Run(A100, *rules, queue("speech", 4, parent="science"))
    run.submit(*(training(f"t{i}", "vision") for i in range(4)))
    run.settle()
    assert held_there(run, level) == 3


def test_a_gang_is_divided_between_groups_or_waits_as_a_whole() -> None:
    run = Run(A100, H100, limited("vision"))
    run.submit(training("gang", "vision", 1, tasks=6))
    run.settle()
    assert sorted(run.nodes_of("gang")) == ["a1"] * 2 + ["h1"] * 4
    late = Run(A100, H100, limited("vision", a100=1))
    late.submit(training("gang", "vision", 1, tasks=6))
    late.settle()
    assert late.running() == []


def test_a_quota_in_one_group_is_claimed_there_where_limits_close_others() -> None:
    """Beside what it is guaranteed in `a100`, one more GPU is idle: a claim is met in one group."""
    rule = queue("vision", 0, group_quotas=(("a100", 2000),), group_limits=(("h100", 0),))
    run = Run(A100, grouped("t1", 4, "t4"), rule, queue("speech", 8))
    run.submit(*(training(f"s{i}", "speech") for i in range(8)))
    run.settle()
    run.finish(next(uid for uid in run.running() if run.nodes_of(uid) == ["t1"]))
    run.submit(training("gang", "vision", tasks=2))
    run.settle()
    assert run.nodes_of("gang") == ["a1", "a1"]


def test_shares_and_members_apart_count_too() -> None:
    apart = Request(gpus=1, where=NodeConstraint(apart="host"))
    run = Run(A100, grouped("a2", 4, "a100"), H100, limited("vision", a100=1.5))
    run.submit(training("gang", "vision", tasks=2, request=apart))
    run.submit(training("half", "vision", 0.5), training("more", "vision", 0.75))
    run.settle()
    assert held_there(run, "vision") <= 1.5
    assert run.running() == ["gang", "half", "more"]
    assert "h1" in run.nodes_of("gang")


def test_work_that_asks_for_no_gpu_is_not_bound() -> None:
    run = Run(A100, limited("vision", a100=0))
    run.submit(training("cpu", "vision", 0), training("gpu", "vision", 1))
    run.settle()
    assert run.running() == ["cpu"]


def test_higher_priority_takes_the_place_of_its_own_queue_in_the_group() -> None:
    """The limit is reached and GPUs are idle: only work of the own queue makes room."""
    run = Run(A100, limited("vision"), queue("speech", 4))
    run.submit(training("s", "speech", 1), *(training(f"t{i}", "vision") for i in range(2)))
    run.settle()
    run.submit(training("urgent", "vision", priority=90))
    run.settle()
    assert "urgent" in run.running()
    assert "s" in run.running()
    assert held_there(run, "vision") == 2
    assert sum(map(len, run.evicted.values())) == 1


def test_reclaim_takes_nothing_where_the_limit_forbids_the_place() -> None:
    run = Run(A100, limited("vision", a100=1), queue("speech", 0))
    run.submit(*(training(f"s{i}", "speech") for i in range(4)))
    run.settle()
    run.submit(training("one", "vision"), training("two", "vision"))
    run.settle()
    assert held_there(run, "vision") == 1
    assert sum(map(len, run.evicted.values())) == 1


def test_a_reservation_ends_when_the_limit_is_lowered_below_it() -> None:
    run = Run(A100, limited("vision"), queue("speech", 0))
    run.submit(*(training(f"s{i}", "speech") for i in range(4)))
    run.settle()
    run.submit(training("one", "vision", 2))
    run.step()
    assert "one" in run.state.reserved
    run.tell(limited("vision", a100=1))
    run.settle()
    assert run.running() != []
    assert held_there(run, "vision") == 0


def test_what_runs_when_a_limit_is_set_goes_on() -> None:
    run = Run(A100, queue("vision", 8))
    run.submit(*(training(f"t{i}", "vision") for i in range(3)))
    run.settle()
    run.tell(limited("vision", a100=1))
    run.submit(training("late", "vision"))
    run.settle()
    assert run.running() == ["t0", "t1", "t2"]
    run.finish("t0")
    run.finish("t1")
    run.finish("t2")
    run.settle()
    assert run.running() == ["late"]


def test_who_waits_is_told_the_group_the_limit_and_the_use() -> None:
    found = reasons(
        A100, H100, limited("vision", a100=1),
        *running(training("r", "vision"), "a1", 0),
        training("t", "vision", request=Request(gpus=1, where=in_group("a100"))),
    )["t"]  # fmt: skip
    assert (found.cls, found.token) == (ReasonClass.HELD_BACK, Token.OVER_GROUP_LIMIT)
    assert (found.detail, found.bound, found.short) == ("a100", 1000, 1000)
    assert [holder.uid for holder in found.holders] == ["r"]
    assert sentence(found, "vision") == (
        "With it `vision` would hold 2 GPUs in node group `a100`, and its limit there is 1 GPU."
    )
    assert "other nodes" in help_text(found, "vision")


def test_idle_gpus_behind_a_limit_are_no_capacity_that_others_took() -> None:
    """All of the other group is in use: the limit is what keeps it from the idle GPUs."""
    found = reasons(
        A100, grouped("h1", 1, "h100"), limited("vision", a100=1),
        *running(training("r", "vision"), "a1", 0),
        *running(training("h", "vision"), "h1", 0),
        training("t", "vision"),
    )["t"]  # fmt: skip
    assert found.token is Token.OVER_GROUP_LIMIT


def test_the_department_is_named_when_it_is_its_limit() -> None:
    found = reasons(
        A100, limited("science", a100=1), queue("vision", 4, parent="science"),
        queue("speech", 4, parent="science"),
        *running(training("r", "speech"), "a1", 0),
        training("t", "vision"),
    )["t"]  # fmt: skip
    assert (found.token, found.project) == (Token.OVER_GROUP_LIMIT, "science")


def test_more_than_the_limit_could_ever_admit_is_never() -> None:
    state = state_of(A100, H100, limited("vision", a100=2))
    only = training("t", "vision", request=Request(gpus=3, where=in_group("a100")))
    found = speculation.never(state, only)
    assert found is not None
    assert (found.token, found.bound, found.requested) == (Token.OVER_GROUP_LIMIT, 2000, 3000)
    assert sentence(found, "vision") == (
        "It asks for 3 GPUs, and the limit of `vision` in node group `a100` is 2 GPUs."
    )
    assert speculation.never(state, training("t", "vision", 3)) is None


def test_the_remedy_is_a_higher_limit_in_the_group() -> None:
    state = state_of(
        A100, limited("vision", a100=1), *running(workspace("r", "vision"), "a1", 0),
        training("t", "vision"),
    )  # fmt: skip
    found = speculation.remedies(state, "t", 100.0)
    assert [(one.change, one.queue, one.group, one.amount) for one in found][:1] == [
        (speculation.RemedyKind.GROUP_LIMIT, "vision", "a100", 2000)
    ]


def test_what_is_terminating_counts_no_more() -> None:
    found = reasons(
        A100, limited("vision", a100=1), *running(training("r", "vision"), "a1", 0),
        TaskReleasing("r", 0), training("t", "vision"),
    )["t"]  # fmt: skip
    assert found.token is Token.STARTING


@pytest.mark.parametrize("amount", [-1, 1 << 60])
def test_an_amount_that_means_nothing_is_refused(amount: int) -> None:
    with pytest.raises(InvalidEvent) as error:
        State().apply(QueueSet("q", queue("q").quota, group_limits=(("a100", amount),)))
    assert error.value.field == "group_limits.a100"


@pytest.mark.parametrize("seed", range(30))
def test_no_plan_takes_a_queue_beyond_its_limit(seed: int) -> None:
    """Whatever the work, the tree and the evictions are; also when the limit is set late."""
    dice = random.Random(seed)
    nodes = [grouped(f"n{i}", 4, dice.choice(("a100", "h100"))) for i in range(4)]
    rules = [queue("d", 8, group_limits=(("a100", 3000),)), queue("c", 2)]
    rules += [limited("a", 3, a100=2, parent="d"), queue("b", 3, parent="d")]
    run = Run(*nodes, *rules, settings=Settings(reservation_delay_s=10.0))
    for step in range(25):
        owner = dice.choice("abc")
        kind = dice.choice((Preemptibility.YES, Preemptibility.YES, Preemptibility.NO))
        tasks, gpus = dice.choice((1, 1, 2, 3)), dice.choice((0.5, 1, 1, 2))
        priority = dice.choice((50, 75))
        run.submit(
            training(
                f"w{step}", owner, gpus, tasks=tasks, preemptible=kind, priority=priority
            )
        )  # fmt: skip
        run.wait(dice.choice((0.0, 1.0, 4.0, 12.0)))
        for queue_name, most in (("a", 2), ("d", 3)):
            assert held_there(run, queue_name) <= most
        if dice.random() < 0.4 and run.running():
            run.finish(dice.choice(run.running()))


def test_stories_with_limits_keep_every_invariant() -> None:
    """The stories of all rules, with groups on the nodes and limits in all queues."""
    for seed in range(12):
        story, dice = Story(seed), random.Random(seed)
        for one in story.nodes.values():
            labels = (*one.labels, (IN_GROUP, dice.choice(("a100", "h100"))))
            story.run.tell(replace(one, labels=labels))
        for rule in story.queues.values():
            story.run.tell(replace(rule, group_limits=(("a100", dice.choice((0, 1000, 2500))),)))
        for _ in range(12):
            story.submit(dice)
            plan: Plan = story.run.wait(dice.choice((0.0, 2.0, 11.0)))
            assert plan is not None
