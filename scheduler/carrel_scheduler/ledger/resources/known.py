"""Where objects were last seen: what the API server cannot be asked by uid, or by name alone.

A note may be out of date; whoever follows one looks whether the object is still the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.resources import codec
from carrel_schema.objects import Meta, Object

MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where an object lies."""

    resource: Resource
    namespace: str
    name: str


class Known:
    """Places by uid, and uids by project and name; the oldest notes go first."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._named: dict[tuple[str, str, str], str] = {}

    def note(self, obj: Object) -> None:
        """It was seen."""
        uid = obj.meta.uid
        self._places.pop(uid, None)
        self._places[uid] = Place(codec.resource_of(obj), codec.namespace_of(obj), obj.meta.name)
        self._named[_key(type(obj), obj.meta)] = uid
        while len(self._places) > MOST:
            oldest = next(iter(self._places))
            del self._places[oldest]
            self._named = {key: uid for key, uid in self._named.items() if uid != oldest}

    def note_all(self, objects: Iterable[Object]) -> None:
        """They were seen."""
        for obj in objects:
            self.note(obj)

    def forget(self, obj: Object) -> None:
        """It is gone."""
        self._places.pop(obj.meta.uid, None)
        key = _key(type(obj), obj.meta)
        if self._named.get(key) == obj.meta.uid:
            del self._named[key]

    def place(self, uid: str) -> Place | None:
        """Where the object of this uid was."""
        return self._places.get(uid)

    def named(self, kind: type[Object], name: str, project: str) -> Place | None:
        """Where the object of this name was."""
        uid = self._named.get((kind.__name__, project, name))
        return None if uid is None else self._places.get(uid)


def _key(kind: type[Object], meta: Meta) -> tuple[str, str, str]:
    return (kind.__name__, meta.project, meta.name)
