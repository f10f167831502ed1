"""What would be is told without changing what is."""

import copy

import pytest

from carrel_scheduler.core import State, decide
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import TaskPlaced
from carrel_scheduler.core.invariants import check
from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.core.speculation import forecast, impact, never
from unit.core.situations import node, project, training, workspace


@pytest.fixture
def state() -> State:
    """Four GPUs: `a` has three of them (quota 2), `b` one (quota 2); `wait` waits."""
    state = State()
    for event in (
        node("n", 4),
        project("a", 2),
        project("b", 2, created_at=1.0),
        training("a2", "a", 2, created_at=1.0),
        training("a1", "a", 1, created_at=2.0),
        training("b1", "b", 1, created_at=3.0),
        TaskPlaced("a2", 0, "n", (0, 1), at=1.0),
        TaskPlaced("a1", 0, "n", (2,), at=2.0),
        TaskPlaced("b1", 0, "n", (3,), at=3.0),
        training("wait", "a", created_at=4.0),
    ):
        state.apply(event)
    return state


def frozen(state: State) -> str:
    """All that the state tells, as text."""
    uses = [state.project_use(name) for name in state.projects()]
    works = [state.workload(uid) for uid in ("a2", "a1", "b1", "wait")]
    return repr((state.version, state.node_views(), uses, works, state.waiting()))


def test_never(state: State) -> None:
    def token(queued: object) -> Token | None:
        reason = never(state, queued)  # type: ignore[arg-type]
        assert reason is None or reason.cls is ReasonClass.NEVER
        return reason.token if reason else None

    assert token(training("x", "a", 4)) is None
    assert token(training("x", "a", 5)) is Token.NEVER_FITS
    assert token(training("x", "a", 1, tasks=5)) is Token.NEVER_FITS
    assert token(training("x", "a", nodes=frozenset({"gone"}))) is Token.NEVER_FITS
    assert token(workspace("x", "a", 2)) is None
    assert token(workspace("x", "a", 3)) is Token.NON_PREEMPTIBLE_BEYOND_QUOTA
    state.apply(project("b", 2, limit=3))
    assert token(training("x", "b", 4)) is Token.OVER_LIMIT
    state.apply(project("b", 2, over_quota=False))
    assert token(training("x", "b", 3)) is Token.OVER_QUOTA_OFF
    with pytest.raises(InvalidEvent, match="unknown_project"):
        never(state, training("x", "c"))


def test_forecast_of_a_claim(state: State) -> None:
    before = frozen(state)
    reason = forecast(state, workspace("desk", "b"), 10.0)
    assert (reason.token, [holder.uid for holder in reason.holders]) == (
        Token.WAITS_FOR_ROOM,
        ["a1"],
    )
    assert frozen(state) == before
    assert check(state) == []


def test_forecast_of_a_start(state: State) -> None:
    state.apply(node("m", 1))
    state.apply(TaskPlaced("wait", 0, "m", (0,), at=5.0))
    state.apply(node("o", 1))
    reason = forecast(state, training("x", "a"), 10.0)
    assert (reason.cls, reason.token, reason.nodes) == (
        ReasonClass.STARTING,
        Token.STARTING,
        ("o",),
    )


def test_forecast_of_what_waits_or_never_runs(state: State) -> None:
    assert forecast(state, training("x", "a"), 10.0).token is Token.QUOTA_USED
    assert forecast(state, workspace("x", "a", 3), 10.0).cls is ReasonClass.NEVER


def test_impact_of_another_quota(state: State) -> None:
    before = frozen(state)
    assert impact(state, project("b", 0, created_at=1.0), 10.0) == (("wait",), ("b1",))
    assert frozen(state) == before


def test_impact_leaves_out_what_happens_anyway(state: State) -> None:
    state.apply(workspace("desk", "b"))
    assert [eviction.uid for eviction in decide(state, 10.0).evictions] == ["a1"]
    assert impact(state, project("b", 2, created_at=1.0, limit=4), 10.0) == ((), ())


def test_impact_of_less_quota_elsewhere() -> None:
    state = State()
    for event in (
        node("n", 1),
        project("a", 1),
        project("b", 1),
        training("x", "a"),
        TaskPlaced("x", 0, "n", (0,), at=1.0),
        workspace("desk", "b"),
    ):
        state.apply(event)
    assert impact(state, project("a", 0), 10.0) == (("desk",), ("x",))
    twin = copy.deepcopy(state)
    assert repr(decide(twin, 1.0)) == repr(decide(state, 1.0))
