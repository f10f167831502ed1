"""Watches, reader and executor of external pods, wired.

Start once the reconciler has recovered its workloads: until everything that exists has been
reported and the reconciler has taken in ``Ready``, no external pod is placed.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes.external_pods.conditions import GroupStatuses
from carrel_scheduler.engines.kubernetes.external_pods.executor import Limits, PodExecutor
from carrel_scheduler.engines.kubernetes.external_pods.messages import Ready
from carrel_scheduler.engines.kubernetes.external_pods.reading import (
    KnownProjects,
    OwnerLookup,
    Reader,
)
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.external_pods.usage import close_left_open
from carrel_scheduler.engines.kubernetes.external_pods.watchers import (
    PlacementWatcher,
    StorageFeeds,
    pump_groups,
    pump_nodes,
    pump_pods,
)
from carrel_scheduler.engines.kubernetes.external_pods.workload_pods import DisruptionAnnouncer
from carrel_scheduler.engines.kubernetes.pods.grouping import Grouper, Owners
from carrel_scheduler.engines.kubernetes.pods.types import Namespace, Node, NodeGroup, Pod, PodGroup
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.resources import NAMESPACES, NODES, PODS
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.resources.kinds import NODE_GROUP, POD_GROUP


@dataclass(frozen=True, slots=True)
class Feeds:
    """What is watched; shared with whoever watches the same."""

    pods: Feed[Pod]
    nodes: Feed[Node]
    namespaces: Feed[Namespace]
    storage: StorageFeeds
    groups: Feed[NodeGroup] | None = None
    pod_groups: Feed[PodGroup] | None = None

    @classmethod
    def of(cls, client: KubeClient, *, ours: bool = False) -> "Feeds":
        """New feeds of the whole cluster; ``ours``: it knows our kinds."""
        return cls(
            Feed(client, PODS, Pod),
            Feed(client, NODES, Node),
            Feed(client, NAMESPACES, Namespace),
            StorageFeeds.of(client),
            Feed(client, NODE_GROUP.resource, NodeGroup) if ours else None,
            Feed(client, POD_GROUP.resource, PodGroup) if ours else None,
        )

    async def close(self) -> None:
        """Stop watching."""
        await asyncio.gather(
            self.pods.close(), self.nodes.close(), self.namespaces.close(), self.storage.close()
        )
        for feed in (self.groups, self.pod_groups):
            if feed is not None:
                await feed.close()


class ExternalPodRunner:
    """See the module.

    Args:
        client: of the API server; ``feeds`` made of it.
        pods: of the reconciler.
        ledger: has their history.
        tell: delivers events to the reconciler.
        projects: by name, as the reconciler knows them.
        epoch: of this scheduler's leadership.
        instance: the name of this process.
        now: epoch seconds.
        limits: how much at once.
    """

    def __init__(
        self,
        client: KubeClient,
        feeds: Feeds,
        pods: ExternalPodReconciler,
        ledger: Ledger,
        tell: Callable[[ExternalEvents], None],
        projects: Mapping[str, Any],
        *,
        epoch: int,
        instance: str,
        now: Callable[[], float],
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self._client, self._feeds, self._pods, self._now = client, feeds, pods, now
        self._ledger, self._tell = ledger, tell
        known = KnownProjects(projects, lambda: feeds.namespaces.objects)
        self.reader = Reader(Grouper(Owners(OwnerLookup(client)), known))
        self.executor = PodExecutor(client, ledger, tell, now=now, instance=instance, limits=limits)
        self.executor.epoch = epoch
        pods.current.execute = self.executor
        self.announcer = DisruptionAnnouncer(client, pods.current.task_pods, now, instance)
        self._circumstances = PlacementWatcher(
            pods.current.places,
            feeds.namespaces,
            feeds.storage,
            lambda: tell(ExternalEvents(())),
            pods.current.quarantine,
        )

    async def run(self, began: asyncio.Event, ledger_epoch: int) -> None:
        """Watch and act for ever; ``began`` is set once the loop may current."""
        await self._feeds.namespaces.synced()
        groups, nodes, pods = asyncio.Event(), asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._circumstances.run())
            await self._circumstances.synced()
            if self._feeds.groups is not None:
                group.create_task(pump_groups(self._feeds.groups, self._tell, groups))
                await groups.wait()
            group.create_task(pump_nodes(self._feeds.nodes, self._tell, nodes))
            await nodes.wait()
            group.create_task(
                pump_pods(
                    self._feeds.pods, self.reader, self._tell, pods, self._pods.current.quarantine
                )
            )
            await pods.wait()
            await close_left_open(self._ledger, epoch=ledger_epoch, now=self._now())
            self._tell(ExternalEvents((Ready(),)))
            began.set()
            group.create_task(self.executor.run())
            if self._feeds.groups is not None and self._feeds.pod_groups is not None:
                statuses = self._statuses(self._feeds.pod_groups, self._feeds.groups)
                group.create_task(statuses.run())

    def _statuses(self, pods: Feed[PodGroup], nodes: Feed[NodeGroup]) -> GroupStatuses:
        return GroupStatuses(self._client, self._pods.current, pods, nodes, self._now)
