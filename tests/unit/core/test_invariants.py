"""The invariants notice what they are there for."""

from dataclasses import replace

import pytest

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.events import Event, RoomPromised, TaskPlaced, TaskReleasing
from carrel_scheduler.core.invariants import STATE_INVARIANTS, check, check_plan
from carrel_scheduler.core.plan import Binding, Eviction, Nomination, Plan
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from unit.core.situations import node, project, training, workspace


@pytest.fixture
def state() -> State:
    """`lent` borrows one of two GPUs, `desk` waits for it; `kept` has the other within quota."""
    state = State()
    for event in (
        node("n", 2, cpu=8),
        project("a", 1),
        project("b", 1),
        training("kept", "a"),
        training("lent", "a"),
        workspace("desk", "b"),
        TaskPlaced("kept", 0, "n", (0,), at=1.0),
        TaskPlaced("lent", 0, "n", (1,), at=2.0),
    ):
        state.apply(event)
    return state


def violations(state: State) -> set[str]:
    return {rule.__name__ for rule in STATE_INVARIANTS if rule(state)}


def test_a_sound_state_has_none(state: State) -> None:
    assert check(state) == []


def test_two_on_one_device(state: State) -> None:
    row = state.records.edit("lent").rows[0]
    state.tasks._prints[row] = replace(state.tasks.footprint(row), devices=(0,))
    assert {"no_device_over_capacity", "sums_equal_recount"} <= violations(state)


def test_too_much_memory(state: State) -> None:
    state.apply(node("n", 2, memory_gib=1))
    assert violations(state) == {"no_host_over_capacity"}


def test_non_preemptible_work_beyond_quota(state: State) -> None:
    record = state.records.edit("lent")
    record.spec = replace(record.spec, preemptible=False)
    state.records.edit("kept").spec = replace(state.records.edit("kept").spec, preemptible=False)
    assert "non_preemptible_within_quota" in violations(state)


def test_limit_broken(state: State) -> None:
    state.apply(project("a", 1, limit=2))
    state.apply(node("m", 1))
    state.apply(training("more", "a"))
    state.apply(TaskPlaced("more", 0, "m", (0,), at=3.0))
    assert violations(state) == {"limits_held"}


def test_rules_bind_what_starts_after_them(state: State) -> None:
    state.apply(project("a", 0, limit=1))
    assert check(state) == []


def test_half_a_gang(state: State) -> None:
    state.apply(node("m", 1))
    state.apply(training("gang", "b", tasks=2))
    state.apply(TaskPlaced("gang", 0, "m", (0,), at=3.0))
    assert violations(state) == {"gangs_all_or_none"}


def test_a_task_in_two_places(state: State) -> None:
    row = state.tasks.put(("kept", 0), state.tasks.footprint(0), victim=0, priority=0)
    assert row >= 0
    assert "no_task_twice" in violations(state)


def test_promised_room_given_to_others(state: State) -> None:
    state.apply(TaskReleasing("lent", 0))
    state.apply(RoomPromised("desk", (("n", (1,)),)))
    assert check(state) == []
    state.nodes.releasing.devices[1, 0] = 0
    assert {"promises_stand_alone", "sums_equal_recount"} <= violations(state)


@pytest.mark.parametrize("column", ["used", "used_fixed", "waiting"])
def test_sums_that_drifted(state: State, column: str) -> None:
    getattr(state.project_columns, column)[0, 0] += 1
    assert violations(state) == {"sums_equal_recount"}


# Plans


def given_way(uid: str, claimer: str, project: str, token: Token = Token.RECLAIMED) -> Eviction:
    reason = Reason(ReasonClass.EVICTED, token, project=project, workload_uid=claimer)
    return Eviction(uid, reason)


WAITS = Reason(ReasonClass.NOT_NOW, Token.WAITS_FOR_ROOM)
TO_DESK = Nomination("desk", (("n", (1,)),))
GOOD = Plan(
    evictions=(given_way("lent", "desk", "b"),),
    nominations=(TO_DESK,),
    reasons={"desk": WAITS},
    queue=("desk",),
)
BAD_PLANS = [
    ("no room by them", replace(GOOD, nominations=())),
    ("2 times", replace(GOOD, evictions=GOOD.evictions * 2)),
    ("may not be evicted", replace(GOOD, evictions=(given_way("desk", "desk", "b"),))),
    (
        "within quota",
        replace(
            GOOD,
            evictions=(given_way("lent", "desk", "b"), given_way("kept", "desk", "b")),
        ),
    ),
    ("contradicts", replace(GOOD, bindings=(Binding("desk", 0, "n", (1,)),), reasons={})),
    ("contradicts", replace(GOOD, nominations=(Nomination("desk", (("n", (0,)),)),))),
    ("a reason, and not both", replace(GOOD, reasons={})),
    ("does not wait", replace(GOOD, reasons={"desk": WAITS, "kept": WAITS})),
    ("the queue", replace(GOOD, queue=())),
]


def test_a_sound_plan_has_none(state: State) -> None:
    assert check_plan(state, GOOD) == []
    assert check_plan(state, decide(state, 10.0)) == []


@pytest.mark.parametrize(("text", "plan"), BAD_PLANS)
def test_unsound_plans(state: State, text: str, plan: Plan) -> None:
    assert any(text in violation for violation in check_plan(state, plan))


def test_a_plan_that_splits_a_gang(state: State) -> None:
    for event in (node("m", 1), training("gang", "b", tasks=2)):
        state.apply(event)
    plan = replace(GOOD, bindings=(Binding("gang", 0, "m", (0,)),), queue=("desk", "gang"))
    assert any("1 of 2 tasks" in violation for violation in check_plan(state, plan))


def test_a_plan_that_overfills_memory(state: State) -> None:
    events: tuple[Event, ...] = (node("m", 1, memory_gib=1), training("fat", "b", memory_gib=2))
    for event in events:
        state.apply(event)
    plan = replace(GOOD, bindings=(Binding("fat", 0, "m", (0,)),), queue=("desk", "fat"))
    assert any("overfill" in violation for violation in check_plan(state, plan))


def test_a_plan_that_gives_promised_room_away(state: State) -> None:
    for event in (node("m", 1), RoomPromised("desk", (("m", (0,)),)), training("thief", "b")):
        state.apply(event)
    plan = Plan(
        bindings=(Binding("thief", 0, "m", (0,)),), reasons={"desk": WAITS}, queue=("desk", "thief")
    )
    assert any("promised to desk" in violation for violation in check_plan(state, plan))


def test_a_plan_that_preempts_an_equal(state: State) -> None:
    state.apply(training("same", "a"))
    plan = replace(
        GOOD,
        evictions=(given_way("lent", "same", "a", Token.PREEMPTED),),
        nominations=(Nomination("same", (("n", (1,)),)),),
        reasons={"desk": WAITS, "same": WAITS},
        queue=("desk", "same"),
    )
    assert any("lower priority" in violation for violation in check_plan(state, plan))
