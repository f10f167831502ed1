"""Quotas in groups of nodes: what is taken back there, what is kept, and what people are told."""

import random
from dataclasses import replace
from typing import Any

import pytest

from carrel_scheduler.core import State, speculation
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import QueueSet, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.messages.render import help_text, sentence
from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.core.requests import NodeConstraint, Request
from unit.core.node_groups import A100, H100, asked, grouped, guaranteed, held_there
from unit.core.runs import Run
from unit.core.situations import (
    queue,
    reasons,
    running,
    searches_made,
    state_of,
    training,
    workspace,
)
from unit.core.stories import tell


def bound(uid: str, owner: str, group: str = "a100", gpus: int = 1, **more: Any) -> WorkloadQueued:
    """A training that may only run in a group."""
    return training(uid, owner, request=asked(group, gpus), **more)


def full_of(owner: str, *rules: QueueSet, gpus: int = 8) -> Run:
    """Both groups are in use by work of one GPU of one queue."""
    run = Run(A100, H100, *rules)
    run.submit(*(training(f"{owner}{i}", owner) for i in range(gpus)))
    run.settle()
    return run


def test_the_example_of_the_documentation() -> None:
    run = Run(A100, H100, guaranteed("vision", 4, a100=4), queue("speech", 4), queue("audio", 0))
    run.submit(*(bound(f"h{i}", "audio", "h100") for i in range(4)))
    run.settle()
    run.submit(*(training(f"s{i}", "speech") for i in range(3)), bound("only", "speech"))
    run.settle()
    assert held_there(run, "speech") == 4
    run.submit(*(bound(f"v{i}", "vision") for i in range(5)))
    run.settle()
    assert run.running() == ["h0", "s0", "s1", "s2", "v0", "v1", "v2", "v3"]
    assert held_there(run, "vision") == 4
    assert held_there(run, "speech", "h100") == 3
    assert run.step().reasons["only"].detail == "a100"
    run.submit(workspace("w", "speech", request=asked("a100")))
    assert run.step().reasons["w"].token is Token.NON_PREEMPTIBLE_BEYOND_QUOTA


def test_a_quota_in_a_group_is_taken_back_from_work_within_its_quota_in_all() -> None:
    run = full_of("speech", guaranteed("vision", 4, a100=4), queue("speech", 8))
    run.submit(*(bound(f"v{i}", "vision") for i in range(5)))
    run.settle()
    assert held_there(run, "vision") == 4
    assert held_there(run, "speech", "h100") == 4
    assert "v4" not in run.running()


def test_what_starts_beyond_a_quota_there_makes_nobody_a_victim_who_ran_before() -> None:
    speech = replace(guaranteed("speech", 4, a100=3), preempt_min_runtime_s=1e6)
    run = Run(A100, H100, guaranteed("vision", 1, a100=1), speech)
    run.submit(*(bound(f"h{i}", "vision", "h100") for i in range(4)))
    run.submit(*(bound(f"s{i}", "speech") for i in range(3)))
    run.settle()
    run.submit(bound("late", "speech", priority=60), bound("v", "vision"))
    assert run.step().evictions == ()
    run.settle()
    assert run.running() == ["h0", "h1", "h2", "h3", "s0", "s1", "s2", "v"]


def test_without_a_quota_there_it_waits() -> None:
    run = full_of("speech", queue("vision", 4), queue("speech", 8))
    run.submit(bound("v", "vision"))
    run.settle()
    assert "v" not in run.running()


def test_what_lies_within_a_quota_in_its_group_is_not_taken_for_a_quota_in_all() -> None:
    """It holds 8 and is guaranteed 4, all of them on A100: only the others may be taken back."""
    run = full_of("vision", guaranteed("vision", 4, a100=4), queue("speech", 4))
    run.submit(*(training(f"s{i}", "speech") for i in range(4)))
    run.submit(bound("only", "speech"))
    run.settle()
    assert held_there(run, "vision") == 4
    assert held_there(run, "speech", "h100") == 4
    assert "only" not in run.running()


def test_a_quota_of_a_group_says_nothing_of_other_groups() -> None:
    rules = guaranteed("vision", 2, h100=1), queue("speech", 8)
    run = full_of("speech", *rules)
    run.submit(bound("v", "vision"))
    run.settle()
    assert "v" not in run.running()
    run.submit(training("any", "vision"))
    run.settle()
    assert run.nodes_of("any") == ["h1"]


def test_quotas_where_no_node_is_change_no_plan() -> None:
    plain = [queue("vision", 4), queue("speech", 4)]
    quotas = [guaranteed("vision", 4, tpu=2), guaranteed("speech", 4, tpu=1)]
    plans = []
    for rules in (plain, quotas):
        run, dice = Run(A100, H100, *rules), random.Random(7)
        for step in range(12):
            owner = dice.choice(("vision", "speech"))
            run.submit(training(f"w{step}", owner, dice.choice((1, 2, 3))))
            run.wait(1.0)
        run.settle()
        plans.append(run.plans)
    assert plans[0] == plans[1]


class TestTree:
    """Departments."""

    def test_a_department_shares_its_quota_among_its_projects(self) -> None:
        rules = guaranteed("science", 4, a100=2), queue("vision", 0, parent="science")
        run = full_of("speech", *rules, queue("speech", 8))
        run.submit(*(bound(f"v{i}", "vision") for i in range(3)))
        run.settle()
        assert held_there(run, "vision") == 2

    def test_a_project_takes_back_inside_its_department(self) -> None:
        rules = (
            guaranteed("science", 4, a100=4),
            guaranteed("vision", 2, "science", a100=2),
            queue("biology", 4, parent="science"),
        )
        run = Run(A100, *rules)
        run.submit(*(training(f"b{i}", "biology") for i in range(4)))
        run.settle()
        run.submit(*(bound(f"v{i}", "vision") for i in range(3)))
        run.settle()
        assert (held_there(run, "vision"), held_there(run, "biology")) == (2, 2)

    @pytest.mark.parametrize("most", [4, 5])
    def test_also_where_the_department_is_at_its_limit(self, most: int) -> None:
        """Those who give way are of the same department, so it holds no more than before."""
        science = replace(guaranteed("science", 4, a100=4), limit=queue("", limit=most).limit)
        rules = guaranteed("vision", 2, "science", a100=2), queue("biology", 4, parent="science")
        run = Run(A100, H100, science, *rules)
        run.submit(*(bound(f"b{i}", "biology") for i in range(4)))
        run.settle()
        run.submit(*(bound(f"v{i}", "vision") for i in range(3)))
        run.settle()
        assert (held_there(run, "vision"), held_there(run, "biology")) == (2, 2)

    def test_where_a_department_says_nothing_its_projects_quotas_count_together(self) -> None:
        rules = queue("science", 4), guaranteed("vision", 2, "science", a100=2)
        run = full_of("speech", *rules, queue("speech", 8))
        run.submit(bound("v", "vision", gpus=2))
        run.settle()
        assert "v" in run.running()

    def test_the_department_wins_where_its_projects_are_promised_more(self) -> None:
        rules = (
            guaranteed("science", 4, a100=1),
            guaranteed("vision", 4, "science", a100=4),
            guaranteed("speech", 4, a100=3),
        )
        run = full_of("vision", *rules)
        run.submit(*(bound(f"s{i}", "speech") for i in range(4)))
        run.settle()
        assert (held_there(run, "vision"), held_there(run, "speech")) == (1, 3)


class TestGangs:
    """Work of several tasks."""

    def test_all_of_a_gang_is_taken_in_one_group(self) -> None:
        """Three there and one elsewhere would fit; a quota in a group takes in all or none."""
        run = full_of("speech", guaranteed("vision", 8, a100=3, h100=3), queue("speech", 8))
        run.submit(training("four", "vision", tasks=4), training("three", "vision", tasks=3))
        run.settle()
        assert len(run.running()) == 6
        assert "four" not in run.running()
        assert set(run.nodes_of("three")) == {"a1"}

    @pytest.mark.parametrize("request_", [Request(gpus=1), Request(gpu_memory_mib=40 * 1024)])
    def test_what_lies_partly_elsewhere_is_not_kept_by_a_quota(self, request_: Request) -> None:
        """Tasks within the quota of a group do not keep others that are beyond any.

        GPU memory is searched for one by one, whole GPUs over arrays as well.
        """
        nodes = [replace(one, gpu_memory_mib=80 * 1024) for one in (A100, H100)]
        run = Run(*nodes, guaranteed("vision", 0, a100=4), queue("speech", 8))
        run.submit(training("gang", "vision", tasks=8))
        run.settle()
        run.submit(training("s", "speech", request=request_))
        run.settle()
        assert "s" in run.running()

    @pytest.mark.parametrize("claims", ["in all", "in a group"])
    def test_one_more_task_elsewhere_keeps_no_elastic_job(self, claims: str) -> None:
        """Its surplus goes first, and lies where nothing may be taken; what carries it does not."""
        group = Group(requests=(asked("h100", 2), asked("a100")), min_tasks=1)
        kept = guaranteed("vision", 0, a100=2) if claims == "in all" else queue("vision", 8)
        right = queue("s", 8) if claims == "in all" else guaranteed("s", 0, h100=2)
        run = Run(grouped("a1", 1, "a100"), grouped("h1", 2, "h100"), kept, right)
        run.submit(training("elastic", "vision", gang=group))
        run.settle()
        assert run.sizes() == {"elastic": 2}
        run.submit(bound("large", "s", "h100", 2))
        run.settle()
        assert "large" in run.running()

    def test_the_group_that_it_prefers_comes_first(self) -> None:
        run = full_of("speech", guaranteed("vision", 8, a100=1, h100=1), queue("speech", 8))
        where = NodeConstraint(preferred=(("node group", frozenset({"h100"})),))
        run.submit(training("v", "vision", request=Request(gpus=1, where=where)))
        run.settle()
        assert run.nodes_of("v") == ["h1"]


class TestMoves:
    """Who gives way gets another place where there is one."""

    def test_a_victim_moves_to_another_group_where_gpus_are_idle(self) -> None:
        run = Run(A100, grouped("h1", 5, "h100"), guaranteed("vision", 4, a100=4), queue("s", 8))
        run.submit(*(bound(f"a{i}", "s") for i in range(3)), training("any", "s"))
        run.settle()
        assert run.nodes_of("any") == ["a1"]
        run.submit(*(bound(f"v{i}", "vision") for i in range(4)))
        run.settle()
        assert run.nodes_of("any") == ["h1"]

    def test_what_a_quota_covers_is_not_moved_out_of_its_group(self) -> None:
        """Two GPUs are free on each node; moving one job would make room for the large one."""
        nodes = grouped("a1", 4, "a100"), grouped("h1", 4, "h100")
        rules = guaranteed("vision", 8, a100=2), queue("speech", 8)
        events = (
            *nodes, *rules,
            *running(bound("v0", "vision"), "a1", 0), *running(bound("v1", "vision"), "a1", 1),
        )  # fmt: skip
        free = [replace(e, request=Request(gpus=1)) if isinstance(e, WorkloadQueued) else e
                for e in events]  # fmt: skip
        run = Run(*free)
        run.submit(bound("large", "speech", gpus=3))
        run.settle()
        assert run.nodes_of("v0") == run.nodes_of("v1") == ["a1"]
        assert run.running() == ["v0", "v1"]
        plain = Run(*nodes, queue("vision", 8), queue("speech", 8), *free[4:])
        plain.submit(bound("large", "speech", gpus=3))
        plain.settle()
        assert plain.running() == ["large", "v0", "v1"]

    def test_nor_together_with_others(self) -> None:
        nodes = [grouped(f"a{i}", 2, "a100") for i in range(2)] + [grouped("h1", 2, "h100")]
        held = [running(training(f"v{i}", "vision"), f"a{i}", 0) for i in range(2)]
        for rule, runs in (
            (guaranteed("vision", 8, a100=2), ["v0", "v1"]),
            (queue("vision", 8), ["gang", "v0", "v1"]),
        ):
            run = Run(*nodes, rule, queue("speech", 8), *held[0], *held[1])
            run.submit(training("gang", "speech", tasks=2, request=asked("a100", 2)))
            run.settle()
            assert run.running() == runs

    def test_it_still_moves_within_its_group(self) -> None:
        nodes = grouped("a1", 2, "a100"), grouped("a2", 2, "a100")
        run = Run(*nodes, guaranteed("vision", 4, a100=4),
                  *running(training("v0", "vision"), "a1", 0),
                  *running(training("v1", "vision"), "a2", 0))  # fmt: skip
        run.submit(bound("large", "vision", gpus=2))
        run.settle()
        assert run.running() == ["large", "v0", "v1"]


class TestFixed:
    """Work that may not be stopped."""

    def test_it_takes_what_is_its_own_or_nobodys(self) -> None:
        run = Run(A100, H100, guaranteed("vision", 8, a100=3), queue("speech", 8))
        where = asked("a100")
        run.submit(*(workspace(f"s{i}", "speech", request=where) for i in range(2)))
        run.settle()
        assert held_there(run, "speech") == 1
        run.submit(workspace("anywhere", "speech"))
        run.settle()
        assert run.nodes_of("anywhere") == ["h1"]
        run.submit(*(workspace(f"v{i}", "vision", request=where) for i in range(4)))
        run.settle()
        assert held_there(run, "vision") == 3

    def test_inside_a_department_as_well(self) -> None:
        rules = guaranteed("science", 8, a100=2), guaranteed("vision", 4, "science", a100=2)
        run = Run(A100, *rules, queue("biology", 4, parent="science"), guaranteed("o", 4, a100=2))
        run.submit(workspace("b", "biology"), workspace("v", "vision"))
        run.settle()
        assert run.running() == ["v"]

    def test_preemptible_work_borrows_there(self) -> None:
        run = Run(A100, guaranteed("vision", 4, a100=4), queue("speech", 4))
        run.submit(*(training(f"s{i}", "speech") for i in range(4)))
        run.settle()
        assert held_there(run, "speech") == 4

    def test_it_is_told_what_is_left_for_it(self) -> None:
        where = asked("a100")
        rules = A100, guaranteed("vision", 8, a100=4), queue("speech", 8)
        found = reasons(*rules, workspace("w", "speech", request=where))["w"]
        assert (found.cls, found.token) == (
            ReasonClass.HELD_BACK,
            Token.NON_PREEMPTIBLE_BEYOND_QUOTA,
        )
        assert (found.detail, found.bound, found.short) == ("a100", 0, 1000)
        assert sentence(found, "speech") == (
            "It may not be interrupted: with it such work of `speech` would hold 1 GPU in node "
            "group `a100`, and 0 GPUs there are left for it: the rest is guaranteed to others or "
            "held by such work."
        )
        assert "preemptible" in help_text(found, "speech")

    def test_the_remedy_is_to_guarantee_it_some_there(self) -> None:
        where = asked("a100")
        rules = A100, guaranteed("vision", 8, a100=2), queue("speech", 8)
        one = workspace("w", "speech", request=replace(where, gpus=3))
        found = speculation.remedies(state_of(*rules, one), "w", 100.0)
        told = [(r.change, r.queue, r.group, r.amount) for r in found]
        assert told == [(speculation.RemedyKind.GROUP_QUOTA, "speech", "a100", 3000)]
        some = workspace("w", "speech", request=where)
        full = (
            *rules,
            *running(workspace("r", "speech"), "a1", 0),
            *running(workspace("q", "speech"), "a1", 1),
        )
        found = speculation.remedies(state_of(*full, some), "w", 100.0)
        assert [(r.change, r.uid) for r in found if r.uid] == [
            (speculation.RemedyKind.ENDS, "q"),
            (speculation.RemedyKind.ENDS, "r"),
        ]


class TestBounds:
    """What a quota in a group does not set aside."""

    def test_limits_and_over_quota_off_bind(self) -> None:
        limited = replace(guaranteed("vision", 4, a100=4), group_limits=(("a100", 2000),))
        kept = replace(guaranteed("vision", 1, a100=4), over_quota=False)
        for rule, most in ((limited, 2), (kept, 1)):
            run = full_of("speech", rule, queue("speech", 8))
            run.submit(*(bound(f"v{i}", "vision") for i in range(4)))
            run.settle()
            assert held_there(run, "vision") == most

    def test_what_a_limit_of_its_own_or_a_quota_forbids_is_not_sought(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Work that may not be stopped needs the quota of the department too."""
        made = searches_made(monkeypatch, "reclaim_in_group")
        small = guaranteed("dept", 1, a100=4)
        run = full_of("speech", small, guaranteed("vision", 4, "dept", a100=4), queue("speech", 8))
        run.tell(replace(guaranteed("audio", 4, a100=4), limit=queue("", limit=1).limit))
        run.submit(
            bound("limited", "audio", gpus=2),
            workspace("fixed", "vision", request=asked("a100", 2)),
            bound("may", "vision", gpus=2),
        )
        run.wait(1.0)
        assert made == ["may"]

    def test_minimum_run_times_and_delays_hold(self) -> None:
        speech = replace(queue("speech", 8), reclaim_min_runtime_s=1000.0)
        run = full_of("speech", guaranteed("vision", 4, a100=4), speech)
        run.submit(bound("v", "vision"))
        run.wait(10.0)
        assert not run.evicted
        run = full_of("speech", guaranteed("vision", 4, a100=4), queue("speech", 8))
        run.submit(bound("v", "vision", preemption_delay_s=100.0))
        run.wait(10.0)
        assert not run.evicted
        run.wait(100.0)
        assert run.evicted

    def test_what_may_not_be_stopped_stays(self) -> None:
        run = Run(A100, queue("speech", 8))
        run.submit(*(workspace(f"s{i}", "speech") for i in range(4)))
        run.settle()
        run.tell(guaranteed("vision", 4, a100=4))
        run.submit(bound("v", "vision"))
        run.settle()
        assert "v" not in run.running()

    @pytest.mark.parametrize("amount", [-1, 1 << 60])
    def test_an_amount_that_means_nothing_is_refused(self, amount: int) -> None:
        with pytest.raises(InvalidEvent) as error:
            State().apply(QueueSet("q", queue("q").quota, group_quotas=(("a100", amount),)))
        assert error.value.field == "group_quotas.a100"


class TestTold:
    """Reasons, previews and remedies."""

    def test_what_lies_within_the_quota_of_its_group_is_shown_as_within_quota(self) -> None:
        """It started last, so it would be what is shown as beyond the quota of two."""
        places = [("first", "h1", 0), ("second", "h1", 1), ("there", "a1", 0)]
        for rule, shown in ((queue("v", 2), "there"), (guaranteed("v", 2, a100=1), "second")):
            run = Run(A100, H100, rule)
            for at, (uid, name, device) in enumerate(places):
                run.tell(*running(training(uid, "v"), name, device, at=float(at)))
            over, state = run.state.over_quota, run.state
            assert [u for u, _, _ in places if over.has(state.queues, state.job(u))] == [shown]

    def test_who_gives_way_reads_whose_quota_in_which_group_was_claimed(self) -> None:
        run = full_of("speech", guaranteed("vision", 4, a100=4), queue("speech", 8))
        run.submit(bound("v", "vision"))
        (eviction,) = run.step().evictions
        assert eviction.reason.bound == 4000
        assert sentence(eviction.reason, "speech") == (
            "Preempted by `vision`, which reclaimed its guaranteed quota in node group `a100` for "
            "`v`."
        )

    @pytest.mark.parametrize(
        "rules",
        [
            [guaranteed("speech", 8, a100=0.5)],
            [guaranteed("dept", 8, a100=0.5), queue("speech", 8, parent="dept")],
        ],
    )
    def test_who_waits_reads_what_it_is_guaranteed_there(self, rules: list[QueueSet]) -> None:
        run = full_of("vision", guaranteed("vision", 8, a100=4), *rules)
        run.submit(bound("s", "speech"), bound("t", "vision", "h100"))
        found = run.step().reasons["s"]
        assert (found.token, found.detail, found.bound) == (Token.QUOTA_USED, "a100", 500)
        assert sentence(found, "speech") == (
            "Waiting for 1 GPU: that is more than `speech` has left of its guaranteed 0.5 GPU in "
            "node group `a100`, and nothing is idle to borrow."
        )
        assert "elsewhere" in help_text(found, "speech")

    def test_who_is_guaranteed_nothing_there_reads_that(self) -> None:
        run = full_of("vision", guaranteed("vision", 8, a100=4), queue("speech", 8))
        run.submit(bound("s", "speech"))
        found = run.step().reasons["s"]
        assert "`speech` is guaranteed none in node group `a100`" in sentence(found, "speech")

    @pytest.mark.parametrize(
        ("rule", "token"),
        [
            (guaranteed("vision", 4, a100=4), Token.PREEMPTION_DELAYED),
            (queue("vision", 4, group_limits=(("a100", 4000),)), Token.WAITS_FOR_ROOM),
        ],
    )
    def test_who_may_take_back_there_after_its_delay_reads_that(
        self, rule: QueueSet, token: Token
    ) -> None:
        """`speech` is within its quota in all: only a quota in the group gives a right to it."""
        run = full_of("speech", rule, queue("speech", 8))
        run.submit(bound("v", "vision", preemption_delay_s=100.0))
        assert run.step().reasons["v"].token is token

    def test_the_remedy_is_a_higher_quota_there(self) -> None:
        run = full_of("vision", guaranteed("vision", 8, a100=3), queue("speech", 8))
        run.submit(bound("s", "speech"))
        run.step()
        found = speculation.remedies(run.state, "s", run.now)
        assert (speculation.RemedyKind.GROUP_QUOTA, "speech", "a100", 1000) in [
            (one.change, one.queue, one.group, one.amount) for one in found
        ]

    def test_a_preview_says_who_starts_and_who_is_preempted(self) -> None:
        run = full_of("speech", queue("vision", 4), queue("speech", 8))
        run.submit(bound("v", "vision"))
        run.settle()
        new = guaranteed("vision", 4, a100=1)
        starts, stops = speculation.impact(run.state, new, run.now)
        assert starts == ("v",)
        assert len(stops) == 1


@pytest.mark.parametrize("seed", range(12))
def test_stories_with_groups_keep_every_invariant(seed: int) -> None:
    """Longer: ``python tests/hunts/machine.py --groups``."""
    tell(seed, 30, grouped=True)
