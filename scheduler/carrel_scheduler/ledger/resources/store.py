"""``ObjectStore`` on a Kubernetes cluster: the objects are custom resources.

Versions are those of the API server, which are one sequence for all kinds. Reads ask the API server
itself, so each sees what was written before. Names are unique by kind of work here; that they are
unique by project is the ledger's to see to, see ``ledger``.

An object is let go in two steps: it loses the mark by which it is one of ours, which is its end for
every reader and watch, and is then deleted. What stops between the two has been let go all the
same, and is deleted by whoever finds it.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from carrel_scheduler.kube import errors
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.columns.codec import encode, encode_status
from carrel_scheduler.ledger.errors import InvalidArgument, LedgerUnavailable
from carrel_scheduler.ledger.resources import changing, codec, kinds
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_scheduler.ledger.resources.finding import Finder, ObjectPlace
from carrel_scheduler.ledger.resources.refusing import Lost, refusals
from carrel_scheduler.ledger.resources.watching import ManyWatch
from carrel_scheduler.ledger.rows.objects import full_name
from carrel_scheduler.ledger.store import Change, ObjectExists, ObjectNotFound, VersionConflict
from carrel_scheduler.quarantine import Quarantine
from carrel_schema import names
from carrel_schema.objects import Object, ObjectT

NAMESPACE_TRIES: Final = 100
NAMESPACE_PAUSE_SECONDS: Final = 0.1
DELETE_TRIES: Final = 20
LOST_TRIES: Final = 60
LOST_PAUSE_SECONDS: Final = 0.5
log = logging.getLogger(__name__)


class KubernetesStore(Finder):
    """See the module. Belongs to the event loop in which it is created.

    Args:
        client: of the cluster.
        clock: epoch seconds, for ``created_at`` where it is not set.
        ids: new unique ids.
        pause: waits so many seconds.
        chance: jitter of pauses, in [0, 1).
        quarantine: where objects go that cannot be read.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        clock: Callable[[], float],
        ids: Callable[[], str],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__(client, quarantine or Quarantine(clock))
        self._clock, self._ids, self._pause, self._chance = clock, ids, pause, chance
        self._watches: list[ManyWatch[Any]] = []

    def named(self, obj: ObjectT) -> ObjectT:
        """A copy with uid and time; raises ``InvalidArgument`` for what cannot be stored."""
        made = encode(obj).decode()
        made.meta.uid = made.meta.uid or self._ids()
        made.meta.created_at = made.meta.created_at or self._clock()
        return made

    async def create(self, obj: ObjectT) -> ObjectT:
        """See ``ObjectStore``."""
        self._check_open()
        new = self.named(obj)
        if self.known.place(new.meta.uid) is not None:
            raise ObjectExists(f"a {type(obj).__name__} with uid {new.meta.uid!r} exists")
        with refusals(new):
            made = self._seen(type(obj), new, await self._post(new))
        if made.status != new.status:
            made.status = new.status
            return await self.update_status(made)
        return made

    async def _post(self, new: Object) -> StoredResource:
        """Create; the namespace of a new project may take a moment."""
        resource, namespace = codec.resource_of(new), codec.namespace_of(new)
        manifest = codec.manifest(new)
        for _ in range(NAMESPACE_TRIES):
            try:
                return await self.client.create(resource, manifest, namespace, StoredResource)
            except errors.AlreadyExists as error:
                there = await self.client.get(resource, new.meta.name, namespace, StoredResource)
                if error.retried and there.metadata.labels.get(names.UID) == new.meta.uid:
                    return there
                if names.GONE not in there.metadata.annotations:
                    raise
                await self._delete(ObjectPlace(resource, namespace, new.meta.name), there)
            except errors.NotFound:
                await self._pause(NAMESPACE_PAUSE_SECONDS)
        expected = f"one whose namespace {namespace} exists"
        raise InvalidArgument("project", new.meta.project, expected)

    async def update(self, obj: ObjectT) -> ObjectT:
        """See ``ObjectStore``."""
        self._check_open()
        wanted = encode(obj).decode()
        return await self._patched(wanted, msgspec.json.encode(changing.specification(wanted)), "")

    async def update_status(self, obj: ObjectT) -> ObjectT:
        """See ``ObjectStore``."""
        self._check_open()
        encode_status(obj)
        return await self._patched(obj, changing.status(obj), "status")

    async def _patched(
        self, obj: ObjectT, body: bytes, sub: str, *, marked: bool = True
    ) -> ObjectT:
        """The object after a patch of the version that it carries.

        When an answer is lost, what is there tells whether the patch was done. What is ``marked``
        already and is none of ours when another one was faster is gone; what is not may be there.
        """
        place, doubtful = self._place_of(obj), False
        for _ in range(LOST_TRIES):
            try:
                return await self._patch(obj, place, body, sub)
            except VersionConflict:
                there = await self._at(type(obj), place)
                if there is None and not marked:
                    raise
                if there is None or not _same(there, obj):
                    raise _gone(obj) from None
                if doubtful and _done(there, obj, sub):
                    return there
                raise
            except Lost as lost:
                log.info("It is not known whether a write was done: %s", lost)
                doubtful = True
                await self._pause(LOST_PAUSE_SECONDS)
        raise LedgerUnavailable(f"{type(obj).__name__} {obj.meta.name} could not be written")

    async def _patch(self, obj: ObjectT, place: ObjectPlace, body: bytes, sub: str) -> ObjectT:
        with refusals(obj):
            stored = await self.client.patch(
                place.resource,
                place.name,
                body,
                place.namespace,
                sub,
                PatchKind.JSON,
                type=StoredResource,
            )
        return self._seen(type(obj), obj, stored)

    def _place_of(self, obj: Object) -> ObjectPlace:
        known = self.known.place(obj.meta.uid)
        return known or ObjectPlace(codec.resource_of(obj), codec.namespace_of(obj), obj.meta.name)

    def _seen(self, kind: type[ObjectT], obj: Object, stored: StoredResource) -> ObjectT:
        place = ObjectPlace(codec.resource_of(obj), codec.namespace_of(obj), obj.meta.name)
        if stored.metadata.labels.get(names.UID) != obj.meta.uid:
            raise _gone(obj)
        return self._read(kind, place, stored)

    async def delete(
        self,
        kind: type[ObjectT],
        name: str,
        project: str = "",
        *,
        resource_version: int | None = None,
    ) -> ObjectT:
        """See ``ObjectStore``."""
        for _ in range(DELETE_TRIES):
            found = await self.get(kind, name, project)
            version = found.meta.resource_version
            if resource_version is not None and version != resource_version:
                raise VersionConflict(f"{kind.__name__} {name} is at version {version}")
            try:
                return await self.remove(found)
            except VersionConflict:
                if resource_version is not None:
                    raise
        raise VersionConflict(f"{kind.__name__} {full_name(project, name)} changes all the time")

    async def remove(self, obj: ObjectT) -> ObjectT:
        """Let go of an object in exactly the version that it carries; see ``delete``."""
        self._check_open()
        place = self._place_of(obj)
        body = changing.letting_go(obj.meta.resource_version)
        try:
            with refusals(obj):
                stored = await self.client.patch(
                    place.resource,
                    place.name,
                    body,
                    place.namespace,
                    how=PatchKind.JSON,
                    type=StoredResource,
                )
                await self._delete(place, stored)
        except (VersionConflict, InvalidArgument):
            if (there := await self._at(type(obj), place)) is None or not _same(there, obj):
                raise _gone(obj) from None
            raise
        self.known.forget(obj)
        gone = msgspec.structs.replace(obj.meta, resource_version=stored.version)
        return msgspec.structs.replace(obj, meta=gone)

    async def _delete(self, place: ObjectPlace, stored: StoredResource) -> None:
        try:
            await self.client.delete(
                place.resource, place.name, place.namespace, uid=stored.metadata.uid
            )
        except (errors.NotFound, errors.Conflict):
            return  # ended with its finalizer, or another object has the name by now

    async def mark(self, obj: ObjectT, annotations: Mapping[str, str]) -> ObjectT:
        """Adopt an object that somebody else created; raises as ``update`` does.

        ``annotations`` are those that it has.
        """
        self._check_open()
        wanted = encode(obj).decode()
        body = msgspec.json.encode(changing.taking_on(wanted, annotations))
        return await self._patched(wanted, body, "", marked=False)

    async def finish_deletion(self, resource: Resource, stored: StoredResource) -> None:
        """Delete an object whose finalizer was removed."""
        meta = stored.metadata
        with refusals():
            await self._delete(ObjectPlace(resource, meta.namespace, meta.name), stored)

    def watch(
        self, kind: type[ObjectT], version: int, *, statuses: bool = True
    ) -> AsyncIterator[Change[ObjectT]]:
        """See ``ObjectStore``. Begins at once; a cancelled ``anext`` may be called again."""
        self._check_open()
        resources = kinds.resources_of(kind)
        watch: ManyWatch[ObjectT] = ManyWatch(
            self.client,
            kind,
            resources,
            version,
            statuses=statuses,
            chance=self._chance,
            pause=self._pause,
            quarantine=self.quarantine,
        )
        self._watches.append(watch)
        return watch

    async def close(self) -> None:
        """End the watches. The caller closes the client."""
        self._closed = True
        watches, self._watches = self._watches, []
        for watch in watches:
            await watch.aclose()


def _done(there: Object, wanted: Object, sub: str) -> bool:
    """Whether the stored object equals the one that was to be written."""
    if sub:
        return there.status == wanted.status
    return there.spec == wanted.spec and there.meta.labels == wanted.meta.labels


def _same(one: Object, other: Object) -> bool:
    return one.meta.uid == other.meta.uid


def _gone(obj: Object) -> ObjectNotFound:
    return ObjectNotFound(f"no {type(obj).__name__} with uid {obj.meta.uid!r}")
