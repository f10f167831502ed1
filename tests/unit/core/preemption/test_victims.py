"""Who gives way: rights first, then the order, then the least work lost."""

from collections.abc import Mapping
from typing import Any

import pytest

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.events import CheckpointSeen, TaskPlaced, WorkloadQueued
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.requests import HOST, NodeConstraint
from unit.core.invariants.evictions import check_plan
from unit.core.situations import asking, node, queue, running, state_of, training, workspace

NOW = 1000.0


def situation(*events: Any, run: Mapping[str, tuple[str, tuple[int, ...], float]]) -> State:
    """A state in which workloads run: uid -> (node, devices, start)."""
    state = State()
    for event in events:
        state.apply(event)
        if isinstance(event, WorkloadQueued) and event.uid in run:
            place, devices, start = run[event.uid]
            state.apply(TaskPlaced(event.uid, 0, place, devices, at=start))
    return state


def plan_of(state: State) -> Plan:
    plan = decide(state, NOW)
    assert check_plan(state, plan, NOW) == []
    return plan


def victims(state: State) -> list[str]:
    return [eviction.uid for eviction in plan_of(state).evictions]


def borrowers(*checkpoints: CheckpointSeen, claim: int = 1) -> State:
    """Project `a` runs three trainings without any quota; `b` claims so many GPUs."""
    run = {uid: ("n", (d,), 100.0) for d, uid in enumerate(("old", "mid", "new"))}
    trainings = [training(uid, "a", created_at=float(n)) for n, uid in enumerate(run)]
    preemptor = workspace("claim", "b", claim)
    base = (node("n", 3), queue("a", 0), queue("b", 3), *trainings)
    return situation(*base, *checkpoints, preemptor, run=run)


def test_the_youngest_goes_first_when_all_lose_the_same() -> None:
    assert victims(borrowers()) == ["new"]
    assert victims(borrowers(claim=2)) == ["new", "mid"]


def test_the_least_lost_work_goes_first() -> None:
    saved = (CheckpointSeen("old", 990.0), CheckpointSeen("mid", 500.0))
    assert victims(borrowers(*saved)) == ["old"]
    assert victims(borrowers(*saved, claim=2)) == ["old", "mid"]


def test_a_checkpoint_before_the_start_saves_nothing() -> None:
    assert victims(borrowers(CheckpointSeen("old", 50.0))) == ["new"]


def test_lower_priority_goes_first_whatever_it_loses() -> None:
    run = {"low": ("n", (0,), 1.0), "high": ("n", (1,), 999.0)}
    state = situation(
        node("n", 2),
        queue("a", 0),
        queue("b", 1),
        training("low", "a", priority=10),
        training("high", "a", priority=50),
        CheckpointSeen("high", 1000.0),
        workspace("claim", "b"),
        run=run,
    )
    assert victims(state) == ["low"]


@pytest.mark.parametrize("reporting", ["a", "c", "both", "none"])
def test_reporting_does_not_change_which_project_gives_way(reporting: str) -> None:
    """`a` is further beyond its share than `c`, so `a` gives way however little `c` would lose."""
    run = {uid: ("n", (d,), 100.0) for d, uid in enumerate(("a1", "a2", "a3", "c1", "c2"))}
    saved = [
        CheckpointSeen(uid, 999.0) for uid in run if uid[0] == reporting or reporting == "both"
    ]
    state = situation(
        node("n", 5),
        queue("a", 1),
        queue("b", 1),
        queue("c", 1),
        *[training(uid, uid[0]) for uid in run],
        *saved,
        workspace("claim", "b"),
        run=run,
    )
    assert victims(state)[0][0] == "a"


def test_a_single_borrowed_gpu_goes_before_a_guaranteed_pair() -> None:
    run = {"single": ("n", (0,), 1.0), "pair": ("n", (1, 2), 990.0)}
    state = situation(
        node("n", 3),
        queue("a", 2),
        queue("b", 1),
        training("single", "a", created_at=1.0),
        training("pair", "a", 2, created_at=2.0),
        workspace("claim", "b"),
        run=run,
    )
    assert victims(state) == ["single"]


def test_victims_that_do_not_help_are_spared() -> None:
    """The youngest run on other nodes; only those on one node make room for a pair."""
    run = {
        "x1": ("n1", (0,), 1.0),
        "x2": ("n1", (1,), 1.0),
        "y1": ("n2", (0,), 1.0),
        "z1": ("n3", (0,), 1.0),
    }
    state = situation(
        node("n1", 2),
        node("n2", 2, broken_devices=frozenset({1})),
        node("n3", 1),
        queue("a", 0),
        queue("b", 2),
        *[training(uid, "a", created_at=float(n)) for n, uid in enumerate(run)],
        workspace("claim", "b", 2),
        run=run,
    )
    assert sorted(victims(state)) == ["x1", "x2"]


def test_rights_are_not_used_up_on_nodes_that_do_not_help() -> None:
    """Two may be taken; the youngest two are on different nodes and would make no room."""
    run = {uid: ("n1", (d,), 1.0) for d, uid in enumerate(("p1", "p2"))}
    run |= {uid: ("n2", (d,), 1.0) for d, uid in enumerate(("q1", "q2"))}
    state = situation(
        node("n1", 2),
        node("n2", 2),
        queue("a", 2),
        queue("b", 2),
        training("p1", "a", created_at=1.0),
        training("q1", "a", created_at=2.0),
        training("p2", "a", created_at=3.0),
        training("q2", "a", created_at=4.0),
        workspace("claim", "b", 2),
        run=run,
    )
    assert sorted(victims(state)) in (["p1", "p2"], ["q1", "q2"])


def test_a_gang_gives_way_whole() -> None:
    state = State()
    for event in (
        node("n1", 1),
        node("n2", 1),
        queue("a", 0),
        queue("b", 1),
        training("gang", "a", tasks=2),
        TaskPlaced("gang", 0, "n1", (0,), at=1.0),
        TaskPlaced("gang", 1, "n2", (0,), at=1.0),
        workspace("claim", "b"),
    ):
        state.apply(event)
    plan = plan_of(state)
    assert [eviction.uid for eviction in plan.evictions] == ["gang"]
    assert plan.nominations[0].places == (("n1", (0,), 0),)


def test_work_within_the_quota_is_never_reclaimed() -> None:
    run = {"mine": ("n", (0,), 1.0)}
    rest = (training("mine", "a"), workspace("claim", "b"))
    assert victims(situation(node("n", 1), queue("a", 1), queue("b", 1), *rest, run=run)) == []


def test_non_preemptible_work_is_never_a_victim() -> None:
    run = {"desk": ("n", (0,), 1.0)}
    rest = (workspace("desk", "a", priority=1), workspace("claim", "a", priority=1000))
    assert victims(situation(node("n", 1), queue("a", 2), *rest, run=run)) == []


def test_a_claim_beyond_the_quota_stops_at_the_fair_share() -> None:
    """Four GPUs, two projects without quota and of equal weight: two each, and then rest."""
    run = {uid: ("n", (d,), 1.0) for d, uid in enumerate(("a1", "a2", "a3", "a4"))}
    state = situation(
        node("n", 4),
        queue("a", 0, weight=(1000, 1000, 1000)),
        queue("b", 0, weight=(1000, 1000, 1000)),
        *[training(uid, "a", created_at=float(n)) for n, uid in enumerate(run)],
        *[training(f"b{n}", "b", created_at=10.0 + n) for n in range(4)],
        run=run,
    )
    assert victims(state) == ["a4", "a3"]


def test_a_claim_beyond_the_quota_takes_nothing_from_a_higher_rank() -> None:
    run = {uid: ("n", (d,), 1.0) for d, uid in enumerate(("a1", "a2"))}
    state = situation(
        node("n", 2),
        queue("a", 0, weight=(0, 0, 0), rank=1),
        queue("b", 0, weight=(1000, 1000, 1000)),
        *[training(uid, "a") for uid in run],
        training("claim", "b"),
        run=run,
    )
    assert victims(state) == []


def test_equal_priority_does_not_preempt() -> None:
    run = {"first": ("n", (0,), 1.0)}
    rest = (training("first", "a"), training("second", "a"))
    assert victims(situation(node("n", 1), queue("a", 1), *rest, run=run)) == []


def test_the_lowest_priority_is_preempted_and_no_more_than_needed() -> None:
    run = {uid: ("n", (d,), 1.0) for d, uid in enumerate(("low", "mid", "high"))}
    state = situation(
        node("n", 3),
        queue("a", 3),
        *[training(uid, "a", priority=p) for uid, p in zip(run, (10, 50, 80), strict=True)],
        workspace("desk", "a"),
        run=run,
    )
    assert victims(state) == ["low"]


def test_a_project_at_its_limit_preempts_its_own_work() -> None:
    run = {"low": ("n", (0,), 1.0)}
    state = situation(
        node("n", 4),
        queue("a", 1, limit=1),
        training("low", "a", priority=10),
        training("high", "a", priority=80),
        run=run,
    )
    plan = plan_of(state)
    assert [eviction.uid for eviction in plan.evictions] == ["low"]


def test_borrowed_work_of_others_goes_before_own_work_of_lower_priority() -> None:
    run = {"own": ("n", (0,), 1.0), "theirs": ("n", (1,), 1.0)}
    state = situation(
        node("n", 2),
        queue("a", 2),
        queue("b", 0),
        training("own", "a", priority=10),
        training("theirs", "b"),
        workspace("desk", "a"),
        run=run,
    )
    assert victims(state) == ["theirs"]


def test_work_without_gpus_does_not_give_way_for_borrowed_gpus() -> None:
    run: dict[str, tuple[str, tuple[int, ...], float]] = {
        "gpu": ("n", (0,), 1.0),
        "cpu": ("n", (), 900.0),
    }
    state = situation(
        node("n", 1, cpu=2),
        queue("a", 0),
        queue("b", 1),
        training("gpu", "a"),
        training("cpu", "a", 0),
        workspace("claim", "b"),
        run=run,
    )
    assert victims(state) == ["gpu"]


def test_work_that_uses_nothing_borrowed_does_not_give_way() -> None:
    """`a` borrows a GPU out of reach; its CPU work on the useful node is within its rights."""
    run: dict[str, tuple[str, tuple[int, ...], float]] = {
        "cpu": ("n", (), 1.0),
        "gpu": ("out", (0,), 1.0),
    }
    state = situation(
        node("n", 1, cpu=1),
        node("out", 1, schedulable=False),
        queue("a", 0),
        queue("b", 1),
        training("cpu", "a", 0),
        training("gpu", "a"),
        workspace("claim", "b"),
        run=run,
    )
    assert victims(state) == []


def test_whoever_turns_out_not_to_be_needed_is_spared() -> None:
    """Youngest first finds q2, p2, q1; then q2 and q1 are enough."""
    run = {
        "p1": ("n1", (0,), 1.0),
        "q1": ("n2", (0,), 1.0),
        "p2": ("n1", (1,), 1.0),
        "q2": ("n2", (1,), 1.0),
    }
    state = situation(
        node("n1", 2),
        node("n2", 2),
        queue("a", 0),
        queue("b", 2),
        *[training(uid, "a", created_at=float(n)) for n, uid in enumerate(run)],
        workspace("claim", "b", 2),
        run=run,
    )
    assert victims(state) == ["q2", "q1"]


def test_a_project_without_a_share_claims_nothing() -> None:
    run = {"theirs": ("n", (0,), 1.0)}
    state = situation(
        node("n", 1),
        queue("a", 0, weight=(0, 0, 0)),
        queue("b", 0, weight=(0, 0, 0)),
        training("theirs", "a"),
        training("claim", "b"),
        run=run,
    )
    assert victims(state) == []


@pytest.mark.parametrize("elsewhere", [0, 1])
def test_surplus_gets_no_place_elsewhere_while_its_minimum_ends(elsewhere: int) -> None:
    """The worker without a GPU may only move, and what it works for gives way."""
    members = (asking(1, cpu=1), asking(0, cpu=1))
    gang = Group(requests=members, min_tasks=1)
    state = State()
    for event in (
        *(node("n", 1, cpu=2), node("spare", elsewhere, cpu=2)),
        *(queue("a", 0), queue("b", 1), training("gang", "a", gang=gang)),
        *(TaskPlaced("gang", 0, "n", (0,), at=1.0), TaskPlaced("gang", 1, "n", (), at=1.0)),
        workspace("claim", "b", nodes=("n",), cpu=2),
    ):
        state.apply(event)
    plan = plan_of(state)
    assert [one.uid for one in plan.evictions] == ["gang"]
    held = [one.indices for one in plan.nominations if one.uid == "gang"]
    assert held == ([(0, 1)] if elsewhere else [])


def test_nobody_gives_way_for_members_that_must_share_a_rack_in_which_they_do_not_fit() -> None:
    """They must lie in one rack, and on different nodes; only one node is in a rack."""
    member = asking(1, where=NodeConstraint(apart=HOST))
    inner = Group("g", requests=(member, member))
    both = Group("gang", groups=(inner,), level=Level(required="rack"))
    run = {uid: (place, (0,), 1.0) for uid, place in (("x", "racked"), ("y", "loose"))}
    state = situation(
        *(node("racked", 1, labels=(("rack", "r"),)), node("loose", 1)),
        *(queue("a", 0), queue("b", 2), training("x", "a"), training("y", "a")),
        training("claim", "b", gang=both),
        run=run,
    )
    assert victims(state) == []
    state.apply(node("loose", 1, labels=(("rack", "r"),)))
    assert sorted(victims(state)) == ["x", "y"]


def test_who_gives_way_gets_no_room_for_the_member_that_it_lacked() -> None:
    """The gang lacks a member, for which other work would have to move; then it gives way."""
    gang = training("gang", "a", tasks=3, cpu=1)
    state = state_of(
        *(node("n", 3, cpu=6), node("spare", 0, cpu=16)),
        *(queue("a", 0.5), queue("b", 1), queue("c", 0)),
        gang,
        *(TaskPlaced("gang", index, "n", (index,), at=1.0) for index in range(2)),
        training("cpus", "c", request=asking(0, share_milli=0, cpu=4)),
        TaskPlaced("cpus", 0, "n", (), at=1.0),
        workspace("claim", "b", 1, cpu=2),
    )
    plan = plan_of(state)
    assert "claim" in {one.uid for one in plan.nominations}
    gave = {one.uid for one in plan.evictions if not one.moved}
    assert gave == {"gang"}
    assert gave.isdisjoint(one.uid for one in plan.nominations)


def test_what_starts_beside_a_group_gets_no_place_elsewhere_while_the_group_ends() -> None:
    """The helper without a GPU is to start in this cycle; the group that it helps gives way."""
    helped = Group("h", requests=(asking(1), asking(0, share_milli=0)), min_tasks=1)
    pair = Group("pair", groups=(helped, Group("other", requests=(asking(1),))))
    whole = Group("gang", groups=(Group("first", requests=(asking(1),)), pair), min_groups=1)
    state = state_of(
        *(node("n", 3, cpu=4), node("spare", 0, cpu=1), queue("a", 4)),
        training("gang", "a", gang=whole),
        *(TaskPlaced("gang", index, "n", (place,), 1.0) for place, index in enumerate((0, 1, 3))),
        training("claim", "a", 1, priority=80, nodes=("n",)),
    )
    plan = plan_of(state)
    assert [(one.uid, one.indices) for one in plan.evictions] == [("gang", (1, 3))]
    assert [one.uid for one in plan.nominations] == ["claim"]
    assert plan.bindings == ()


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_among_much_work_an_elastic_gang_gives_members_one_by_one(asked: int) -> None:
    state = state_of(
        *(node(f"n{k}", 8) for k in range(10)),
        *(queue("a", 76), queue("b", 0), queue("c", 4)),
        *(
            event
            for k in range(76)
            for event in running(training(f"x{k}", "a"), f"n{k // 8}", k % 8)
        ),
        training("g", "b", gang=Group(requests=(asking(),) * 4, min_tasks=1)),
        *(TaskPlaced("g", k, "n9", (4 + k,), 1.0) for k in range(4)),
        *(training(f"c{k}", "c") for k in range(asked)),
    )
    stops = [(one.uid, len(one.indices)) for one in decide(state, NOW).evictions]
    assert stops == [("g", 1)] * asked
