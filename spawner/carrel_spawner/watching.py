"""Snapshots of one workload as it changes, whatever happens to the connection.

The event stream brings changes at once; a slow tick beside it makes up for anything it missed, so a
start never hangs on a lost event.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from carrel.client import AsyncClient
from carrel.errors import ApiError, CarrelError, Unreachable
from carrel.models import Workload

TICK_SECONDS: Final = 2.0
# What a stream brings: the workload, or a word that one should look for oneself.
Arrived = asyncio.Queue[Workload | None]


async def changes(
    client: AsyncClient, project: str, name: str, *, tick_seconds: float = TICK_SECONDS
) -> AsyncGenerator[Workload, None]:
    """The workload now, after each change, and after each tick.

    A scheduler that is away for a moment is waited for. Raises ``ApiError`` when the workload does
    not exist (any more) or may not be seen.
    """
    arrived: Arrived = asyncio.Queue()
    reader = asyncio.create_task(_read(client, project, name, arrived))
    try:
        yield await client.get_workload(project, name)
        async with aclosing(snapshots(client, project, name, arrived, tick_seconds)) as found:
            async for workload in found:
                yield workload
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def snapshots(
    client: AsyncClient, project: str, name: str, arrived: Arrived, tick_seconds: float
) -> AsyncGenerator[Workload, None]:
    """What arrives, and after each tick without news what the scheduler says, for ever."""
    while True:
        try:
            async with asyncio.timeout(tick_seconds):
                latest = await arrived.get()
        except TimeoutError:
            latest = None
        if latest is None:
            latest = await _ask_again(client, project, name)
        if latest is not None:
            yield latest


async def wait_gone(client: AsyncClient, project: str, name: str, seconds: float) -> None:
    """Wait until the workload no longer exists. Raises ``TimeoutError`` after ``seconds``."""
    async with asyncio.timeout(seconds):
        try:
            async with aclosing(changes(client, project, name, tick_seconds=0.25)) as snapshots:
                async for _ in snapshots:
                    pass
        except ApiError as error:
            if error.status != 404:
                raise


async def wait_at_rest(client: AsyncClient, project: str, name: str, seconds: float) -> None:
    """Wait until nothing of it runs or it is gone. Raises ``TimeoutError`` after ``seconds``."""
    async with asyncio.timeout(seconds):
        try:
            async with aclosing(changes(client, project, name)) as snapshots:
                async for workload in snapshots:
                    if workload.at_rest:
                        return
        except ApiError as error:
            if error.status != 404:
                raise


async def _read(client: AsyncClient, project: str, name: str, arrived: Arrived) -> None:
    """Put what the stream brings into the queue; ``None`` says to look for oneself."""
    try:
        async with aclosing(client.events(project, name)) as events:
            async for event in events:
                arrived.put_nowait(None if event.type == "deleted" else event.workload)
    except CarrelError:
        arrived.put_nowait(None)  # the tick goes on without the stream


async def _ask_again(client: AsyncClient, project: str, name: str) -> Workload | None:
    """The workload now; ``None`` while the scheduler is away."""
    try:
        return await client.get_workload(project, name)
    except Unreachable:
        return None
