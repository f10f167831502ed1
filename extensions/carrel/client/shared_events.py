"""Event streams that are shared: one for all listeners of a project in this process.

Two hundred live views would otherwise hold two hundred connections. A listener is told to request
the present state whenever the stream is (re)connected and then gets every change, so nothing falls
between. The stream ends with its last listener.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

from carrel.client.aio import AsyncClient
from carrel.errors import ApiError
from carrel.models import Event, Workload

EVERYTHING: Final = ""
Items = asyncio.Queue[Event | BaseException | None]


class SharedStream:
    """The events of one project, passed to listeners of a workload or of all."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._queues: defaultdict[str, set[Items]] = defaultdict(set)
        self._connected = False
        self._reader: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listening(
        self, client: AsyncClient, name: str = EVERYTHING
    ) -> AsyncIterator[AsyncGenerator[Event | None]]:
        """Events of a workload, or of all; ``None``: request the present state now."""
        queue: Items = asyncio.Queue()
        self._queues[name].add(queue)
        if self._reader is None or self._reader.done():
            self._connected = False
            self._reader = asyncio.create_task(self._run(client))
        elif self._connected:
            queue.put_nowait(None)
        try:
            async with aclosing(_items(queue)) as events:
                yield events
        finally:
            self._queues[name].discard(queue)
            if not self._queues[name]:
                del self._queues[name]
            if not self._queues:
                self._reader.cancel()
                self._reader = None

    async def _run(self, client: AsyncClient) -> None:
        try:
            events = client.events(self._project, opened=self._opened)
            async with aclosing(events) as stream:
                async for event in stream:
                    for name in (event.workload.name, EVERYTHING):
                        for queue in self._queues.get(name, ()):
                            queue.put_nowait(event)
        except Exception as error:  # noqa: BLE001 - raised again by every listener
            for queue in self._all():
                queue.put_nowait(error)

    def _opened(self) -> None:
        self._connected = True
        for queue in self._all():
            queue.put_nowait(None)

    def _all(self) -> Iterator[Items]:
        return (queue for queues in self._queues.values() for queue in queues)


async def _items(queue: Items) -> AsyncGenerator[Event | None]:
    while True:
        found = await queue.get()
        if isinstance(found, BaseException):
            raise found
        yield found


_streams: WeakKeyDictionary[AsyncClient, dict[str, SharedStream]] = WeakKeyDictionary()


@asynccontextmanager
async def listening(
    client: AsyncClient, project: str, name: str = EVERYTHING
) -> AsyncIterator[AsyncGenerator[Event | None]]:
    """See ``SharedStream.listening``. To be used in the client's own loop."""
    mine = _streams.setdefault(client, {})
    if project not in mine:
        mine[project] = SharedStream(project)
    async with mine[project].listening(client, name) as events:
        yield events


async def changes(client: AsyncClient, project: str, name: str) -> AsyncGenerator[Event]:
    """A workload's present state, then every change, for ever. Raises ``CarrelError``."""
    version = -1
    async with listening(client, project, name) as events:
        async for item in events:
            event = item or Event(
                type="workload", workload=await client.get_workload(project, name)
            )
            if event.type == "deleted" or event.workload.resource_version >= version:
                version = event.workload.resource_version
                yield event


async def until(
    met: Callable[[Workload], bool],
    client: AsyncClient,
    project: str,
    name: str,
    timeout: float | None,  # noqa: ASYNC109 - a wait for a person, who says how long
) -> None:
    """Wait until a workload is as it should be, or is not there any more; ``timeout`` seconds."""
    try:
        async with asyncio.timeout(timeout), aclosing(changes(client, project, name)) as events:
            async for event in events:
                if event.type == "deleted" or met(event.workload):
                    return
    except TimeoutError:
        return
    except ApiError as error:
        if error.status != 404:
            raise
