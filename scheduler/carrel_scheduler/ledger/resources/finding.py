"""Finding objects among custom resources: by name, by uid, in lists.

The API server itself is asked, so each read sees what was written before. It cannot be asked by
uid, nor for a name among several kinds: where an object was last seen is looked at first. Such a
note may be out of date; whoever follows one looks whether the object is still the same.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.errors import LedgerClosed
from carrel_scheduler.ledger.resources import codec, kinds, listing
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_scheduler.ledger.resources.refusing import refusals
from carrel_scheduler.ledger.rows.objects import full_name
from carrel_scheduler.ledger.store import ObjectNotFound, Page
from carrel_scheduler.quarantine import Quarantine
from carrel_schema import names
from carrel_schema.objects import Meta, Object, ObjectT, Workload

MOST: Final = 100_000


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """The resource and namespace of an object."""

    resource: Resource
    namespace: str
    name: str


class KnownPlaces:
    """Places by uid, and uids by project and name; the oldest notes go first."""

    def __init__(self) -> None:
        self._places: dict[str, ObjectPlace] = {}
        self._named: dict[tuple[str, str, str], str] = {}

    def note(self, obj: Object) -> None:
        """Record one object as seen."""
        uid = obj.meta.uid
        self._places.pop(uid, None)
        self._places[uid] = ObjectPlace(
            codec.resource_of(obj), codec.namespace_of(obj), obj.meta.name
        )
        self._named[_key(type(obj), obj.meta)] = uid
        while len(self._places) > MOST:
            oldest = next(iter(self._places))
            del self._places[oldest]
            self._named = {key: uid for key, uid in self._named.items() if uid != oldest}

    def note_all(self, objects: Iterable[Object]) -> None:
        """Record objects as seen."""
        for obj in objects:
            self.note(obj)

    def forget(self, obj: Object) -> None:
        """Forget a deleted object."""
        self._places.pop(obj.meta.uid, None)
        key = _key(type(obj), obj.meta)
        if self._named.get(key) == obj.meta.uid:
            del self._named[key]

    def place(self, uid: str) -> ObjectPlace | None:
        """The last known place of the object with this uid."""
        return self._places.get(uid)

    def named(self, kind: type[Object], name: str, project: str) -> ObjectPlace | None:
        """The last known place of the object with this name."""
        uid = self._named.get((kind.__name__, project, name))
        return None if uid is None else self._places.get(uid)


def _key(kind: type[Object], meta: Meta) -> tuple[str, str, str]:
    return (kind.__name__, meta.project, meta.name)


class Finder:
    """The reading half of the store; ``quarantine``: where objects go that cannot be read."""

    def __init__(self, client: KubeClient, quarantine: Quarantine) -> None:
        self.client, self.quarantine = client, quarantine
        self.known = KnownPlaces()
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerClosed("the store was closed")

    async def get(self, kind: type[ObjectT], name: str, project: str = "") -> ObjectT:
        """See ``ObjectStore``. Of several kinds of work with one name the oldest is meant."""
        self._check_open()
        place = self.known.named(kind, name, project)
        found = None if place is None else await self._at(kind, place)
        if found is not None and found.meta.uid:
            return found
        namespace = names.namespace_of(project) if kind is Workload else ""
        places = [ObjectPlace(one, namespace, name) for one in kinds.resources_of(kind)]
        there = await asyncio.gather(*(self._at(kind, one) for one in places))
        candidates = [one for one in there if one is not None]
        if not candidates:
            raise ObjectNotFound(f"no {kind.__name__} {full_name(project, name)}")
        return min(candidates, key=lambda one: (one.meta.created_at, one.meta.uid))

    async def get_by_uid(self, kind: type[ObjectT], uid: str) -> ObjectT:
        """See ``ObjectStore``."""
        self._check_open()
        place = self.known.place(uid)
        found = None
        if place is not None and place.resource in kinds.resources_of(kind):
            found = await self._at(kind, place)
        if found is None or found.meta.uid != uid:
            found = await self._search(kind, uid)
        if found is None:
            raise ObjectNotFound(f"no {kind.__name__} with uid {uid!r}")
        return found

    async def _search(self, kind: type[ObjectT], uid: str) -> ObjectT | None:
        if not codec.is_label_value(uid):
            return None
        selector = f"{names.UID}={uid}"
        resources = kinds.resources_of(kind)
        with refusals():
            listings = await asyncio.gather(
                *(
                    self.client.list(one, StoredResource, label_selector=selector)
                    for one in resources
                )
            )
        for resource, found in zip(resources, listings, strict=True):
            for stored in found.items:
                return self._read(kind, ObjectPlace(resource, "", ""), stored)
        return None

    async def _at(self, kind: type[ObjectT], place: ObjectPlace) -> ObjectT | None:
        """The object at this name, if Carrel manages it."""
        try:
            with refusals():
                stored = await self.client.get(
                    place.resource, place.name, place.namespace, StoredResource
                )
        except ObjectNotFound:
            return None
        return self._read(kind, place, stored) if names.UID in stored.metadata.labels else None

    def _read(self, kind: type[ObjectT], place: ObjectPlace, stored: StoredResource) -> ObjectT:
        stored.kind = place.resource.kind
        obj = codec.read(kind, stored)
        self.known.note(obj)
        return obj

    async def list(
        self,
        kind: type[ObjectT],
        *,
        projects: Sequence[str] | None = None,
        phases: Sequence[str] | None = None,
        user: str | None = None,
        workload_kind: str | None = None,
        without_kinds: Sequence[str] = (),
        labels: dict[str, str] | None = None,
        search: str = "",
        newest_first: bool = False,
        limit: int | None = None,
        after: str = "",
    ) -> Page[ObjectT]:
        """See ``ObjectStore``."""
        self._check_open()
        listing.page([], 0, limit, after)
        namespace = names.namespace_of(projects[0]) if projects and len(projects) == 1 else ""
        resources = [
            one
            for one in kinds.resources_of(kind)
            if kind is not Workload or _may_hold(one.kind, workload_kind, without_kinds)
        ] or list(kinds.resources_of(kind))
        with refusals():
            stored, version = await listing.everything(
                self.client, resources, namespace if kind is Workload else ""
            )
        read = [listing.readable(kind, at, one, self.quarantine) for at, one in stored]
        found = [obj for obj in read if obj is not None]
        self.known.note_all(found)
        wanted = listing.filtered(
            projects=projects,
            phases=phases,
            user=user,
            workload_kind=workload_kind,
            without_kinds=without_kinds,
            labels=labels,
            search=search,
        )
        matching = [obj for obj in found if wanted(obj)]
        return listing.page(matching, version, limit, after, newest_first=newest_first)


def _may_hold(kind: str, workload_kind: str | None, without: Sequence[str]) -> bool:
    work = kinds.BY_KIND[kind]
    return work not in without and workload_kind in (None, work)
