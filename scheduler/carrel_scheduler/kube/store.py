"""The objects as last seen, and what a newer sight of them changes. Pure.

Events and whole listings go through the same comparison, so a listing after an interruption tells
exactly what happened meanwhile: nothing is missed, nothing is told twice.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from carrel_scheduler.kube.changes import Change, ChangeKind
from carrel_scheduler.kube.metadata import identity_of

T = TypeVar("T")
Told = tuple[str, Change[T]]
"""The uid of an object with what happened to it."""


class Store(Generic[T]):
    """Objects of one type by uid."""

    def __init__(self, kind: type[T]) -> None:
        self._identity = identity_of(kind)
        self._objects: dict[str, T] = {}

    @property
    def objects(self) -> Mapping[str, T]:
        """By uid; changes as time goes on."""
        return self._objects

    def put(self, found: T) -> Told[T] | None:
        """An object is there, as ``found``; ``None`` if that is known."""
        uid, version = self._identity(found)
        known = self._objects.get(uid)
        if known is None:
            self._objects[uid] = found
            return uid, Change(ChangeKind.ADDED, found)
        if self._identity(known).version == version:
            return None
        self._objects[uid] = found
        return uid, Change(ChangeKind.MODIFIED, found)

    def remove(self, uid: str, last: T | None = None) -> Told[T] | None:
        """An object is gone; ``last`` is what it was in the end, if that is known."""
        known = self._objects.pop(uid, None)
        if known is None:
            return None
        return uid, Change(ChangeKind.DELETED, known if last is None else last)

    def replace(self, listed: Iterable[T]) -> list[Told[T]]:
        """Everything that is there now: what is gone first, so that its room is free for others."""
        there: dict[str, Any] = {self._identity(found).uid: found for found in listed}
        gone = [uid for uid in self._objects if uid not in there]
        told = [self.remove(uid) for uid in gone]
        told += [self.put(found) for found in there.values()]
        return [one for one in told if one is not None]
