"""The list-watch of one kind of objects: a store that follows the API server's.

List once, watch from the version of the list, and after every interruption resume from the last
version received (bookmarks advance it when nothing happens). Only when the server no longer knows
that version (410), or keeps failing, everything is listed again; the store compares. A watch that
is silent for longer than bookmarks are apart counts as dead.

Events and whole listings go through the same comparison, so a listing after an interruption yields
exactly the changes: none is missed or repeated.
"""

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from carrel_scheduler.backoff import Backoff, Jitter
from carrel_scheduler.kube.client import Listing
from carrel_scheduler.kube.decoding import (
    SILENT_SECONDS,
    EventReader,
    Seen,
    WatchEvent,
    watch_lines,
)
from carrel_scheduler.kube.errors import Gone, KubeError, TooManyRequests
from carrel_scheduler.kube.metadata import identity_of
from carrel_scheduler.kube.resources import Resource

T = TypeVar("T")


class ChangeKind(Enum):
    """The kind of a change. ``SYNCED``: all objects that existed at the start were delivered."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"


class WatchChange(msgspec.Struct, Generic[T], frozen=True):
    """A change of an object; at ``DELETED`` with the last known one."""

    kind: ChangeKind
    found: T | None = None

    @property
    def object(self) -> T:
        """The changed object. Raises ``ValueError`` at ``SYNCED``, which has none."""
        if self.found is None:
            raise ValueError(f"a change of kind {self.kind.value} has no object")
        return self.found


SYNCED: Final[WatchChange[Any]] = WatchChange(ChangeKind.SYNCED)


class Pending(Generic[T]):
    """Changes that are not received yet, at most one for each object, the latest last.

    However slow the receiver is, this never grows beyond the number of objects. It always receives
    a state that existed; it may miss states in between.
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str, WatchChange[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def put(self, uid: str, change: WatchChange[T]) -> None:
        """Add the latest change of an object."""
        earlier = self._of.pop(uid, None)
        merged = change if earlier is None else merge(earlier, change)
        if merged is not None:
            self._of[uid] = merged

    def pop(self) -> WatchChange[T]:
        """The oldest change. Raises ``KeyError`` when there is none."""
        return self._of.popitem(last=False)[1]


def merge(earlier: WatchChange[T], later: WatchChange[T]) -> WatchChange[T] | None:
    """Two changes of one object as one; ``None``: nothing."""
    if earlier.kind is ChangeKind.ADDED:
        if later.kind is ChangeKind.DELETED:
            return None
        return WatchChange(ChangeKind.ADDED, later.found)
    if earlier.kind is ChangeKind.DELETED:
        return WatchChange(ChangeKind.MODIFIED, later.found)
    return later


ObjectChange = tuple[str, WatchChange[T]]
"""The uid of an object with what happened to it."""


class Store(Generic[T]):
    """Objects of one type by uid."""

    def __init__(self, kind: type[T]) -> None:
        self._identity = identity_of(kind)
        self._objects: dict[str, T] = {}

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects by uid; the mapping follows later changes."""
        return self._objects

    def put(self, found: T) -> ObjectChange[T] | None:
        """Store an object as ``found``; ``None`` if it is unchanged."""
        uid, version = self._identity(found)
        known = self._objects.get(uid)
        if known is None:
            self._objects[uid] = found
            return uid, WatchChange(ChangeKind.ADDED, found)
        if self._identity(known).version == version:
            return None
        self._objects[uid] = found
        return uid, WatchChange(ChangeKind.MODIFIED, found)

    def remove(self, uid: str, last: T | None = None) -> ObjectChange[T] | None:
        """An object is gone; ``last`` is what it was in the end, if that is known."""
        known = self._objects.pop(uid, None)
        if known is None:
            return None
        return uid, WatchChange(ChangeKind.DELETED, known if last is None else last)

    def replace(self, listed: Iterable[T]) -> list[ObjectChange[T]]:
        """Replace the cache by a list; deletions come first, so that their capacity is free."""
        there: dict[str, Any] = {self._identity(found).uid: found for found in listed}
        gone = [uid for uid in self._objects if uid not in there]
        changes = [self.remove(uid) for uid in gone]
        changes += [self.put(found) for found in there.values()]
        return [one for one in changes if one is not None]


log = logging.getLogger(__name__)
FAILURES_UNTIL_RELIST: Final = 5


@dataclass(frozen=True, slots=True)
class ReflectorTiming:
    """Spans in seconds.

    Attributes:
        silent: a watch without events for so long is given up; bookmarks come each minute.
        watch: the server ends a watch after a time between this and twice this.
        first_pause: before the second try, half or all of it; it doubles with each failure.
        longest_pause: it grows no further.
        works: a watch that lasted so long worked, even if nothing happened.
    """

    silent: float = SILENT_SECONDS
    watch: float = 240.0
    first_pause: float = 0.05
    longest_pause: float = 3.0
    works: float = 5.0


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that are watched."""

    resource: Resource
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


class Source(Protocol):
    """The methods of the client that a reflector uses."""

    async def list(
        self,
        resource: Resource,
        type: type[T],  # noqa: A002 - the client's own name for it
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[T]:
        """See ``KubeClient.list``."""
        ...

    def watch(
        self,
        resource: Resource,
        version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        seconds: int = 0,
    ) -> AsyncGenerator[bytes]:
        """See ``KubeClient.watch``."""
        ...


class Reflector(Generic[T]):
    """Keeps a store like the server's.

    Args:
        source: the client.
        selection: what is watched.
        kind: type of the objects.
        on_change: called with each change, in order.
        synced: called after each full listing was delivered.
        timing: spans.
        chance: jitter, in [0, 1).
        pause: waits so many seconds.
    """

    def __init__(
        self,
        source: Source,
        selection: Selection,
        kind: type[T],
        on_change: Callable[[ObjectChange[T]], None],
        synced: Callable[[], None],
        timing: ReflectorTiming,
        chance: Jitter = random.random,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store: Store[T] = Store(kind)
        self.trouble: Exception | None = None
        self._source, self._selection, self._kind = source, selection, kind
        self._on_change, self._synced = on_change, synced
        self._timing, self._chance, self._pause, self._now = timing, chance, pause, now
        self._reader: EventReader[T] = EventReader(kind)
        self._version = ""
        self._backoff = Backoff(chance, timing.first_pause, timing.longest_pause)

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except Gone:
                self._version = ""
                await self._pause(self._backoff.next())
            except KubeError as error:
                await self._failed(error)

    async def _list(self) -> None:
        selection = self._selection
        listing: Listing[T] = await self._source.list(
            selection.resource,
            self._kind,
            selection.namespace,
            selection.label_selector,
            selection.field_selector,
        )
        for change in self.store.replace(listing.items):
            self._on_change(change)
        self._version = listing.version
        self._synced()

    async def _watch(self) -> None:
        """Watch until the server ends the request. Raises other errors that end it."""
        began = self._now()
        received = await self._receive()
        if received or self._now() - began >= self._timing.works:
            self._works()
        else:
            await self._pause(self._backoff.next())

    async def _receive(self) -> bool:
        """Returns whether any event arrived."""
        selection, received = self._selection, False
        chunks = self._source.watch(
            selection.resource,
            self._version,
            selection.namespace,
            selection.label_selector,
            selection.field_selector,
            int(self._timing.watch * (1 + self._chance())),
        )
        async with aclosing(watch_lines(chunks, self._timing.silent)) as batches:
            async for lines in batches:
                for line in lines:
                    self._apply(self._read(line))
                    received = True
                if received:
                    self._works()
        return received

    def _read(self, line: bytes) -> WatchEvent[T]:
        try:
            return self._reader.read(line)
        except KubeError:
            self._version = ""  # whatever broke a watch from within: what it missed is unknown
            raise

    def _apply(self, event: WatchEvent[T]) -> None:
        change: ObjectChange[T] | None = None
        if event.seen is Seen.THERE and event.found is not None:
            change = self.store.put(event.found)
        elif event.seen is Seen.GONE:
            change = self.store.remove(event.identity.uid, event.found)
        self._version = event.identity.version
        if change is not None:
            self._on_change(change)

    def _works(self) -> None:
        if self.trouble is not None:
            log.info("watching %s again", self._selection.resource.plural)
        self.trouble = None
        self._backoff.reset()

    async def _failed(self, error: Exception) -> None:
        if type(self.trouble) is not type(error):
            log.warning("%s cannot be watched: %s", self._selection.resource.plural, error)
        self.trouble = error
        pause = self._backoff.next()
        answered = isinstance(error, KubeError) and error.status
        if answered and self._backoff.failures >= FAILURES_UNTIL_RELIST:
            self._version = ""  # perhaps it is this version that the server cannot serve
        if isinstance(error, TooManyRequests):
            pause = max(pause, error.retry_after)
        await self._pause(pause)
