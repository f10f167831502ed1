"""Watches over several kinds: each object's changes once and in order, over interruptions.

Each kind is watched on its own, from the version asked for and after an interruption from the last
one heard of, so the order holds for each kind. What people made and Carrel has not taken on is not
seen: it has no label of ours yet, and getting it is what "added" means.

An event that cannot be read is set aside and the others go on. Whatever else ends the watch of one
kind is told to whoever waits for changes; nobody waits for a watch that has ended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, Generic, Self

import msgspec

from carrel_scheduler.backoff import Backoff, Jitter
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.decoding import RawEvent, decode_page, raw_event, watch_lines
from carrel_scheduler.kube.errors import (
    Gone,
    KubeError,
    TooManyRequests,
    Unavailable,
)
from carrel_scheduler.kube.metadata import PartialObject
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.columns.codec import SOURCES
from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_scheduler.ledger.resources.listing import readable
from carrel_scheduler.ledger.store import Change, ChangeType, Expired
from carrel_scheduler.quarantine import Quarantine
from carrel_schema import names
from carrel_schema.objects import ObjectT

log = logging.getLogger(__name__)
MOST_WAITING: Final = 1000
FAILURES_UNTIL_GIVEN_UP: Final = 60
LONGEST_PAUSE_SECONDS: Final = 3.0
_TYPES: Final = {one.name: one for one in ChangeType}


_STORED: Final = msgspec.json.Decoder(StoredResource)
_PARTIAL: Final = msgspec.json.Decoder(PartialObject)
_End = BaseException | None


class ManyWatch(Generic[ObjectT]):
    """See the module. A cancelled ``anext`` loses nothing; ends with ``aclose``.

    Args:
        client: to watch with.
        kind: class of the objects.
        resources: where objects of that class lie.
        version: everything after it is told.
        statuses: whether changes of a status alone are told.
        chance: jitter of pauses, in [0, 1).
        pause: waits so many seconds.
        quarantine: where events go that cannot be read.
    """

    def __init__(
        self,
        client: KubeClient,
        kind: type[ObjectT],
        resources: Sequence[Resource],
        version: int,
        *,
        statuses: bool,
        chance: Jitter,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        quarantine: Quarantine,
    ) -> None:
        self._client, self._statuses, self._quarantine = client, statuses, quarantine
        self._kind: type[ObjectT] = kind
        self._chance, self._pause = chance, pause
        self._found: asyncio.Queue[Change[ObjectT] | _End] = asyncio.Queue(MOST_WAITING)
        self._known: dict[str, tuple[int, dict[str, str]]] = {}
        self._ended = False
        self._tasks = [
            asyncio.create_task(self._follow(resource, version)) for resource in resources
        ]
        self._tasks.append(asyncio.create_task(self._check(resources[0], version)))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change[ObjectT]:
        """The next change; raises ``Expired`` when it is no longer kept."""
        while not (self._ended and self._found.empty()):
            found = await self._found.get()
            if isinstance(found, Change):
                return found
            await self.aclose()
            if found is not None:
                raise found
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the watch; a waiting ``anext`` ends, too."""
        if self._ended:
            return
        self._ended = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while not self._found.empty():
            self._found.get_nowait()
        self._found.put_nowait(None)

    async def _check(self, resource: Resource, version: int) -> None:
        """Refuse a version from the future, for which a watch would wait silently."""
        try:
            body = await self._client.raw("GET", f"{resource.path()}?limit=1")
            there = int(decode_page(body, StoredResource).metadata.resource_version)
        except (KubeError, ValueError) as error:
            log.info("The version of %s was not checked: %s", resource.plural, error)
            return
        if version > there:
            await self._found.put(Expired(f"version {version} is to come: this is {there}"))

    async def _follow(self, resource: Resource, version: int) -> None:
        cursor = version
        backoff = Backoff(self._chance, longest=LONGEST_PAUSE_SECONDS)
        try:
            while True:
                before = cursor
                try:
                    stream = self._client.watch(resource, str(cursor), label_selector=names.UID)
                    async with aclosing(watch_lines(stream)) as batches:
                        async for lines in batches:
                            for line in lines:
                                cursor = await self._take(resource, line, cursor)
                except (Unavailable, TooManyRequests) as error:
                    _give_up(resource, error, backoff)
                if cursor != before:
                    backoff.reset()
                await self._pause(backoff.next())
        except Gone as error:
            await self._found.put(Expired(f"{resource.plural} after {version}: {error}"))
        except KubeError as error:
            await self._found.put(LedgerUnavailable(f"{resource.plural}: {error}"))
        except LedgerUnavailable as error:
            await self._found.put(error)
        except Exception as error:
            log.exception("The watch of %s ended", resource.plural)
            await self._found.put(LedgerUnavailable(f"{resource.plural}: {error!r}"))

    async def _take(self, resource: Resource, line: bytes, cursor: int) -> int:
        """Queue a change; returns the version from which the watch continues."""
        try:
            version, change = self._read(resource, raw_event(line))
        except KubeError:
            raise
        except Exception as error:  # noqa: BLE001 - set aside, and everything else goes on
            identity, version = _identity_in(line, cursor)
            self._quarantine.put(SOURCES[self._kind], identity or resource.plural, error)
            return version
        if change is not None and self._tells(change.type, change.object):
            await self._found.put(change)
        return version

    def _read(self, resource: Resource, event: RawEvent) -> tuple[int, Change[ObjectT] | None]:
        stored = _STORED.decode(event.object)
        version = stored.version
        if event.type not in _TYPES:
            return version, None
        change = _TYPES[event.type]
        obj = readable(self._kind, resource, stored, self._quarantine)
        if obj is None and change is ChangeType.DELETED:
            raise Gone(410, "Expired", "what is gone cannot be read: all are listed again")
        return version, None if obj is None else Change(change, version, obj)

    def _tells(self, change: ChangeType, obj: ObjectT) -> bool:
        """Whether to deliver a change: mere changes of a status may be left out."""
        if self._statuses:
            return True
        uid, now = obj.meta.uid, (obj.meta.generation, obj.meta.labels)
        before = self._known.pop(uid, None)
        if change is not ChangeType.DELETED:
            self._known[uid] = now
        return change is not ChangeType.MODIFIED or before != now


def _identity_in(line: bytes, cursor: int) -> tuple[str, int]:
    """The object and the version that an event is about, as far as can be told."""
    try:
        metadata = _PARTIAL.decode(raw_event(line).object).metadata
        return metadata.labels.get(names.UID) or metadata.uid, int(metadata.resource_version)
    except (msgspec.MsgspecError, ValueError):
        return "", cursor


def _give_up(resource: Resource, error: Exception, backoff: Backoff) -> None:
    """Raise what ends the watch after too many failures; each is told to the log."""
    if backoff.failures >= FAILURES_UNTIL_GIVEN_UP:
        raise LedgerUnavailable(f"{resource.plural} cannot be watched: {error}") from error
    log.info("The watch of %s goes on after: %s", resource.plural, error)
