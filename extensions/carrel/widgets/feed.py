"""One stream of events for all views of a project.

Each view would otherwise hold a stream of its own, and two hundred views two hundred connections.
A listener is told to ask how things stand whenever the stream (again) does, then hears of every
change, so nothing falls between. The stream ends with its last listener.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

from carrel.client import AsyncClient
from carrel.models import Event

EVERYTHING: Final = ""
News = asyncio.Queue[Event | BaseException | None]


class Feed:
    """The events of one project, handed to whoever asked for a workload or for all."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._queues: defaultdict[str, set[News]] = defaultdict(set)
        self._stands = False
        self._pump: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listening(
        self, client: AsyncClient, name: str = EVERYTHING
    ) -> AsyncIterator[AsyncGenerator[Event | None]]:
        """Events of a workload, or of all; ``None``: ask now how things stand."""
        queue: News = asyncio.Queue()
        self._queues[name].add(queue)
        if self._pump is None or self._pump.done():
            self._stands = False
            self._pump = asyncio.create_task(self._run(client))
        elif self._stands:
            queue.put_nowait(None)
        try:
            async with aclosing(_taken(queue)) as events:
                yield events
        finally:
            self._queues[name].discard(queue)
            if not self._queues[name]:
                del self._queues[name]
            if not self._queues:
                self._pump.cancel()
                self._pump = None

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
        self._stands = True
        for queue in self._all():
            queue.put_nowait(None)

    def _all(self) -> Iterator[News]:
        return (queue for queues in self._queues.values() for queue in queues)


async def _taken(queue: News) -> AsyncGenerator[Event | None]:
    while True:
        found = await queue.get()
        if isinstance(found, BaseException):
            raise found
        yield found


_feeds: WeakKeyDictionary[AsyncClient, dict[str, Feed]] = WeakKeyDictionary()


@asynccontextmanager
async def listening(
    client: AsyncClient, project: str, name: str = EVERYTHING
) -> AsyncIterator[AsyncGenerator[Event | None]]:
    """See ``Feed.listening``. Enter it in the client's own loop."""
    mine = _feeds.setdefault(client, {})
    if project not in mine:
        mine[project] = Feed(project)
    async with mine[project].listening(client, name) as events:
        yield events


async def changes(client: AsyncClient, project: str, name: str) -> AsyncGenerator[Event]:
    """A workload's present state, then every change, for ever. Raises ``CarrelError``."""
    version = -1
    async with listening(client, project, name) as events:
        async for heard in events:
            event = heard or Event(
                type="workload", workload=await client.get_workload(project, name)
            )
            if event.type == "deleted" or event.workload.resource_version >= version:
                version = event.workload.resource_version
                yield event
