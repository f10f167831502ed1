"""Listing and watching one kind of objects for ever, whatever happens to the connection.

List once, watch from the version of the list, go on from the last version heard of (bookmarks move
it when nothing happens) after every interruption. Only when the server no longer knows that version
(410), or keeps failing, everything is listed anew; the store makes a difference of it.
A watch that is silent for longer than bookmarks are apart is taken for dead.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from carrel_scheduler.kube.client import Listing
from carrel_scheduler.kube.errors import Gone, KubeError, TooManyRequests, Unavailable
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.kube.retrying import Backoff, Chance
from carrel_scheduler.kube.store import Store, Told
from carrel_scheduler.kube.watching import Event, EventReader, Lines, Seen

log = logging.getLogger(__name__)
T = TypeVar("T")
FAILURES_UNTIL_RELIST: Final = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """Spans in seconds.

    Attributes:
        silent: a watch that says nothing for so long is given up; bookmarks come each minute.
        watch: the server ends a watch after a time between this and twice this.
        first_pause: before the second try, half or all of it; it doubles with each failure.
        longest_pause: it grows no further.
        works: a watch that lasted so long worked, even if nothing happened.
    """

    silent: float = 150.0
    watch: float = 240.0
    first_pause: float = 0.05
    longest_pause: float = 3.0
    works: float = 5.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects to look at."""

    resource: Resource
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


class Source(Protocol):
    """What is needed of a client."""

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
        selection: what to look at.
        kind: type of the objects.
        tell: told of each change, in order.
        synced: called after each full listing was told.
        timing: spans.
        chance: jitter, in [0, 1).
        pause: waits so many seconds.
    """

    def __init__(
        self,
        source: Source,
        selection: Selection,
        kind: type[T],
        tell: Callable[[Told[T]], None],
        synced: Callable[[], None],
        timing: Timing,
        chance: Chance = random.random,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store: Store[T] = Store(kind)
        self.trouble: Exception | None = None
        self._source, self._selection, self._kind = source, selection, kind
        self._tell, self._synced = tell, synced
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
        for told in self.store.replace(listing.items):
            self._tell(told)
        self._version = listing.version
        self._synced()

    async def _watch(self) -> None:
        """Watch until the server ends it. Raises what ends it otherwise."""
        began = self._now()
        heard = await self._hear()
        if heard or self._now() - began >= self._timing.works:
            self._works()
        else:
            await self._pause(self._backoff.next())

    async def _hear(self) -> bool:
        """Whether anything was said."""
        selection, lines, heard = self._selection, Lines(), False
        chunks = self._source.watch(
            selection.resource,
            self._version,
            selection.namespace,
            selection.label_selector,
            selection.field_selector,
            int(self._timing.watch * (1 + self._chance())),
        )
        async with aclosing(chunks):
            while True:
                chunk = await self._next(chunks)
                if chunk is None:
                    return heard
                for line in lines.feed(chunk):
                    self._apply(self._read(line))
                    heard = True
                if heard:
                    self._works()

    async def _next(self, chunks: AsyncGenerator[bytes]) -> bytes | None:
        try:
            async with asyncio.timeout(self._timing.silent):
                return await anext(chunks, None)
        except TimeoutError:
            said = f"silent for {self._timing.silent:g} s"
            raise Unavailable(0, "Silent", said) from None

    def _read(self, line: bytes) -> Event[T]:
        try:
            return self._reader.read(line)
        except KubeError:
            self._version = ""  # whatever broke a watch from within: what it missed is unknown
            raise

    def _apply(self, event: Event[T]) -> None:
        told: Told[T] | None = None
        if event.seen is Seen.THERE and event.found is not None:
            told = self.store.put(event.found)
        elif event.seen is Seen.GONE:
            told = self.store.remove(event.identity.uid, event.found)
        self._version = event.identity.version
        if told is not None:
            self._tell(told)

    def _works(self) -> None:
        if self.trouble is not None:
            log.info("Seeing %s again", self._selection.resource.plural)
        self.trouble = None
        self._backoff.reset()

    async def _failed(self, error: Exception) -> None:
        if type(self.trouble) is not type(error):
            log.warning("Not seeing %s: %s", self._selection.resource.plural, error)
        self.trouble = error
        pause = self._backoff.next()
        answered = isinstance(error, KubeError) and error.status
        if answered and self._backoff.failures >= FAILURES_UNTIL_RELIST:
            self._version = ""  # perhaps it is this version that the server cannot serve
        if isinstance(error, TooManyRequests):
            pause = max(pause, error.retry_after)
        await self._pause(pause)
