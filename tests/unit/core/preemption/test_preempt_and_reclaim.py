"""Work that fits only if its own queue's lower priority and what others borrowed give way."""

from typing import Any

import pytest

from carrel_scheduler.core.cycle import cycle
from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import OfferResult
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import CheckpointSeen, Event, TaskPlaced, TaskReleased
from carrel_scheduler.core.events import Outcome as Ended
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.preemption.preempt_and_reclaim import PREEMPT_AND_RECLAIM
from carrel_scheduler.core.preemption.rules import PREEMPT
from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.core.requests import NodeConstraint
from carrel_scheduler.core.settings import DEFAULTS, Settings
from unit.core.invariants.evictions import check_plan
from unit.core.runs import Run
from unit.core.situations import (
    asking,
    node,
    queue,
    running,
    searches_made,
    state_of,
    training,
    workspace,
)

NOW = 1000.0
NO_RESERVATIONS = Settings(reservation_delay_s=-1.0)


def low(uid: str, place: str, *devices: int, at: float = 100.0, **more: Any) -> tuple[Event, ...]:
    """Work of low priority of project `a` that runs."""
    spec = training(uid, "a", max(1, len(devices)), priority=10, **more)
    return running(spec, place, *devices, at=at)


def lent(uid: str, place: str, *devices: int, at: float = 100.0, **more: Any) -> tuple[Event, ...]:
    """Borrowed work of project `b` that runs."""
    return running(training(uid, "b", max(1, len(devices)), **more), place, *devices, at=at)


def urgent(gpus: int = 4, **more: Any) -> Event:
    """Work of project `a` that comes before all its other work."""
    return training("urgent", "a", gpus, **{"priority": 80, "created_at": 900.0} | more)


def two_and_two(**rules: Any) -> tuple[Event, ...]:
    """Four GPUs: project `a` holds two with low priority, project `b` borrows two."""
    return (
        node("n", 4),
        queue("a", rules.pop("gpus", 4), **rules),
        queue("b", 0),
        *low("low0", "n", 0),
        *low("low1", "n", 1, at=200.0),
        *lent("lent0", "n", 2),
        *lent("lent1", "n", 3, at=200.0),
    )


def plan_of(*events: Event, now: float = NOW, settings: Settings = DEFAULTS) -> Plan:
    state = state_of(*events, settings=settings)
    plan = decide(state, now)
    assert check_plan(state, plan, now) == []
    return plan


def victims(*events: Event, now: float = NOW, settings: Settings = DEFAULTS) -> dict[str, str]:
    """Uid -> by which rule, of those who give way for good."""
    plan = plan_of(*events, now=now, settings=settings)
    assert {one.reason.workload_uid for one in plan.evictions} <= {"urgent"}
    return {one.uid: str(one.reason.token) for one in plan.evictions if not one.moved}


ALL_FOUR = {"low0": "Preempted", "low1": "Preempted", "lent0": "Reclaimed", "lent1": "Reclaimed"}


def test_neither_rule_is_enough_alone_and_both_together_are() -> None:
    plan = plan_of(*two_and_two(), urgent())
    assert {one.uid: str(one.reason.token) for one in plan.evictions} == ALL_FOUR
    assert [(one.uid, one.places) for one in plan.nominations] == [
        ("urgent", (("n", (0, 1, 2, 3), 0),))
    ]
    assert plan.reasons["urgent"].token is Token.WAITS_FOR_ROOM
    bounds = {one.reason.token: one.reason.bound for one in plan.evictions}
    assert bounds == {Token.PREEMPTED: 0, Token.RECLAIMED: 4000}  # it claims within its quota


def test_what_its_queue_was_given_in_the_same_cycle_does_not_start() -> None:
    """Two GPUs are idle, and `new` would start there; the project has a right to four in all."""
    base = node("n", 4), queue("a", 4, weight=(0, 0, 0)), queue("b", 0), *lent("lent", "n", 2, 3)
    new = training("new", "a", 2, priority=10)
    assert [one.uid for one in plan_of(*base, new).bindings] == ["new"]
    plan = plan_of(*base, new, urgent())
    assert plan.bindings == ()
    assert {one.uid: str(one.reason.token) for one in plan.evictions} == {"lent": "Reclaimed"}
    assert [one.uid for one in plan.nominations] == ["urgent"]


def test_one_rule_is_not_mixed_with_the_other_where_it_is_enough() -> None:
    assert set(victims(*two_and_two(), urgent(2)).values()) == {"Reclaimed"}
    assert set(victims(*two_and_two(gpus=3, weight=(0, 0, 0)), urgent(2)).values()) == {"Preempted"}


@pytest.mark.parametrize("department", ["", "dept"])
def test_where_others_have_nothing_to_give_it_is_for_preempt_alone(department: str) -> None:
    """What the two of `a` free would do for `urgent`; by both rules it gets nothing."""
    base = (
        *(node("n", 4), queue("dept", 4), queue("a", 4, parent=department)),
        *(queue("b", 2, parent=department), *two_and_two()[3:], urgent(2)),
    )
    found = {}
    for rule in (PREEMPT, PREEMPT_AND_RECLAIM):
        one = Cycle(state_of(*base), NOW)
        result = rule.attempt(one, one.state.job("urgent"), (0,))
        found[rule.name] = result, bool(one.moves.evicted.any())
    assert found == {
        "preempt": (OfferResult.SERVED, True),
        "preempt_and_reclaim": (OfferResult.PLAINLY_NO, False),
    }


def test_a_gang_gets_all_its_places_or_none() -> None:
    base = (
        node("n", 2),
        node("m", 2),
        *two_and_two()[1:3],
        *low("low0", "n", 0, 1),
        *lent("lent0", "m", 0, 1),
    )
    assert victims(*base, urgent(2, tasks=2)) == {"low0": "Preempted", "lent0": "Reclaimed"}
    assert victims(*base, urgent(1, tasks=4)) == {"low0": "Preempted", "lent0": "Reclaimed"}
    assert victims(*base, urgent(1, tasks=5)) == {}


def test_unlike_tasks_are_searched_one_by_one() -> None:
    gang = Group("g", (asking(1, cpu=1), asking(1, cpu=2), asking(2, cpu=1)))
    assert victims(*two_and_two(), urgent(1, gang=gang)) == ALL_FOUR


def test_many_victims_are_searched_over_arrays() -> None:
    nodes = [node(f"n{number}", 8) for number in range(10)]
    mine = [e for n in range(5) for d in range(8) for e in low(f"low{n}-{d}", f"n{n}", d)]
    theirs = [e for n in range(5, 10) for d in range(8) for e in lent(f"l{n}-{d}", f"n{n}", d)]
    base = (*nodes, queue("a", 80), queue("b", 0), *mine, *theirs)
    found = list(victims(*base, urgent(8, tasks=10)).values())
    assert (found.count("Preempted"), found.count("Reclaimed")) == (40, 40)
    assert victims(*base, urgent(8, tasks=11)) == {}


@pytest.mark.parametrize("rule", ["preempt_min_runtime_s", "reclaim_min_runtime_s"])
def test_everybody_runs_for_the_minimum_of_the_rule_by_which_it_goes(rule: str) -> None:
    base = list(two_and_two())
    of = {"preempt_min_runtime_s": (1, "a", 4), "reclaim_min_runtime_s": (2, "b", 0)}[rule]
    base[of[0]] = queue(of[1], of[2], **{rule: 850.0})
    assert victims(*base, urgent(), now=1000.0, settings=NO_RESERVATIONS) == {}
    assert victims(*base, urgent(), now=1050.0, settings=NO_RESERVATIONS) == ALL_FOUR


def test_the_other_rules_minimum_protects_nobody() -> None:
    base = list(two_and_two(reclaim_min_runtime_s=5000.0))
    base[2] = queue("b", 0, preempt_min_runtime_s=5000.0)
    assert victims(*base, urgent()) == ALL_FOUR


@pytest.mark.parametrize("quota", [3, 3.5])
def test_nothing_is_taken_where_the_queue_would_end_beyond_its_fair_share(quota: float) -> None:
    base = two_and_two(gpus=quota, weight=(0, 0, 0))
    plan = plan_of(*base, urgent())
    assert plan.evictions == ()
    assert plan.reasons["urgent"].token is Token.QUOTA_USED


def test_a_queue_beyond_its_fair_share_already_takes_from_nobody() -> None:
    """With all its own work gone it would be within; but it holds more than its share now."""
    base = (
        node("n", 4, labels=(("kind", "new"),)),
        node("m", 4),
        queue("a", 4, weight=(0, 0, 0)),
        queue("b", 0),
        queue("c", 4),
        *low("low0", "n", 0, 1),
        *low("low1", "m", 0, 1, 2),
        *lent("lent0", "n", 2, 3),
        training("more", "b", created_at=1.0),
    )
    assert victims(*base, urgent(nodes=("n",)), settings=NO_RESERVATIONS) == {}


def test_nobody_within_the_quota_gives_way_to_another_queue() -> None:
    base = list(two_and_two())
    base[2] = queue("b", 1)
    assert victims(*base, urgent(3)) == {"low0": "Preempted", "low1": "Preempted"} | {
        "lent1": "Reclaimed"
    }
    base[2] = queue("b", 2)
    assert victims(*base, urgent()) == {}


def test_only_strictly_lower_priority_that_may_be_stopped_gives_way() -> None:
    assert victims(*two_and_two(), urgent(priority=10)) == {}
    base = (*two_and_two()[:3], *running(workspace("desk", "a"), "n", 0), *two_and_two()[5:])
    assert victims(*base, urgent(priority=200)) == {}


def test_nothing_is_evicted_where_all_together_do_not_make_enough_room() -> None:
    stays = running(workspace("desk", "b"), "n", 3)
    base = [*two_and_two()[:-2], *stays]
    base[2] = queue("b", 1)
    assert victims(*base, urgent(), settings=NO_RESERVATIONS) == {}


def test_least_work_is_lost_of_either_queue() -> None:
    """Each could make way with one of two; those go that lose less."""
    base = (
        node("n", 2),
        node("m", 2),
        queue("a", 3),
        queue("b", 0),
        queue("c", 1),
        *low("old", "n", 0, at=100.0, interactive=True),
        *low("new", "m", 0, at=900.0, interactive=True),
        *lent("far", "n", 1, at=100.0),
        *lent("near", "m", 1, at=900.0),
    )
    assert victims(*base, urgent(2), settings=NO_RESERVATIONS) == {
        "new": "Preempted",
        "near": "Reclaimed",
    }
    saved = (CheckpointSeen("old", 999.0), CheckpointSeen("far", 999.0))
    assert victims(*base, *saved, urgent(2), settings=NO_RESERVATIONS) == {
        "old": "Preempted",
        "far": "Reclaimed",
    }


def with_work_elsewhere(*more: Event) -> tuple[Event, ...]:
    """Project `a` fills its quota, in part on a node where the urgent work may not run."""
    return (
        node("n", 4),
        node("m", 4),
        queue("a", 4, weight=(0, 0, 0)),
        queue("b", 0),
        *low("here", "n", 0, at=500.0),
        *lent("lent", "n", 1, 2, 3, nodes=("n",)),
        *low("two", "m", 0, 1, at=900.0),
        *more,
        urgent(4, nodes=("n",)),
    )


def test_own_work_leaves_for_the_right_too_wherever_it_runs() -> None:
    """Its place is of no use, but with it the project would have more than its share."""
    other = low("one", "m", 2, at=100.0)
    assert victims(*with_work_elsewhere(*other), settings=NO_RESERVATIONS) == {
        "here": "Preempted",
        "one": "Preempted",
        "two": "Preempted",
        "lent": "Reclaimed",
    }


def test_who_makes_neither_room_nor_right_stays() -> None:
    """Two of three GPUs have to leave: the youngest goes first, and is enough with the next."""
    base = list(with_work_elsewhere(*low("one", "m", 2, at=800.0)))
    base[-1] = urgent(3, nodes=("n",))
    assert victims(*base, settings=NO_RESERVATIONS) == {"two": "Preempted", "lent": "Reclaimed"} | {
        "one": "Preempted"
    }
    base[2] = queue("a", 5, weight=(0, 0, 0))
    assert victims(*base, settings=NO_RESERVATIONS) == {"two": "Preempted", "lent": "Reclaimed"}


def test_who_left_for_the_right_stays_where_others_give_it_with_their_room() -> None:
    """Unlike tasks are searched one by one: the youngest leaves first, and need not after all."""
    here = NodeConstraint(nodes=frozenset({"n"}))
    gang = Group("g", tuple(asking(2, cpu=cpu, where=here) for cpu in (1, 2)))
    base = (
        node("n", 4),
        node("m", 2),
        queue("a", 6, weight=(0, 0, 0)),
        queue("b", 0),
        *low("near", "n", 0, 1, at=100.0, nodes=("n",)),
        *lent("lent", "n", 2, 3, nodes=("n",)),
        *low("far", "m", 0, 1, at=900.0),
    )
    assert victims(*base, urgent(1, gang=gang), settings=NO_RESERVATIONS) == {
        "near": "Preempted",
        "lent": "Reclaimed",
    }


def test_nobody_gives_way_before_the_preemption_delay() -> None:
    plan = plan_of(*two_and_two(), urgent(preemption_delay_s=600.0))
    assert plan.evictions == ()
    reason = plan.reasons["urgent"]
    assert (reason.cls, reason.token) == (ReasonClass.HELD_BACK, Token.PREEMPTION_DELAYED)
    assert victims(*two_and_two(), urgent(preemption_delay_s=600.0), now=1600.0) == ALL_FOUR


def test_afterwards_everybody_rests() -> None:
    run = Run(*two_and_two(), urgent())
    run.now = NOW
    run.settle()
    assert run.running() == ["urgent"]
    assert {uid: len(told) for uid, told in run.evicted.items()} == dict.fromkeys(ALL_FOUR, 1)


def test_who_holds_places_and_waits_for_others_to_end_is_tried_again() -> None:
    """The minimum run time ends only after places were held for it."""
    base = two_and_two(gpus=6, preempt_min_runtime_s=1500.0)
    run = Run(*base, urgent(), settings=Settings(reservation_delay_s=10.0))
    run.now = NOW
    run.step()
    assert "urgent" in run.state.reserved
    assert not run.evicted
    run.now = 2000.0
    run.step()
    assert sorted(run.evicted) == sorted(ALL_FOUR)


@pytest.fixture(params=["SMALL_CLUSTER", "MANY_ROWS"])
def _in_turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is large, or its queue is long."""
    monkeypatch.setattr(cycle, request.param, 0)


@pytest.mark.usefixtures("_in_turns")
def test_it_is_tried_in_turns_where_there_is_much_to_look_at() -> None:
    state = state_of(*two_and_two(), urgent())
    served = [bool(decide(state, NOW + second).evictions) for second in range(8)]
    assert served in ([True, False] * 4, [False, True] * 4)


@pytest.mark.usefixtures("_in_turns")
def test_it_is_not_tried_in_turns_once_one_rule_alone_has_served_somebody() -> None:
    other = (
        node("m", 1), queue("c", 1), *running(training("minor", "c", priority=10), "m", 0),
        training("major", "c", priority=80),
    )  # fmt: skip
    state = state_of(*two_and_two(), urgent(), *other)
    evicted = {one.uid for second in range(8) for one in decide(state, NOW + second).evictions}
    assert evicted == {"minor"}


@pytest.mark.usefixtures("_in_turns")
def test_other_places_for_what_is_reserved_are_sought_in_turns() -> None:
    base = two_and_two(gpus=6, preempt_min_runtime_s=1500.0)
    run = Run(
        *base, urgent(), training("too-large", "b", 9), settings=Settings(reservation_delay_s=10.0)
    )
    run.now = NOW
    run.step()
    served = [bool(decide(run.state, 2000.0 + second).evictions) for second in range(8)]
    assert "urgent" in run.state.reserved
    assert served[:4] == served[4:]
    assert served.count(True) == 2


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Uids of those for whom victims of both rules were searched."""
    return searches_made(monkeypatch, "preempt_and_reclaim")


@pytest.mark.usefixtures("_in_turns")
def test_the_most_entitled_row_and_each_other_row_have_turns(
    searches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle, "SMALL", 0)
    base = list(two_and_two())
    base[2] = queue("b", 1)
    rows = [
        training(f"urgent-{number}", "a", 4, priority=90 - number, created_at=900.0)
        for number in range(4)
    ]
    for second in range(24):
        state = state_of(*base, *rows, settings=NO_RESERVATIONS)
        assert decide(state, NOW + second).evictions == ()
    assert searches.count("urgent-0") == 6
    assert {searches.count(f"urgent-{number}") for number in range(1, 4)} == {2}


def test_a_search_in_vain_is_made_again_once_something_runs_otherwise(searches: list[str]) -> None:
    base = list(two_and_two())
    base[2] = queue("b", 1)
    state = state_of(*base, urgent(), settings=NO_RESERVATIONS)
    for _ in range(3):
        assert decide(state, NOW).evictions == ()
    assert searches == ["urgent"]
    state.apply(TaskReleased("low0", 0, Ended.SUCCEEDED, NOW))
    decide(state, NOW)
    assert searches == ["urgent"] * 2


def test_nothing_is_searched_where_a_queue_has_nothing_of_lower_priority(
    searches: list[str],
) -> None:
    decide(state_of(*two_and_two(), urgent(priority=10), settings=NO_RESERVATIONS), NOW)
    decide(state_of(*two_and_two()[:5], urgent(5), settings=NO_RESERVATIONS), NOW)
    assert searches == []


def test_elastic_work_that_neither_the_claim_nor_the_room_needs_stays_whole() -> None:
    """What holds the limit is not the elastic work that gives way before it, task by task."""
    pair = Group(requests=(asking(0), asking(0)), min_tasks=1)
    plan = plan_of(
        node("n", 4),
        queue("a", 2, limit=2),
        queue("b", 0),
        training("small", "a", gang=pair, priority=5),
        TaskPlaced("small", 0, "n", (), at=1.0),
        TaskPlaced("small", 1, "n", (), at=1.0),
        *low("low", "n", 0, 1),
        *lent("lent", "n", 2),
        urgent(1),
        settings=Settings(search_steps=1),
    )
    assert [(one.uid, one.indices) for one in plan.evictions] == [("low", ())]
