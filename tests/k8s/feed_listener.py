"""A subscriber to a feed of config maps that checks the order of its changes."""

import asyncio
from collections.abc import Callable
from typing import Final

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.metadata import PartialObject
from carrel_scheduler.kube.reflector import SYNCED, ChangeKind, WatchChange
from carrel_scheduler.kube.resources import CONFIG_MAPS

TIMEOUT_SECONDS: Final = 120.0
SPACE: Final = "default"


class FeedListener:
    """Follows a feed to its end, and fails when changes contradict each other.

    Attributes:
        seen: versions by uid.
        told: every change, in order.
    """

    def __init__(self, feed: Feed[PartialObject]) -> None:
        self.seen: dict[str, str] = {}
        self.told: list[tuple[str, str]] = []
        self.synced = False
        self._feed = feed
        self._task = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        async for change in self._feed.subscribe():
            if change is SYNCED:
                self.synced = True
            else:
                self._take(change)

    def _take(self, change: WatchChange[PartialObject]) -> None:
        found = change.object.metadata
        self.told.append((change.kind.value, found.name))
        assert (change.kind is ChangeKind.ADDED) == (found.uid not in self.seen), change
        if change.kind is ChangeKind.DELETED:
            del self.seen[found.uid]
        else:
            assert int(found.resource_version) > int(self.seen.get(found.uid, "0")), change
            self.seen[found.uid] = found.resource_version

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not holds():
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.02)

    async def like(self, client: KubeClient) -> None:
        """Wait until it has seen exactly the objects that exist."""
        listing = await client.list(CONFIG_MAPS, PartialObject, SPACE)
        there = {one.metadata.uid: one.metadata.resource_version for one in listing.items}
        await self.until(lambda: self.seen == there)

    async def end(self) -> None:
        await self._feed.close()
        await self._task
