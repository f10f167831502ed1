"""The metadata of every object of the API, whichever type a caller decodes it into.

A caller's type needs no base class: anything whose ``metadata`` has these names will do, and so
will a plain ``dict``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """The owner of an object, with which it is deleted."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The fields of ``metadata`` that Carrel uses."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class PartialObject(msgspec.Struct, frozen=True):
    """An object of any kind, with its metadata only."""

    metadata: Metadata


class HasIdentity(Protocol):
    """The part of a caller's metadata that the client itself reads."""

    @property
    def uid(self) -> str:
        """Identifies this object; a later one of the same name has another."""
        ...

    @property
    def resource_version(self) -> str:
        """The version of the object, which differs after each change."""
        ...


class ObjectVersion(NamedTuple):
    """The identity and version of an object."""

    uid: str
    version: str


def identity_of(kind: type[Any]) -> Callable[[Any], ObjectVersion]:
    """A function that reads the identity of objects of a type."""
    return _of_dict if kind is dict else _of_struct


def _of_struct(found: Any) -> ObjectVersion:
    metadata: HasIdentity = found.metadata
    return ObjectVersion(metadata.uid, metadata.resource_version)


def _of_dict(found: dict[str, Any]) -> ObjectVersion:
    metadata = found["metadata"]
    return ObjectVersion(metadata["uid"], metadata["resourceVersion"])
