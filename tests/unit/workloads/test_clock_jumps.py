"""The clock jumps: nothing waits longer for it, and nothing turns without end."""

import asyncio
from typing import Any

from carrel_scheduler.workloads.controllers.manager import _Queue
from carrel_scheduler.workloads.state.events import Wake
from unit.workloads.desk import Desk


async def test_composites_are_looked_at_when_they_were_to_be(desk: Desk) -> None:
    queue = _Queue()
    manager: Any = desk.loop.composites
    manager._queues["experiment"] = queue
    queue.put_at("study", desk.now + 0.2)
    await desk.settle()
    desk.now -= 3600.0
    desk.loop.enqueue(Wake())
    await desk.settle()
    desk.now += 0.3
    async with asyncio.timeout(60):
        assert await queue.next(lambda: desk.now) == "study"


async def test_a_clock_that_jumps_to_and_fro_stops_nothing(desk: Desk) -> None:
    await desk.project("vision", 1)
    first = await desk.submit("vision", "first", backoff_limit=9)
    second = await desk.submit("vision", "second")
    await desk.runs(first)
    for jump in (7200.0, -7200.0, 86_400.0, -90_000.0):
        desk.now += jump
        desk.loop.enqueue(Wake())
        await desk.settle()
        await desk.ends(first, 1)
        await desk.wait(3.0)
        holder = first if await desk.phase(first) == "starting" else second
        assert await desk.phase(holder) == "starting"
        if holder is second:
            await desk.runs(second)
            await desk.ends(second)
            await desk.wait(310.0)
        await desk.runs(first)
        assert await desk.phase(first) == "running"
        second = await desk.submit("vision", f"next{jump:.0f}")
