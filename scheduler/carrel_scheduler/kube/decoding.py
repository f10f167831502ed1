"""JSON of the API server, of lists and of watches, into the types that callers ask for. Pure.

Unknown fields are skipped; a decoder is built once for each type. An object of a list that is not
of its type does not spoil the others: whoever may write custom resources could else blind all
readers. The events of a watch are lines. A connection may end within one: what has no line end is
dropped, and the watch resumes after the last complete event.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar, cast

import msgspec

from carrel_scheduler.kube.errors import UNREADABLE, Status, Unavailable, Undecodable, from_status
from carrel_scheduler.kube.metadata import ObjectVersion, PartialObject, identity_of

log = logging.getLogger(__name__)
SILENT_SECONDS: Final = 150.0
"""Bookmarks come each minute."""
T = TypeVar("T")


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of a list; ``continue_token`` leads to its next page, empty at the last."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, Generic[T]):
    """A page of a list."""

    metadata: ListMetadata
    items: list[T] | None = None


_RAW_PAGE: Final = msgspec.json.Decoder(ListPage[msgspec.Raw])
_PARTIAL: Final = msgspec.json.Decoder(PartialObject)


_decoders: Final[dict[Any, "msgspec.json.Decoder[Any]"]] = {}
_page_decoders: Final[dict[Any, "msgspec.json.Decoder[Any]"]] = {}


def decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """The decoder of a type, built once."""
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(dict[str, Any] if kind is dict else kind)
    return _decoders[kind]


def _page_decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    if kind not in _page_decoders:
        item = dict[str, Any] if kind is dict else kind
        _page_decoders[kind] = msgspec.json.Decoder(cast("Any", ListPage)[item])
    return _page_decoders[kind]


def decode(body: bytes, kind: type[T]) -> T:
    """Decode an object. Raises ``Undecodable``."""
    try:
        found: T = decoder(kind).decode(body)
    except UNREADABLE as error:
        raise Undecodable(0, "Undecodable", f"{kind.__name__}: {error}") from error
    return found


def decode_page(body: bytes, kind: type[T]) -> ListPage[T]:
    """A page; objects that are not of the type are logged and left out.

    Raises ``Undecodable`` when it is no list at all.
    """
    try:
        page: ListPage[T] = _page_decoder(kind).decode(body)
    except msgspec.ValidationError:
        return _one_by_one(body, kind)
    except UNREADABLE as error:
        raise Undecodable(0, "Undecodable", f"list of {kind.__name__}: {error}") from error
    return page


def _one_by_one(body: bytes, kind: type[T]) -> ListPage[T]:
    try:
        page = _RAW_PAGE.decode(body)
    except UNREADABLE as error:
        raise Undecodable(0, "Undecodable", f"list of {kind.__name__}: {error}") from error
    items = [found for raw in page.items or () if (found := decode_or_log(raw, kind)) is not None]
    return ListPage(page.metadata, items)


def decode_or_log(raw: msgspec.Raw, kind: type[T]) -> T | None:
    """Decode an object, or log its name and its wrong field and return ``None``."""
    try:
        return decode(bytes(raw), kind)
    except Undecodable as error:
        try:
            metadata = _PARTIAL.decode(raw).metadata
            name = f"{metadata.namespace}/{metadata.name}"
        except UNREADABLE:
            name = "an object without metadata"
        log.warning("Left out %s: %s", name, error.message)
        return None


class LineSplitter:
    """Splits bytes into lines, however they are chunked."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete, without line ends."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        return [line for line in lines if line]


async def watch_lines(
    chunks: AsyncGenerator[bytes], silent_seconds: float = SILENT_SECONDS
) -> AsyncGenerator[list[bytes]]:
    """The complete lines of a watch, in batches as they arrive.

    Raises ``Unavailable`` when the server sends nothing, not even bookmarks, for so long.
    """
    lines = LineSplitter()
    async with aclosing(chunks):
        while True:
            try:
                async with asyncio.timeout(silent_seconds):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                text = f"silent for {silent_seconds:g} s"
                raise Unavailable(0, "Silent", text) from None
            if chunk is None:
                return
            yield lines.feed(chunk)


class Seen(Enum):
    """The effect of an event on a store."""

    THERE = "there"
    GONE = "gone"
    NOTHING = "nothing"


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """An event of a watch.

    Attributes:
        seen: ``NOTHING`` for a bookmark, which only moves the version.
        identity: of the object; its version is where a watch may go on from.
        found: the object; ``None`` at a bookmark, and when it is not of the type asked for, which
            counts as gone.
    """

    seen: Seen
    identity: ObjectVersion
    found: T | None = None


class _Typed(msgspec.Struct, Generic[T], frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class RawEvent(msgspec.Struct, frozen=True):
    """An event with its object still encoded."""

    type: str
    object: msgspec.Raw


_RAW_EVENT: Final = msgspec.json.Decoder(RawEvent)
_STATUS: Final = msgspec.json.Decoder(Status)


def raw_event(line: bytes) -> RawEvent:
    """Decode an event of a watch. Raises the error that the server sends in an ``ERROR`` event."""
    event = _RAW_EVENT.decode(line)
    if event.type == "ERROR":
        raise from_status(_STATUS.decode(event.object))
    return event


class EventReader(Generic[T]):
    """Reads the lines of a watch for objects of one type."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._identity = identity_of(kind)
        typed: Any = _Typed
        item = dict[str, Any] if kind is dict else kind
        self._decoder: msgspec.json.Decoder[_Typed[T]] = msgspec.json.Decoder(typed[item])

    def read(self, line: bytes) -> WatchEvent[T]:
        """Decode an event.

        Raises the error that the server sends in an ``ERROR`` event, ``Gone`` among them, and
        ``Undecodable`` for what is no event.
        """
        try:
            event = self._decoder.decode(line)
        except UNREADABLE:
            return self._read_other(line)
        seen = Seen.GONE if event.type == "DELETED" else Seen.THERE
        return WatchEvent(seen, self._identity(event.object), event.object)

    def _read_other(self, line: bytes) -> WatchEvent[T]:
        try:
            event = raw_event(line)
            metadata = _PARTIAL.decode(event.object).metadata
        except UNREADABLE as error:
            raise Undecodable(0, "Undecodable", f"event of a watch: {error}") from error
        identity = ObjectVersion(metadata.uid, metadata.resource_version)
        if event.type == "BOOKMARK":
            return WatchEvent(Seen.NOTHING, identity)
        decode_or_log(event.object, self._kind)
        return WatchEvent(Seen.GONE, identity)
