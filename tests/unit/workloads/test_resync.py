"""What time alone brings about is decided though nothing happens."""

from dataclasses import replace
from typing import Any

import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State
from carrel_scheduler.workloads.reconcile import reconciler
from carrel_scheduler.workloads.reconcile.deciding import RESYNC_SECONDS, Resync
from carrel_scheduler.workloads.state.events import Wake
from unit.workloads.harness import SchedulerHarness


async def test_a_delay_ends_by_itself(harness: SchedulerHarness) -> None:
    """The whole machine is borrowed; who is within its quota lets that run for a minute."""
    harness.loop.state.settings = replace(harness.loop.state.settings, reclaim_delay_s=60.0)
    await harness.project("vision", 4)
    await harness.project("speech", 0)
    lent = await harness.submit("speech", "lent", 4)
    await harness.runs(lent)
    mine = await harness.submit("vision", "mine", 4)
    await harness.wait(59.0)
    assert await harness.phases(lent, mine) == ["running", "pending"]
    reason = (await harness.stored(mine)).status.reason
    assert reason is not None
    assert (reason.token, reason.sentence) == (
        "PreemptionDelayed",
        "Waiting for 4 GPUs: others would be preempted for it, but not yet.",
    )
    await harness.wait(1.0 + RESYNC_SECONDS)
    assert await harness.phase(lent) == "preempting"


async def test_nothing_is_decided_again_where_nobody_waits(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions: list[float] = []

    def counted(state: State, now: float, *_: Any) -> Plan:
        decisions.append(now)
        return decide(state, now)

    await harness.project("vision", 4)
    await harness.runs(await harness.submit("vision", "train-1", 4))
    monkeypatch.setattr(reconciler, "decide", counted)
    await harness.wait(10 * RESYNC_SECONDS)
    assert decisions == []
    await harness.submit("vision", "train-2", 4)
    decisions.clear()
    await harness.wait(3 * RESYNC_SECONDS)
    assert len(decisions) == 3


async def test_it_is_decided_again_though_the_clock_was_set_back(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    await harness.runs(await harness.submit("vision", "train-1", 4))
    await harness.submit("vision", "train-2", 4)
    harness.now -= 3600.0
    harness.loop.enqueue(Wake())
    await harness.settle()
    due = harness.loop.next_deadline()
    assert due is not None
    assert due <= harness.now + RESYNC_SECONDS


async def test_a_look_that_falls_due_in_a_rest_waits_for_its_end(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the loop would turn in vain until then."""

    def slow(state: State, now: float, *_: Any) -> Plan:
        harness.now += 2 * RESYNC_SECONDS
        return decide(state, now)

    await harness.project("vision", 4)
    await harness.runs(await harness.submit("vision", "train-1", 4))
    monkeypatch.setattr(reconciler, "decide", slow)
    await harness.submit("vision", "train-2", 4)
    await harness.loop.reconcile()
    due = harness.loop.next_deadline()
    assert due is not None
    assert due > harness.now


def test_a_clock_that_is_set_back_puts_nothing_off() -> None:
    resync = Resync()
    resync.decided(10_000.0, waiting=True)
    resync.clock_set_back(3600.0)
    assert not resync.due(6400.0)
    assert resync.due(6400.0 + RESYNC_SECONDS)
    resync.decided(6500.0, waiting=False)
    resync.clock_set_back(3600.0)
    assert (resync.due_at, resync.due(9e9)) == (None, False)
