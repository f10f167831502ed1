"""Work lets what others borrowed run for a while before it takes its room back."""

from typing import Any

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Event
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.core.settings import Settings
from unit.core.invariants.evictions import check_plan
from unit.core.situations import node, queue, running, state_of, training, workspace

CAME = 900.0
DELAY = 450.0


def plan_of(*more: Event, now: float, **rules: Any) -> Plan:
    """`b` borrows both GPUs; whoever comes to `a` is within its quota."""
    state = state_of(
        node("n", 2),
        queue("a", 2),
        queue("b", 0),
        *running(training("lent0", "b", 1), "n", 0, at=100.0),
        *running(training("lent1", "b", 1), "n", 1, at=200.0),
        *more,
        settings=Settings(**{"reclaim_delay_s": DELAY, "reservation_delay_s": -1.0} | rules),
    )
    plan = decide(state, now)
    assert check_plan(state, plan, now) == []
    return plan


def claiming(uid: str = "mine", gpus: float = 1, **more: Any) -> Event:
    return training(uid, "a", gpus, **{"created_at": CAME} | more)


@pytest.mark.parametrize(("now", "victims"), [(CAME + DELAY - 1, 0), (CAME + DELAY, 1)])
def test_others_may_run_until_the_delay_is_over(now: float, victims: int) -> None:
    plan = plan_of(claiming(), now=now)
    assert len(plan.evictions) == victims
    reason = plan.reasons["mine"]
    if victims:
        assert reason.token is Token.WAITS_FOR_ROOM
    else:
        told = (ReasonClass.HELD_BACK, Token.PREEMPTION_DELAYED, CAME + DELAY)
        assert (reason.cls, reason.token, reason.until) == told


def test_it_begins_anew_for_who_gave_way() -> None:
    again = claiming(evicted_at=1200.0)
    assert plan_of(again, now=1200.0 + DELAY - 1).evictions == ()
    assert len(plan_of(again, now=1200.0 + DELAY).evictions) == 1


def test_older_work_that_gave_way_keeps_nobody_behind_it_from_its_room() -> None:
    plan = plan_of(claiming("older", evicted_at=1300.0), claiming(created_at=901.0), now=1400.0)
    assert {one.reason.workload_uid for one in plan.evictions} == {"mine"}


def test_what_may_not_be_stopped_takes_its_room_at_once() -> None:
    plan = plan_of(workspace("mine", "a", 1, created_at=CAME), now=CAME)
    assert len(plan.evictions) == 1


def test_free_room_and_lower_priority_of_the_own_queue_are_no_matter_of_it() -> None:
    assert plan_of(node("m", 1), claiming(), now=CAME).bindings[0].uid == "mine"
    low = running(training("low", "a", 1, priority=10), "m", 0, at=100.0)
    plan = plan_of(node("m", 1), *low, claiming(priority=80), now=CAME)
    assert [one.uid for one in plan.evictions] == ["low"]


def test_both_rules_together_wait_for_it() -> None:
    low = running(training("low", "a", 1, priority=10), "m", 0, at=100.0)
    more = (node("m", 1), *low, queue("a", 3), claiming(gpus=1, tasks=3, priority=80))
    assert plan_of(*more, now=CAME + DELAY - 1).evictions == ()
    given = {one.uid for one in plan_of(*more, now=CAME + DELAY).evictions}
    assert given == {"low", "lent0", "lent1"}


def test_both_rules_wait_anew_for_who_gave_way() -> None:
    low = running(training("low", "a", 1, priority=10), "m", 0, at=100.0)
    again = claiming(gpus=1, tasks=3, priority=80, evicted_at=1200.0)
    more = (node("m", 1), *low, queue("a", 3), again)
    assert plan_of(*more, now=1200.0 + DELAY - 1).evictions == ()
    assert len(plan_of(*more, now=1200.0 + DELAY).evictions) == 3


def test_who_could_only_take_from_its_own_queue_is_told_something_else() -> None:
    """By sums its own lower priority would do, and no delay keeps it from that."""
    state = state_of(
        node("n", 2), node("m", 2), queue("a", 4),
        *running(workspace("x", "a"), "n", 0), *running(workspace("y", "a"), "m", 0),
        *running(training("low0", "a", 1, priority=10), "n", 1),
        *running(training("low1", "a", 1, priority=10), "m", 1),
        claiming(gpus=2, priority=80), settings=Settings(reclaim_delay_s=DELAY),
    )  # fmt: skip
    assert decide(state, CAME).reasons["mine"].token is not Token.PREEMPTION_DELAYED


def test_moving_others_does_not_wait() -> None:
    """Two free GPUs on two nodes: somebody moves, and nobody loses its place."""
    state = state_of(
        node("n", 2), node("m", 2), queue("a", 4), queue("b", 0),
        *running(training("lent", "b", 1), "n", 0, at=100.0),
        *running(training("own", "a", 1), "m", 0, at=300.0), claiming(gpus=2),
        settings=Settings(reclaim_delay_s=DELAY),
    )  # fmt: skip
    assert [one.moved for one in decide(state, CAME).evictions] == [True]


def test_who_could_take_nothing_back_is_told_something_else() -> None:
    """Its project holds all that it may: no delay is what it waits for."""
    held = running(workspace("held", "a", 2), "m", 0, 1, at=100.0)
    plan = plan_of(node("m", 2), queue("a", 2, weight=(0, 0, 0)), *held, claiming(), now=CAME)
    assert plan.reasons["mine"].token is not Token.PREEMPTION_DELAYED
