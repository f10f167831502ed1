"""All that a scheduler needs to place guests, wired: feeds, reader, hands.

Begin once the loop has recovered its own work: until everything that is there has been told and the
loop has heard ``Ready``, nothing of the guests is placed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from carrel_scheduler.engines.kubernetes.pods.grouping import Grouper
from carrel_scheduler.engines.kubernetes.pods.owners import Owners
from carrel_scheduler.engines.kubernetes.pods.types import (
    Namespace,
    Node,
    NodeGroup,
    Pod,
    PodGroup,
)
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.resources import NAMESPACES, NODES, PODS
from carrel_scheduler.ledger.resources.kinds import NODE_GROUP, POD_GROUP
from carrel_scheduler.workloads.guests.announcing import Announcing
from carrel_scheduler.workloads.guests.circumstances import Circumstances, StorageFeeds
from carrel_scheduler.workloads.guests.group_status import GroupStatuses
from carrel_scheduler.workloads.guests.hands import Hands, Limits
from carrel_scheduler.workloads.guests.history import close_left_open
from carrel_scheduler.workloads.guests.messages import GuestsHeard, Ready
from carrel_scheduler.workloads.guests.reading import Reader
from carrel_scheduler.workloads.guests.surroundings import KnownProjects, OwnerLookup
from carrel_scheduler.workloads.guests.watching import pump_groups, pump_nodes, pump_pods
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler


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


class GuestWork:
    """See the module.

    Args:
        client: of the API server; ``feeds`` made of it.
        loop: where guests are placed.
        epoch: of this scheduler's leadership.
        instance: the name of this process.
        now: epoch seconds.
        limits: how much at once.
    """

    def __init__(
        self,
        client: KubeClient,
        feeds: Feeds,
        loop: Reconciler,
        *,
        epoch: int,
        instance: str,
        now: Callable[[], float],
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self._client, self._feeds, self._loop, self._now = client, feeds, loop, now
        projects = KnownProjects(loop.cache.projects, lambda: feeds.namespaces.objects)
        self.reader = Reader(Grouper(Owners(OwnerLookup(client)), projects))
        self.hands = Hands(
            client, loop.ledger, loop.enqueue, now=now, instance=instance, limits=limits
        )
        self.hands.epoch = epoch
        loop.guests.hands = self.hands
        loop.executor.announcer = Announcing(client, loop.guests.own, now, instance)
        self._circumstances = Circumstances(
            loop.guests.places,
            feeds.namespaces,
            feeds.storage,
            lambda: loop.enqueue(GuestsHeard(())),
            loop.quarantine,
        )

    async def run(self, began: asyncio.Event) -> None:
        """Watch and act for ever; ``began`` is set once the loop may turn."""
        await self._feeds.namespaces.synced()
        groups, nodes, pods = asyncio.Event(), asyncio.Event(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._circumstances.run())
            await self._circumstances.synced()
            if self._feeds.groups is not None:
                group.create_task(pump_groups(self._feeds.groups, self._loop.enqueue, groups))
                await groups.wait()
            group.create_task(pump_nodes(self._feeds.nodes, self._loop.enqueue, nodes))
            await nodes.wait()
            group.create_task(
                pump_pods(
                    self._feeds.pods, self.reader, self._loop.enqueue, pods, self._loop.quarantine
                )
            )
            await pods.wait()
            await close_left_open(self._loop.ledger, epoch=self._loop.epoch, now=self._now())
            self._loop.enqueue(GuestsHeard((Ready(),)))
            began.set()
            group.create_task(self.hands.run())
            if self._feeds.groups is not None and self._feeds.pod_groups is not None:
                statuses = self._statuses(self._feeds.pod_groups, self._feeds.groups)
                group.create_task(statuses.run())

    def _statuses(self, pods: Feed[PodGroup], nodes: Feed[NodeGroup]) -> GroupStatuses:
        return GroupStatuses(self._client, self._loop.guests, pods, nodes, self._now)
