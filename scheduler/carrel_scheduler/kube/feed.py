"""A list-watch shared by many subscribers, each of which receives every change at its own pace.

``async for change in feed.subscribe()`` yields what exists (``ADDED``), then ``SYNCED``, then each
change. It begins with the first subscription and ends with ``close``; a slow subscriber delays
no other, and changes that it has not received yet are merged by object.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, Self, TypeVar

from carrel_scheduler.backoff import Jitter
from carrel_scheduler.kube.reflector import (
    SYNCED,
    ChangeKind,
    ObjectChange,
    Pending,
    Reflector,
    ReflectorTiming,
    Selection,
    Source,
    WatchChange,
)
from carrel_scheduler.kube.resources import Resource

T = TypeVar("T")


async def until_synced(synced: asyncio.Event, listening: asyncio.Task[None]) -> None:
    """Wait until a subscriber's task has received everything once. Raises what ends the task."""
    waiting = asyncio.ensure_future(synced.wait())
    await asyncio.wait({waiting, listening}, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        listening.result()


class FeedEnded(Exception):  # noqa: N818 - an outcome to handle
    """The feed was closed, or failed, before everything was listed once."""


class FeedSubscription(Generic[T]):
    """The changes that one subscriber has not received yet; an asynchronous iterator."""

    def __init__(self, leave: "Callable[[FeedSubscription[T]], None]") -> None:
        self._leave = leave
        self._begun: deque[WatchChange[T]] = deque()
        self._pending: Pending[T] = Pending()
        self._wake = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None
        self._synced = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchChange[T]:
        while True:
            if self._begun:
                return self._begun.popleft()
            if self._pending:
                return self._pending.pop()
            if self._ended:
                raise self._error or StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()

    async def batch(self) -> list[WatchChange[T]]:
        """The pending changes, at least one; none at the end."""
        found = [change] if (change := await anext(self, None)) is not None else []
        found += self._begun
        self._begun.clear()
        return found + [self._pending.pop() for _ in range(len(self._pending))]

    def close(self) -> None:
        """End the subscription."""
        self._leave(self)
        self._end(None)

    def _begin(self, objects: Mapping[str, T]) -> None:
        """Add everything that exists now; later changes follow."""
        self._begun.extend(WatchChange(ChangeKind.ADDED, found) for found in objects.values())
        self._begun.append(SYNCED)
        self._synced = True
        self._wake.set()

    def _put(self, change: ObjectChange[T]) -> None:
        if self._synced:
            self._pending.put(*change)
            self._wake.set()

    def _end(self, error: BaseException | None) -> None:
        self._ended, self._error = True, error
        self._wake.set()


class Feed(Generic[T]):
    """Objects of one kind, and their changes.

    Args:
        client: to list and watch with.
        resource: which kind.
        kind: the type to decode into; its ``metadata`` needs ``uid`` and ``resource_version``.
        namespace: of one namespace only.
        label_selector: only of these labels.
        field_selector: only with these fields.
        timing: spans; see ``ReflectorTiming``.
        chance: jitter of pauses, in [0, 1).
        pause: waits so many seconds.
        now: monotonic seconds.
    """

    def __init__(
        self,
        client: Source,
        resource: Resource,
        kind: type[T],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        *,
        timing: ReflectorTiming = ReflectorTiming(),  # noqa: B008 - frozen
        chance: Jitter = random.random,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        selection = Selection(resource, namespace, label_selector, field_selector)
        self._reflector: Reflector[T] = Reflector(
            client, selection, kind, self._on_change, self._listed, timing, chance, pause, now
        )
        self._subscriptions: list[FeedSubscription[T]] = []
        self._task: asyncio.Task[None] | None = None
        self._synced = asyncio.Event()

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects as last seen, by uid; empty until synced."""
        return self._reflector.store.objects

    @property
    def trouble(self) -> Exception | None:
        """The error for which nothing can be seen at the moment; ``None`` when all is well."""
        return self._reflector.trouble

    async def synced(self) -> None:
        """Wait until everything was listed once. Raises ``FeedEnded``."""
        task = self._start()
        waiting = asyncio.create_task(self._synced.wait())
        try:
            await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if not self._synced.is_set():
            raise FeedEnded from (None if task.cancelled() else task.exception())

    def subscribe(self) -> FeedSubscription[T]:
        """Receive every change from now on; what exists already comes first."""
        task = self._start()
        made: FeedSubscription[T] = FeedSubscription(self._subscriptions.remove)
        self._subscriptions.append(made)
        if task.done():
            self._ended(task)
        elif self._synced.is_set():
            made._begin(self.objects)  # noqa: SLF001 - two halves of one thing
        return made

    async def close(self) -> None:
        """Stop watching; a subscription ends after its last pending change."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _start(self) -> "asyncio.Task[None]":
        if self._task is None:
            self._task = asyncio.create_task(self._reflector.run())
            self._task.add_done_callback(self._ended)
        return self._task

    def _on_change(self, change: ObjectChange[T]) -> None:
        for subscription in self._subscriptions:
            subscription._put(change)  # noqa: SLF001 - see above

    def _listed(self) -> None:
        if not self._synced.is_set():
            self._synced.set()
            for subscription in self._subscriptions:
                subscription._begin(self.objects)  # noqa: SLF001 - see above

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        for subscription in self._subscriptions:
            subscription._end(error)  # noqa: SLF001 - see above
