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
from unit.workloads.desk import Desk


async def test_a_delay_ends_by_itself(desk: Desk) -> None:
    """The whole machine is borrowed; who is within its quota lets that run for a minute."""
    desk.loop.state.settings = replace(desk.loop.state.settings, reclaim_delay_s=60.0)
    await desk.project("vision", 4)
    await desk.project("speech", 0)
    lent = await desk.submit("speech", "lent", 4)
    await desk.runs(lent)
    mine = await desk.submit("vision", "mine", 4)
    await desk.wait(59.0)
    assert await desk.phases(lent, mine) == ["running", "pending"]
    reason = (await desk.stored(mine)).status.reason
    assert reason is not None
    assert (reason.token, reason.sentence) == (
        "PreemptionDelayed",
        "Waiting for 4 GPUs: others would be preempted for it, but not yet.",
    )
    await desk.wait(1.0 + RESYNC_SECONDS)
    assert await desk.phase(lent) == "preempting"


async def test_nothing_is_decided_again_where_nobody_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions: list[float] = []

    def counted(state: State, now: float, *_: Any) -> Plan:
        decisions.append(now)
        return decide(state, now)

    await desk.project("vision", 4)
    await desk.runs(await desk.submit("vision", "train-1", 4))
    monkeypatch.setattr(reconciler, "decide", counted)
    await desk.wait(10 * RESYNC_SECONDS)
    assert decisions == []
    await desk.submit("vision", "train-2", 4)
    decisions.clear()
    await desk.wait(3 * RESYNC_SECONDS)
    assert len(decisions) == 3


async def test_it_is_decided_again_though_the_clock_was_set_back(desk: Desk) -> None:
    await desk.project("vision", 4)
    await desk.runs(await desk.submit("vision", "train-1", 4))
    await desk.submit("vision", "train-2", 4)
    desk.now -= 3600.0
    desk.loop.enqueue(Wake())
    await desk.settle()
    due = desk.loop.next_deadline()
    assert due is not None
    assert due <= desk.now + RESYNC_SECONDS


async def test_a_look_that_falls_due_in_a_rest_waits_for_its_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the loop would turn in vain until then."""

    def slow(state: State, now: float, *_: Any) -> Plan:
        desk.now += 2 * RESYNC_SECONDS
        return decide(state, now)

    await desk.project("vision", 4)
    await desk.runs(await desk.submit("vision", "train-1", 4))
    monkeypatch.setattr(reconciler, "decide", slow)
    await desk.submit("vision", "train-2", 4)
    await desk.loop.reconcile()
    due = desk.loop.next_deadline()
    assert due is not None
    assert due > desk.now


def test_a_clock_that_is_set_back_puts_nothing_off() -> None:
    resync = Resync()
    resync.decided(10_000.0, waiting=True)
    resync.clock_set_back(3600.0)
    assert not resync.due(6400.0)
    assert resync.due(6400.0 + RESYNC_SECONDS)
    resync.decided(6500.0, waiting=False)
    resync.clock_set_back(3600.0)
    assert (resync.due_at, resync.due(9e9)) == (None, False)
