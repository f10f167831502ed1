"""A stop that comes in the same instant as news is a stop all the same."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from carrel_scheduler.workloads.controllers.manager import _WorkQueue
from carrel_scheduler.workloads.reconcile.deciding import Inbox
from carrel_scheduler.workloads.state.events import Wake


async def stopped(waits: Awaitable[object], news: Callable[[], None]) -> bool:
    """Whether a task that waits with a time limit ends when it is told both at once."""

    async def loop() -> None:
        await waits
        await asyncio.Event().wait()

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    news()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=30.0)
    task.cancel()
    return bool(done) and task.cancelled()


async def test_the_loop_of_the_scheduler() -> None:
    inbox = Inbox()
    assert await stopped(inbox.wait(3600.0), lambda: inbox.put(Wake()))


async def test_the_controllers_of_composite_work() -> None:
    queue = _WorkQueue()
    queue.put_at("u1", 3600.0)
    assert await stopped(queue.next(lambda: 0.0), lambda: queue.put("u2"))


@pytest.mark.parametrize("seconds", [0.0, None])
async def test_waiting_ends_with_a_message_or_its_time(seconds: float | None) -> None:
    inbox = Inbox()
    if seconds is None:
        inbox.put(Wake())
    await inbox.wait(seconds)
