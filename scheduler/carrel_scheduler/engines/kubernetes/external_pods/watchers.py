"""Watches that feed the reconciler: pods, nodes, node groups, namespaces and volumes.

Pods and nodes become events. Namespaces, claims, volumes and classes decide only where pods may
run: they become constraints at once, between the passes of the loop, which shares this thread;
the loop is woken, so that pods that waited for them are evaluated again. A pod whose owners can not
be read at the moment is read again later; what it uses is counted at once, if it has a node.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    ExternalEvent,
    NodeDeleted,
    NodeGroupDeleted,
    NodeGroupSeen,
    NodeSeen,
    UnmanagedPodSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.reading import Reader
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import Volumes
from carrel_scheduler.engines.kubernetes.pods.types import (
    Namespace,
    Node,
    NodeGroup,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
)
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import Change, ChangeKind
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


class PlacementWatcher:
    """Carries changes into ``places``.

    Args:
        places: asked by the loop.
        namespaces, storage: what is watched.
        wake: makes the loop current.
    """

    def __init__(
        self,
        places: PlacementConstraints,
        namespaces: Feed[Namespace],
        storage: StorageFeeds,
        wake: Callable[[], None],
        quarantine: Quarantine,
    ) -> None:
        self._quarantine = quarantine
        self._places, self._namespaces, self._storage = places, namespaces, storage
        self._wake = wake
        self._volumes = Volumes()
        self._unsynced = 0
        self._synced = asyncio.Event()
        places.volumes = self._volumes

    async def synced(self) -> None:
        """Wait until the initial lists are complete."""
        await self._synced.wait()

    async def run(self) -> None:
        """Watch for ever."""
        pumps = self._pumps()
        self._unsynced = len(pumps)
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
                    self._unsynced -= 1
                    continue
                meta = change.object.metadata
                with self._quarantine.guard("namespace", f"{meta.namespace}/{meta.name}"):
                    (lose if change.kind is ChangeKind.DELETED else see)(change.object)
            if not self._unsynced:
                self._synced.set()
            if self._places.version != before:
                self._wake()


log = logging.getLogger(__name__)
AGAIN_SECONDS: Final = 2.0
Deliver = Callable[[ExternalEvents], None]
ObjectT = TypeVar("ObjectT", Node, NodeGroup)


async def pump_nodes(feed: Feed[Node], tell: Deliver, synced: asyncio.Event) -> None:
    """Every node and each change; ``synced`` is set once those that are there were told."""
    await _pump(feed, tell, synced, NodeSeen, lambda node: NodeDeleted(node.metadata.name))


async def pump_groups(feed: Feed[NodeGroup], tell: Deliver, synced: asyncio.Event) -> None:
    """Every group of nodes and each change; ``synced`` as for nodes."""
    await _pump(
        feed, tell, synced, NodeGroupSeen, lambda group: NodeGroupDeleted(group.metadata.name)
    )


async def _pump(
    feed: Feed[ObjectT],
    tell: Deliver,
    synced: asyncio.Event,
    seen: Callable[[ObjectT], ExternalEvent],
    left: Callable[[ObjectT], ExternalEvent],
) -> None:
    heard = feed.subscribe()
    while changes := await heard.batch():
        told = [change for change in changes if change.kind is not ChangeKind.SYNCED]
        news = [
            (left if change.kind is ChangeKind.DELETED else seen)(change.object) for change in told
        ]
        tell(ExternalEvents(tuple(news)))
        if len(told) < len(changes):
            synced.set()


async def pump_pods(
    feed: Feed[Pod], reader: Reader, tell: Deliver, synced: asyncio.Event, quarantine: Quarantine
) -> None:
    """Every pod and each change; ``synced`` is set once those that are there were told.

    A pod that cannot be read counts as unmanaged until it changes.
    """
    heard = feed.subscribe()
    unread: dict[str, Pod] = {}
    while True:
        try:
            async with asyncio.timeout(AGAIN_SECONDS if unread else None):
                changes = await heard.batch()
        except TimeoutError:
            changes = [Change(ChangeKind.MODIFIED, pod) for pod in unread.values()]
        if not changes:
            return
        news = await _read(reader, changes, unread, quarantine)
        if news:
            tell(ExternalEvents(tuple(news)))
        if any(change.kind is ChangeKind.SYNCED for change in changes):
            synced.set()


async def _read(
    reader: Reader,
    changes: Sequence[Change[Pod]],
    unread: dict[str, Pod],
    quarantine: Quarantine,
) -> list[ExternalEvent]:
    """``unread`` is left with the pods that are to be read again."""
    news: list[ExternalEvent] = []
    for change in changes:
        if change.kind is ChangeKind.SYNCED:
            continue
        pod = change.object
        unread.pop(pod.metadata.uid, None)
        if change.kind is ChangeKind.DELETED:
            news.append(reader.gone(pod))
            continue
        try:
            news.append(await reader.seen(pod))
        except KubeError as error:
            log.warning("what pod %s belongs to is not known yet: %s", pod.metadata.name, error)
            unread[pod.metadata.uid] = pod
            if pod.spec.node_name:
                news.append(UnmanagedPodSeen(pod))
        except Exception as error:  # noqa: BLE001 - one pod holds up no other
            quarantine.put("pod", pod.metadata.uid, error)
            if pod.spec.node_name:
                news.append(UnmanagedPodSeen(pod))
    return news
