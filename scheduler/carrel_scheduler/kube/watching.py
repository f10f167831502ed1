"""The bytes of a watch into events. Pure.

Events are lines. A connection may end within one: what has no line end was never said, and the
watch goes on behind the last event that was said whole.
"""

from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from carrel_scheduler.kube.decoding import decode_or_tell
from carrel_scheduler.kube.errors import UNREADABLE, Status, Undecodable, from_status
from carrel_scheduler.kube.metadata import Identity, PartialObject, identity_of

T = TypeVar("T")


class Lines:
    """Cuts bytes into lines, whichever way they come."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole by now, without their ends."""
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        return [line for line in lines if line]


class Seen(Enum):
    """What an event means for a store."""

    THERE = "there"
    GONE = "gone"
    NOTHING = "nothing"


class Event(msgspec.Struct, Generic[T], frozen=True):
    """One event.

    Attributes:
        seen: ``NOTHING`` for a bookmark, which only moves the version.
        identity: of the object; its version is where a watch may go on from.
        found: the object; ``None`` at a bookmark, and when it is not of the type asked for, which
            counts as gone.
    """

    seen: Seen
    identity: Identity
    found: T | None = None


class _Typed(msgspec.Struct, Generic[T], frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


class _Untyped(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_UNTYPED: Final = msgspec.json.Decoder(_Untyped)
_PARTIAL: Final = msgspec.json.Decoder(PartialObject)
_STATUS: Final = msgspec.json.Decoder(Status)


class EventReader(Generic[T]):
    """Reads the lines of a watch for objects of one type."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._identity = identity_of(kind)
        typed: Any = _Typed
        item = dict[str, Any] if kind is dict else kind
        self._decoder: msgspec.json.Decoder[_Typed[T]] = msgspec.json.Decoder(typed[item])

    def read(self, line: bytes) -> Event[T]:
        """One event.

        Raises the error that the server tells in an ``ERROR`` event, ``Gone`` among them, and
        ``Undecodable`` for what is no event.
        """
        try:
            event = self._decoder.decode(line)
        except UNREADABLE:
            return self._read_other(line)
        seen = Seen.GONE if event.type == "DELETED" else Seen.THERE
        return Event(seen, self._identity(event.object), event.object)

    def _read_other(self, line: bytes) -> Event[T]:
        try:
            event = _UNTYPED.decode(line)
            if event.type == "ERROR":
                raise from_status(_STATUS.decode(event.object))
            metadata = _PARTIAL.decode(event.object).metadata
        except UNREADABLE as error:
            raise Undecodable(0, "Undecodable", f"event of a watch: {error}") from error
        identity = Identity(metadata.uid, metadata.resource_version)
        if event.type == "BOOKMARK":
            return Event(Seen.NOTHING, identity)
        decode_or_tell(event.object, self._kind)
        return Event(Seen.GONE, identity)
