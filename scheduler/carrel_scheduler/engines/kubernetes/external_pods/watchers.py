"""Watches that feed the reconciler with external pods, and how they are wired with the executor.

Pods and nodes become events. Namespaces, claims, volumes and classes decide only where pods may
run: they become constraints at once, between the passes of the reconciler, which shares this
thread and is woken, so that pods that waited for them are evaluated again. A pod whose owners
cannot be read at the moment is read again later; what it uses is counted at once, if it has a node.

Start once the reconciler has recovered its workloads: until everything that exists has been
reported and the reconciler has handled ``AllReconciled``, no external pod is placed.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.conditions import GroupStatuses
from carrel_scheduler.engines.kubernetes.external_pods.executor import ExecutorLimits, PodExecutor
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    AllReconciled,
    ExternalEvent,
    ExternalPodSeen,
    NodeDeleted,
    NodeGroupDeleted,
    NodeGroupSeen,
    NodeSeen,
    TopologyDeleted,
    TopologySeen,
    UnmanagedPodSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.reading import (
    KnownProjects,
    OwnerLookup,
    PodReader,
)
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.external_pods.scheduling_group_status import (
    SchedulingGroupStatuses,
)
from carrel_scheduler.engines.kubernetes.external_pods.usage import close_left_open
from carrel_scheduler.engines.kubernetes.external_pods.workload_pods import DisruptionAnnouncer
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from carrel_scheduler.engines.kubernetes.pods.grouping import Grouper, OwnerReader
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import PlacementConstraints
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import Volumes
from carrel_scheduler.engines.kubernetes.pods.storage_types import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from carrel_scheduler.engines.kubernetes.pods.types import (
    Namespace,
    Node,
    NodeGroup,
    Pod,
    PodGroup,
    Topology,
)
from carrel_scheduler.engines.kubernetes.provisioning.writing import RequestWriter
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import GpuReservations
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError, NotFound
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import ChangeKind, WatchChange
from carrel_scheduler.kube.resources import (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.resources.kinds import NODE_GROUP, POD_GROUP, TOPOLOGY
from carrel_scheduler.quarantine import Quarantine

T = TypeVar(
    "T",
    Namespace,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    DeviceClass,
    ResourceSlice,
    ResourceClaim,
)


@dataclass(frozen=True, slots=True)
class StorageFeeds:
    """The feeds of volumes, claims and storage classes."""

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


@dataclass(frozen=True, slots=True)
class DeviceFeeds:
    """The watches for dynamic resource allocation."""

    classes: Feed[DeviceClass]
    slices: Feed[ResourceSlice]
    claims: Feed[ResourceClaim]

    @classmethod
    def of(cls, client: KubeClient) -> "DeviceFeeds":
        """New feeds of the whole cluster."""
        return cls(
            Feed(client, DEVICE_CLASSES, DeviceClass),
            Feed(client, RESOURCE_SLICES, ResourceSlice),
            Feed(client, RESOURCE_CLAIMS, ResourceClaim),
        )

    async def close(self) -> None:
        """Stop watching."""
        await asyncio.gather(self.classes.close(), self.slices.close(), self.claims.close())


async def has_device_claims(client: KubeClient) -> bool:
    """Whether the cluster has dynamic resource allocation (from 1.34 on)."""
    try:
        await client.raw("GET", f"/apis/{DEVICE_CLASSES.api_version}")
    except NotFound:
        return False
    return True


class PlacementWatcher:
    """Carries changes into ``places``.

    Args:
        places: asked by the loop.
        namespaces, storage, devices: what is watched.
        wake: makes the loop current.
    """

    def __init__(
        self,
        places: PlacementConstraints,
        namespaces: Feed[Namespace],
        storage: StorageFeeds,
        devices: DeviceFeeds,
        wake: Callable[[], None],
        quarantine: Quarantine,
    ) -> None:
        self._quarantine = quarantine
        self._places, self._namespaces, self._storage = places, namespaces, storage
        self._wake, self._devices = wake, devices
        self._volumes = Volumes()
        self._unsynced = 0
        self._synced = asyncio.Event()
        places.volumes = self._volumes

    async def synced(self) -> None:
        """Wait until the initial lists are complete."""
        await self._synced.wait()

    async def run(self, *, devices: bool) -> None:
        """Watch until cancelled; ``devices``: the cluster has claims for devices."""
        watches = (*self._watches(), *(self._watches_of_devices() if devices else ()))
        self._unsynced = len(watches)
        async with asyncio.TaskGroup() as group:
            for watch in watches:
                group.create_task(watch)

    def _watches(self) -> tuple[Coroutine[None, None, None], ...]:
        places, volumes, storage = self._places, self._volumes, self._storage
        return (
            self._watch(
                self._namespaces,
                places.set_namespace,
                lambda one: places.drop_namespace(one.metadata.name),
            ),
            self._watch(
                storage.claims,
                volumes.set_claim,
                lambda one: volumes.drop_claim(one.metadata.namespace, one.metadata.name),
            ),
            self._watch(
                storage.volumes,
                volumes.set_volume,
                lambda one: volumes.drop_volume(one.metadata.name),
            ),
            self._watch(
                storage.classes,
                volumes.set_class,
                lambda one: volumes.drop_class(one.metadata.name),
            ),
        )

    def _watches_of_devices(self) -> tuple[Coroutine[None, None, None], ...]:
        claims, feeds = self._places.devices, self._devices
        slices = claims.inventory
        return (
            self._watch(feeds.classes, claims.set_class, claims.drop_class),
            self._watch(feeds.slices, slices.set_slice, slices.drop_slice),
            self._watch(feeds.claims, claims.set_claim, claims.drop_claim),
        )

    async def _watch(
        self, feed: Feed[T], see: Callable[[T], None], lose: Callable[[T], None]
    ) -> None:
        subscription = feed.subscribe()
        while changes := await subscription.batch():
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
ObjectT = TypeVar("ObjectT", Node, NodeGroup, Topology)


async def watch_nodes(feed: Feed[Node], deliver: Deliver, synced: asyncio.Event) -> None:
    """Deliver nodes and their changes; ``synced`` is set once those that exist were delivered."""
    await _watch(feed, deliver, synced, NodeSeen, lambda node: NodeDeleted(node.metadata.name))


async def watch_groups(feed: Feed[NodeGroup], deliver: Deliver, synced: asyncio.Event) -> None:
    """Deliver node groups and their changes; ``synced`` as for nodes."""
    await _watch(
        feed, deliver, synced, NodeGroupSeen, lambda group: NodeGroupDeleted(group.metadata.name)
    )


async def watch_topologies(feed: Feed[Topology], deliver: Deliver, synced: asyncio.Event) -> None:
    """Deliver topologies and their changes; ``synced`` as for nodes."""
    await _watch(
        feed, deliver, synced, TopologySeen, lambda one: TopologyDeleted(one.metadata.name)
    )


async def _watch(
    feed: Feed[ObjectT],
    deliver: Deliver,
    synced: asyncio.Event,
    seen: Callable[[ObjectT], ExternalEvent],
    left: Callable[[ObjectT], ExternalEvent],
) -> None:
    subscription = feed.subscribe()
    while changes := await subscription.batch():
        objects = [change for change in changes if change.kind is not ChangeKind.SYNCED]
        news = [
            (left if change.kind is ChangeKind.DELETED else seen)(change.object)
            for change in objects
        ]
        deliver(ExternalEvents(tuple(news)))
        if len(objects) < len(changes):
            synced.set()


async def watch_pods(
    feed: Feed[Pod],
    reader: PodReader,
    deliver: Deliver,
    synced: asyncio.Event,
    quarantine: Quarantine,
) -> None:
    """Deliver pods and their changes; ``synced`` is set once those that exist were delivered.

    A pod that cannot be read counts as unmanaged until it changes; one whose group does not exist
    yet is read again until it does.
    """
    subscription = feed.subscribe()
    unread: dict[str, Pod] = {}
    while True:
        try:
            async with asyncio.timeout(AGAIN_SECONDS if unread else None):
                changes = await subscription.batch()
        except TimeoutError:
            changes = [WatchChange(ChangeKind.MODIFIED, pod) for pod in unread.values()]
        if not changes:
            return
        news = await _read(reader, changes, unread, quarantine)
        if news:
            deliver(ExternalEvents(tuple(news)))
        if any(change.kind is ChangeKind.SYNCED for change in changes):
            synced.set()


async def _read(
    reader: PodReader,
    changes: Sequence[WatchChange[Pod]],
    unread: dict[str, Pod],
    quarantine: Quarantine,
) -> list[ExternalEvent]:
    """Read the pods again; ``unread`` keeps those that still have to be read."""
    news: list[ExternalEvent] = []
    for change in changes:
        if change.kind is ChangeKind.SYNCED:
            continue
        pod = change.object
        again = unread.pop(pod.metadata.uid, None) is pod
        if change.kind is ChangeKind.DELETED:
            news.append(reader.gone(pod))
            continue
        try:
            seen = await reader.seen(pod)
            awaits_group = isinstance(seen, ExternalPodSeen) and seen.pod.awaits_group
            if awaits_group:
                unread[pod.metadata.uid] = pod
            if not (awaits_group and again):
                news.append(seen)
        except KubeError as error:
            log.warning("the owner of pod %s is not known yet: %s", pod.metadata.name, error)
            unread[pod.metadata.uid] = pod
            if pod.spec.node_name:
                news.append(UnmanagedPodSeen(pod))
        except Exception as error:  # noqa: BLE001 - one pod holds up no other
            quarantine.put("pod", pod.metadata.uid, error)
            if pod.spec.node_name:
                news.append(UnmanagedPodSeen(pod))
    return news


@dataclass(frozen=True, slots=True)
class Feeds:
    """The watches; shared with other parts that watch the same objects."""

    pods: Feed[Pod]
    nodes: Feed[Node]
    namespaces: Feed[Namespace]
    storage: StorageFeeds
    devices: DeviceFeeds
    groups: Feed[NodeGroup] | None = None
    pod_groups: Feed[PodGroup] | None = None
    topologies: Feed[Topology] | None = None

    @classmethod
    def of(cls, client: KubeClient, *, ours: bool = False) -> "Feeds":
        """New watches of the whole cluster; ``ours``: Carrel's resource kinds are installed."""
        return cls(
            Feed(client, PODS, Pod),
            Feed(client, NODES, Node),
            Feed(client, NAMESPACES, Namespace),
            StorageFeeds.of(client),
            DeviceFeeds.of(client),
            Feed(client, NODE_GROUP.resource, NodeGroup) if ours else None,
            Feed(client, POD_GROUP.resource, PodGroup) if ours else None,
            Feed(client, TOPOLOGY.resource, Topology) if ours else None,
        )

    async def close(self) -> None:
        """Stop watching."""
        await asyncio.gather(
            self.pods.close(),
            self.nodes.close(),
            self.namespaces.close(),
            self.storage.close(),
            self.devices.close(),
        )
        for feed in (self.groups, self.pod_groups, self.topologies):
            if feed is not None:
                await feed.close()


class ExternalPodRunner:
    """See the module.

    Args:
        client: of the API server; ``feeds`` made of it.
        pods: of the reconciler.
        ledger: has their history.
        deliver: delivers events to the reconciler.
        projects: by name, as the reconciler knows them.
        epoch: of this scheduler's leadership.
        instance: the name of this process.
        now: epoch seconds.
        limits: how much at once.
        gpus: holds the GPUs that pods share.
        instances: makes MIG instances.
    """

    def __init__(
        self,
        client: KubeClient,
        feeds: Feeds,
        pods: ExternalPodReconciler,
        ledger: Ledger,
        deliver: Callable[[ExternalEvents], None],
        projects: Mapping[str, Any],
        *,
        epoch: int,
        instance: str,
        now: Callable[[], float],
        limits: ExecutorLimits = ExecutorLimits(),  # noqa: B008 - frozen
        gpus: GpuReservations | None = None,
        instances: MigInstances | None = None,
    ) -> None:
        self._client, self._feeds, self._pods, self._now = client, feeds, pods, now
        self._ledger, self._deliver = ledger, deliver
        known = KnownProjects(projects, lambda: feeds.namespaces.objects)
        self.reader = PodReader(Grouper(OwnerReader(OwnerLookup(client)), known))
        self.executor = PodExecutor(
            client,
            ledger,
            deliver,
            now=now,
            instance=instance,
            limits=limits,
            gpus=gpus,
            instances=instances,
            scales_up=not pods.asks_for_nodes,
        )
        self.executor.epoch = epoch
        pods.current.execute = self.executor
        self.announcer = DisruptionAnnouncer(client, pods.current.task_pods, now, instance)
        self._circumstances = PlacementWatcher(
            pods.current.places,
            feeds.namespaces,
            feeds.storage,
            feeds.devices,
            lambda: deliver(ExternalEvents(())),
            pods.current.quarantine,
        )

    async def run(self, began: asyncio.Event, ledger_epoch: int) -> None:
        """Watch and act until cancelled; ``began`` is set once the reconciler may run."""
        await self._feeds.namespaces.synced()
        devices = await has_device_claims(self._client)
        groups, nodes, pods = asyncio.Event(), asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._circumstances.run(devices=devices))
            await self._circumstances.synced()
            if self._feeds.groups is not None:
                group.create_task(watch_groups(self._feeds.groups, self._deliver, groups))
                await groups.wait()
            if self._feeds.topologies is not None:
                levels = asyncio.Event()
                group.create_task(watch_topologies(self._feeds.topologies, self._deliver, levels))
                await levels.wait()
            group.create_task(watch_nodes(self._feeds.nodes, self._deliver, nodes))
            await nodes.wait()
            group.create_task(
                watch_pods(
                    self._feeds.pods,
                    self.reader,
                    self._deliver,
                    pods,
                    self._pods.current.quarantine,
                )
            )
            await pods.wait()
            await close_left_open(self._ledger, epoch=ledger_epoch, now=self._now())
            self._deliver(ExternalEvents((AllReconciled(),)))
            began.set()
            group.create_task(self.executor.run())
            groups_of_kubernetes = SchedulingGroupStatuses(
                self._client, self._pods.current, self._now
            )
            group.create_task(groups_of_kubernetes.run())
            if self._pods.asks_for_nodes:
                group.create_task(self._ask_for_nodes())
            if self._feeds.groups is not None and self._feeds.pod_groups is not None:
                statuses = self._statuses(self._feeds.pod_groups, self._feeds.groups)
                group.create_task(statuses.run())

    async def _ask_for_nodes(self) -> None:
        """Follow requests for nodes, and carry out what is ordered about them."""
        writer = RequestWriter(self._client, self._pods.provisioning, self._deliver)
        self._pods.send_request = writer.put
        async with writer.feed() as feed, asyncio.TaskGroup() as group:
            group.create_task(writer.watch(feed))
            group.create_task(writer.run())

    def _statuses(self, pods: Feed[PodGroup], nodes: Feed[NodeGroup]) -> GroupStatuses:
        return GroupStatuses(self._client, self._pods.current, pods, nodes, self._now)
