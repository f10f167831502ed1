"""Follows one workload to its end.

The event stream tells of changes at once. It begins with what is not at rest, so a workload that
came to rest just before the stream stood would be waited for in vain: now and then it is asked for.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from carrel.client import AsyncClient
from carrel.models import Event

ASK_SECONDS: Final = 15.0


async def changes(
    client: AsyncClient, project: str, name: str, ask_seconds: float = ASK_SECONDS
) -> AsyncGenerator[Event, None]:
    """Its present state, then every change, for ever.

    Raises ``CarrelError``: ``ApiError`` with status 404 once it is removed and nobody said so.
    """
    queue: asyncio.Queue[Event | BaseException] = asyncio.Queue(maxsize=64)
    pump = asyncio.create_task(_pump(client, project, name, queue))
    version = -1
    try:
        while True:
            try:
                async with asyncio.timeout(ask_seconds if version >= 0 else 0.05):
                    found = await queue.get()
            except TimeoutError:
                workload = await client.get_workload(project, name)
                found = Event(type="workload", workload=workload)
                if workload.resource_version == version:
                    continue
            if isinstance(found, BaseException):
                raise found
            version = found.workload.resource_version
            yield found
    finally:
        pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await pump


async def _pump(
    client: AsyncClient, project: str, name: str, queue: asyncio.Queue[Event | BaseException]
) -> None:
    try:
        async with aclosing(client.events(project, name)) as events:
            async for event in events:
                await queue.put(event)
    except Exception as error:  # noqa: BLE001 - raised again by whoever reads the queue
        await queue.put(error)
