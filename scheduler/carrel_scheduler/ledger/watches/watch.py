"""Watches: each reads changes after its cursor, then sleeps until there are newer ones.

The cursor moves only together with the changes it covers, so a cancelled ``anext`` loses and
repeats nothing and the watch goes on with the next call. Every read happens in one snapshot that
holds the store's version as well; a watch of a kind that never changes still follows that version,
or it would expire. What is known without reading is asked for first.

The notifier carries no changes and no versions: a watch that wakes reads from the database, so it
makes no difference who wrote, this process or another, and a false alarm costs one read. It is used
in the event loop only.

The scheduler itself writes most changes, and most of them are statuses that nobody follows. What a
watch of specifications needs of a commit is handed over as it was written instead of being read
back. A commit says which version it began with, so whatever another process wrote in between shows
as a gap, and the watch reads the database.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Self

from carrel_scheduler.ledger.columns.codec import Encoded
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_schema.objects import ObjectT

CHANNEL: Final = "carrel_changes"
"""The channel of PostgreSQL on which processes announce their commits (NOTIFY)."""


class Notifier:
    """Counts announcements, and wakes watches that wait for the next one."""

    def __init__(self) -> None:
        self._news = 0
        self._closed = False
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def news(self) -> int:
        """The number of announcements; to be read before the data."""
        return self._news

    @property
    def closed(self) -> bool:
        """True once the ledger closes: watches end."""
        return self._closed

    def announce(self) -> None:
        """Tell the waiting watches of a commit."""
        self._news += 1
        self._wake()

    def close(self) -> None:
        """Wake all watches for the last time."""
        self._closed = True
        self._wake()

    async def wait(self, news: int, poll_seconds: float) -> None:
        """Return on more than this ``news``, after ``poll_seconds``, or on closing."""
        if self._news > news or self._closed:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=poll_seconds)
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Batch(NamedTuple, Generic[ObjectT]):
    """Changes after a cursor; ``through`` is where the next read begins."""

    changes: Sequence[Change[ObjectT]]
    through: int


class Watch(Generic[ObjectT]):
    """See the module. Ends when the ledger closes or ``aclose`` is called."""

    def __init__(
        self,
        read: Callable[[int], Awaitable[Batch[ObjectT]]],
        notifier: Notifier,
        version: int,
        poll_seconds: float,
        recent: Callable[[int], Batch[ObjectT] | None] | None = None,
    ) -> None:
        self._read: Callable[[int], Awaitable[Batch[ObjectT]]] = read
        self._notifier, self._poll_seconds = notifier, poll_seconds
        self._recent: Callable[[int], Batch[ObjectT] | None] | None = recent
        self._cursor = version
        self._ready: deque[Change[ObjectT]] = deque()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change[ObjectT]:
        """The next change; raises ``Expired`` when it is no longer kept."""
        while not self._ready:
            if self._closed or self._notifier.closed:
                raise StopAsyncIteration
            news = self._notifier.news
            known = self._recent(self._cursor) if self._recent is not None else None
            batch = known if known is not None else await self._read(self._cursor)
            self._cursor = batch.through
            self._ready.extend(batch.changes)
            if not batch.changes:
                await self._notifier.wait(news, self._poll_seconds)
        return self._ready.popleft()

    async def aclose(self) -> None:
        """End the watch."""
        self._closed = True
        self._ready.clear()


MOST_CHANGES: Final = 10_000


class Fresh(NamedTuple):
    """A change that is more than a status, as written."""

    type: ChangeType
    object: Encoded[Any]


class Commit(NamedTuple):
    """The changes of one commit: everything after version ``began``, up to ``through``."""

    began: int
    through: int
    changes: Sequence[Fresh]


class RecentCommits:
    """A few thousand changes; used in the event loop only."""

    def __init__(self) -> None:
        self._commits: deque[Commit] = deque()
        self._held = 0

    def add(self, commit: Commit) -> None:
        """Keep a commit; everything before a gap is forgotten."""
        if self._commits and self._commits[-1].through != commit.began:
            self._commits.clear()
            self._held = 0
        self._commits.append(commit)
        self._held += _size(commit)
        while self._held > MOST_CHANGES and len(self._commits) > 1:
            self._held -= _size(self._commits.popleft())

    def after(self, kind: type[ObjectT], cursor: int) -> Batch[ObjectT] | None:
        """All later changes of specifications; ``None`` if they are only in the database."""
        if not self._commits or cursor < self._commits[0].began:
            return None
        through = self._commits[-1].through
        if cursor >= through:
            return None
        found: list[Change[ObjectT]] = []
        for commit in reversed(self._commits):
            if commit.through <= cursor:
                break
            found += [
                Change(fresh.type, fresh.object.meta.resource_version, fresh.object.decode())
                for fresh in reversed(commit.changes)
                if fresh.object.kind is kind and fresh.object.meta.resource_version > cursor
            ]
        found.reverse()
        return Batch(found, through)


def _size(commit: Commit) -> int:
    return 1 + len(commit.changes)
