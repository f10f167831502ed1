"""Changes of workspaces, from one event stream of the scheduler for the whole Hub.

A stream for each start would cost the Hub and the scheduler more than the start itself, and polling
each workspace more than everything else when hundreds run. The latest state of each workspace is
cached. The cache is not authoritative, because deletions during a broken connection are not
replayed: a slow poll beside the stream makes up for missed events, so a start never hangs.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from carrel.client import AsyncClient
from carrel.errors import ApiError, CarrelError, Unreachable
from carrel.models import Event, Workload

TICK_SECONDS: Final = 2.0
# An item of a stream: the workload, or a mark that it has to be read.
Arrived = asyncio.Queue[Workload | None]
AGAIN_SECONDS: Final = 2.0


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
    """Yield each event, and after each interval without one the scheduler's state, for ever."""
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


class WorkspaceWatch:
    """Listens as soon as somebody asks, until it is closed. Lives in one event loop."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._latest: dict[str, Workload] = {}
        self._listeners: dict[str, set[Arrived]] = {}
        self._reader: asyncio.Task[None] | None = None

    def latest(self, uid: str) -> Workload | None:
        """The last known state of a workspace; ``None`` when there is none, or it was removed."""
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
                # The cache may be stale by the time the stream is back.
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


_FEEDS: WeakKeyDictionary[AsyncClient, WorkspaceWatch] = WeakKeyDictionary()


def watch_of(client: AsyncClient) -> WorkspaceWatch:
    """The feed that is shared by all users of this client."""
    return _FEEDS.setdefault(client, WorkspaceWatch(client))


async def close_watch(client: AsyncClient) -> None:
    """Close the client's feed, if it has one, before the client itself."""
    feed = _FEEDS.pop(client, None)
    if feed is not None:
        await feed.close()
