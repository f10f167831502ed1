"""One event stream of all workspaces for the whole Hub, however many start or run.

A stream for each start would cost the Hub and the scheduler more than the start itself, and asking
after each workspace every few seconds more than everything else when hundreds run. What the stream
says last is remembered; it is a reason to wait or to look closer, never the last word: a listener
looks for itself now and then, because removals while a connection was broken are not told.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import Event, Workload
from carrel_spawner.watching import TICK_SECONDS, Arrived, snapshots

AGAIN_SECONDS: Final = 2.0


class Feed:
    """Listens as soon as somebody asks, until it is closed. Lives in one event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._latest: dict[str, Workload] = {}
        self._listeners: dict[str, set[Arrived]] = {}
        self._reader: asyncio.Task[None] | None = None

    def latest(self, uid: str) -> Workload | None:
        """What was last heard of a workspace; ``None`` when nothing was, or it was removed."""
        self._listen()
        return self._latest.get(uid)

    async def changes(
        self, workload: Workload, *, tick_seconds: float = TICK_SECONDS
    ) -> AsyncGenerator[Workload, None]:
        """The workload as given, then after each change and after each tick.

        Raises ``ApiError`` when it does not exist (any more).
        """
        with self._listening(workload) as arrived:
            yield workload
            async with aclosing(
                snapshots(self._client, workload.project, workload.name, arrived, tick_seconds)
            ) as found:
                async for one in found:
                    yield one

    async def close(self) -> None:
        """Stop listening."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._reader = None
        self._latest.clear()

    @contextmanager
    def _listening(self, workload: Workload) -> Iterator[Arrived]:
        arrived: Arrived = asyncio.Queue()
        known = self.latest(workload.uid)
        if known is not None and known.resource_version > workload.resource_version:
            arrived.put_nowait(known)
        listeners = self._listeners.setdefault(workload.uid, set())
        listeners.add(arrived)
        try:
            yield arrived
        finally:
            listeners.discard(arrived)
            if not listeners:
                self._listeners.pop(workload.uid, None)

    def _listen(self) -> None:
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            try:
                async with aclosing(self._client.events(kind="workspace")) as events:
                    async for event in events:
                        self._take(event)
            except CarrelError:
                # What is remembered may be wrong by the time the stream is back.
                self._latest.clear()
            await asyncio.sleep(AGAIN_SECONDS)

    def _take(self, event: Event) -> None:
        workload = event.workload
        if event.type == "deleted":
            self._latest.pop(workload.uid, None)
            self._tell(workload.uid, None)
        else:
            self._latest[workload.uid] = workload
            self._tell(workload.uid, workload)

    def _tell(self, uid: str, news: Workload | None) -> None:
        for arrived in self._listeners.get(uid, ()):
            arrived.put_nowait(news)


_FEEDS: WeakKeyDictionary[AsyncClient, Feed] = WeakKeyDictionary()


def feed_of(client: AsyncClient) -> Feed:
    """The feed that all who use this client share."""
    return _FEEDS.setdefault(client, Feed(client))


async def close_feed(client: AsyncClient) -> None:
    """Close the client's feed, if it has one, before the client itself."""
    feed = _FEEDS.pop(client, None)
    if feed is not None:
        await feed.close()
