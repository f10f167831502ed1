"""What decides where guests may run beside nodes and pods: namespaces, claims, volumes, classes.

They are heard of between the turns of the loop, which shares this thread, and asked in a turn; the
loop is woken, so that pods that waited for them are looked at again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeVar

from carrel_scheduler.engines.kubernetes.pods.placement.constraints import Places
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import Volumes
from carrel_scheduler.engines.kubernetes.pods.types import (
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import ChangeKind
from carrel_scheduler.kube.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from carrel_scheduler.quarantine import Quarantine

T = TypeVar("T", Namespace, PersistentVolumeClaim, PersistentVolume, StorageClass)


@dataclass(frozen=True, slots=True)
class StorageFeeds:
    """Everything about volumes."""

    claims: Feed[PersistentVolumeClaim]
    volumes: Feed[PersistentVolume]
    classes: Feed[StorageClass]

    @classmethod
    def of(cls, client: KubeClient) -> "StorageFeeds":
        """New feeds of the whole cluster."""
        return cls(
            Feed(client, PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
            Feed(client, PERSISTENT_VOLUMES, PersistentVolume),
            Feed(client, STORAGE_CLASSES, StorageClass),
        )

    async def close(self) -> None:
        """Stop watching."""
        await asyncio.gather(self.claims.close(), self.volumes.close(), self.classes.close())


class Circumstances:
    """Carries changes into ``places``.

    Args:
        places: asked by the loop.
        namespaces, storage: what is watched.
        wake: makes the loop turn.
    """

    def __init__(
        self,
        places: Places,
        namespaces: Feed[Namespace],
        storage: StorageFeeds,
        wake: Callable[[], None],
        quarantine: Quarantine,
    ) -> None:
        self._quarantine = quarantine
        self._places, self._namespaces, self._storage = places, namespaces, storage
        self._wake = wake
        self._volumes = Volumes()
        self._unheard = 0
        self._synced = asyncio.Event()
        places.volumes = self._volumes

    async def synced(self) -> None:
        """Return once everything that is there was heard of."""
        await self._synced.wait()

    async def run(self) -> None:
        """Watch for ever."""
        pumps = self._pumps()
        self._unheard = len(pumps)
        async with asyncio.TaskGroup() as group:
            for pump in pumps:
                group.create_task(pump)

    def _pumps(self) -> tuple[Coroutine[None, None, None], ...]:
        places, volumes, storage = self._places, self._volumes, self._storage
        return (
            self._pump(
                self._namespaces,
                places.set_namespace,
                lambda one: places.drop_namespace(one.metadata.name),
            ),
            self._pump(
                storage.claims,
                volumes.set_claim,
                lambda one: volumes.drop_claim(one.metadata.namespace, one.metadata.name),
            ),
            self._pump(
                storage.volumes,
                volumes.set_volume,
                lambda one: volumes.drop_volume(one.metadata.name),
            ),
            self._pump(
                storage.classes,
                volumes.set_class,
                lambda one: volumes.drop_class(one.metadata.name),
            ),
        )

    async def _pump(
        self, feed: Feed[T], see: Callable[[T], None], lose: Callable[[T], None]
    ) -> None:
        heard = feed.subscribe()
        while changes := await heard.batch():
            before = self._places.version
            for change in changes:
                if change.kind is ChangeKind.SYNCED:
                    self._unheard -= 1
                    continue
                meta = change.object.metadata
                with self._quarantine.guard("namespace", f"{meta.namespace}/{meta.name}"):
                    (lose if change.kind is ChangeKind.DELETED else see)(change.object)
            if not self._unheard:
                self._synced.set()
            if self._places.version != before:
                self._wake()
