"""The clock jumps: nothing waits longer for it, and nothing turns without end."""

import asyncio
from typing import Any

from carrel_scheduler.workloads.controllers.manager import _WorkQueue
from carrel_scheduler.workloads.state.events import Wake
from unit.workloads.harness import SchedulerHarness


async def test_composites_are_looked_at_when_they_were_to_be(harness: SchedulerHarness) -> None:
    queue = _WorkQueue()
    manager: Any = harness.loop.composites
    manager._queues["experiment"] = queue
    queue.put_at("study", harness.now + 0.2)
    await harness.settle()
    harness.now -= 3600.0
    harness.loop.enqueue(Wake())
    await harness.settle()
    harness.now += 0.3
    async with asyncio.timeout(60):
        assert await queue.next(lambda: harness.now) == "study"


async def test_a_clock_that_jumps_to_and_fro_stops_nothing(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    first = await harness.submit("vision", "first", backoff_limit=9)
    second = await harness.submit("vision", "second")
    await harness.runs(first)
    for jump in (7200.0, -7200.0, 86_400.0, -90_000.0):
        harness.now += jump
        harness.loop.enqueue(Wake())
        await harness.settle()
        await harness.ends(first, 1)
        await harness.wait(3.0)
        holder = first if await harness.phase(first) == "starting" else second
        assert await harness.phase(holder) == "starting"
        if holder is second:
            await harness.runs(second)
            await harness.ends(second)
            await harness.wait(310.0)
        await harness.runs(first)
        assert await harness.phase(first) == "running"
        second = await harness.submit("vision", f"next{jump:.0f}")
