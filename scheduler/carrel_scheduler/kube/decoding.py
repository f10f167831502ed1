"""JSON of the API server into the types that callers ask for; unknown fields are skipped.

A decoder is built once for each type. An object of a list that is not of its type does not spoil
the others: whoever may write custom resources could else blind all readers.
"""

import logging
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from carrel_scheduler.kube.errors import UNREADABLE, Undecodable
from carrel_scheduler.kube.metadata import PartialObject

log = logging.getLogger(__name__)
T = TypeVar("T")


class ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of a list; ``continue_token`` leads to its next page, empty at the last."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T]):
    """One page of a list."""

    metadata: ListMetadata
    items: list[T] | None = None


_RAW_PAGE: Final = msgspec.json.Decoder(Page[msgspec.Raw])
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
        _page_decoders[kind] = msgspec.json.Decoder(cast("Any", Page)[item])
    return _page_decoders[kind]


def decode(body: bytes, kind: type[T]) -> T:
    """One object. Raises ``Undecodable``."""
    try:
        found: T = decoder(kind).decode(body)
    except UNREADABLE as error:
        raise Undecodable(0, "Undecodable", f"{kind.__name__}: {error}") from error
    return found


def decode_page(body: bytes, kind: type[T]) -> Page[T]:
    """A page; objects that are not of the type are told to the log and left out.

    Raises ``Undecodable`` when it is no list at all.
    """
    try:
        page: Page[T] = _page_decoder(kind).decode(body)
    except msgspec.ValidationError:
        return _one_by_one(body, kind)
    except UNREADABLE as error:
        raise Undecodable(0, "Undecodable", f"list of {kind.__name__}: {error}") from error
    return page


def _one_by_one(body: bytes, kind: type[T]) -> Page[T]:
    try:
        page = _RAW_PAGE.decode(body)
    except UNREADABLE as error:
        raise Undecodable(0, "Undecodable", f"list of {kind.__name__}: {error}") from error
    items = [found for raw in page.items or () if (found := decode_or_tell(raw, kind)) is not None]
    return Page(page.metadata, items)


def decode_or_tell(raw: msgspec.Raw, kind: type[T]) -> T | None:
    """One object, or ``None`` and a line in the log that names it and its wrong field."""
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
