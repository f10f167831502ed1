"""Rests between decisions: long after long ones, none in virtual time, never for ever."""

from typing import Any

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State
from carrel_scheduler.workloads.reconcile import reconciler
from carrel_scheduler.workloads.reconcile.deciding import LONGEST_SECONDS, REST, Pacing
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from unit.workloads.harness import SchedulerHarness


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def decided(pacing: Pacing, clock: Clock, seconds: float) -> None:
    with pacing.measured():
        clock.now += seconds


def test_a_long_decision_is_followed_by_a_rest() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    assert not pacing.put_off(clock.now)
    decided(pacing, clock, 0.1)
    assert pacing.due_at is None  # nobody wants one yet
    assert pacing.put_off(clock.now)
    assert pacing.due_at == pytest.approx(clock.now + REST * 0.1)
    clock.now += REST * 0.1 + 0.001
    assert not pacing.put_off(clock.now)
    assert pacing.due_at is None


def test_a_rest_is_bounded_and_a_clock_set_back_ends_it() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    decided(pacing, clock, 60.0)
    assert pacing.put_off(clock.now)
    assert pacing.due_at == clock.now + LONGEST_SECONDS
    assert not pacing.put_off(clock.now - 3600)


async def test_what_comes_in_a_rest_is_decided_on_at_its_end(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = []

    def slow(state: State, now: float, *_: Any) -> Plan:
        decisions.append(now)
        harness.now += 0.1
        return decide(state, now)

    await harness.project("vision", 2)
    monkeypatch.setattr(reconciler, "decide", slow)
    first = await harness.submit("vision", "train-1")
    made = len(decisions)
    second = await harness.submit("vision", "train-2")
    assert len(decisions) == made
    assert await harness.phase(second) == "pending"
    await harness.wait(2.0)
    assert [await harness.phase(one) for one in (first, second)] == ["starting", "starting"]


async def test_who_waits_is_told_by_the_decision_that_starts_nobody(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 4)
    await harness.submit("vision", "train-1", 4)
    decisions: list[float] = []

    def counted(state: State, now: float, *_: Any) -> Plan:
        decisions.append(now)
        return decide(state, now)

    monkeypatch.setattr(reconciler, "decide", counted)
    uid = await harness.submit("vision", "train-2", 4)
    assert (await harness.stored(uid)).status.reason is not None
    assert len(decisions) == 1


async def test_nothing_falls_due_in_the_past_once_all_have_been_told(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice was put off, and before it came nobody waited any more."""
    await harness.project("vision", 4)
    first = await harness.submit("vision", "first", 4)
    await harness.runs(first)
    slice_of = harness.loop._explaining.slice

    def slow(changes: PassChanges) -> None:
        harness.now += 0.05
        slice_of(changes)

    monkeypatch.setattr(harness.loop._explaining, "slice", slow)
    second = await harness.submit("vision", "second", 4)
    assert harness.loop._explaining.pacing._until > harness.now  # it rests from telling why
    await harness.project("speech", 1)  # something is decided anew, which is told after the rest
    await harness.ends(first)
    assert await harness.phase(second) == "starting"
    turns = 0
    while (due := harness.loop.next_deadline()) is not None:
        harness.now = max(harness.now, due)
        await harness.loop.reconcile()
        turns += 1
        assert turns < 20
