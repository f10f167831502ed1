"""Keeping the status of groups of pods and of nodes as the loop knows them.

Groups are looked at when something was heard that may concern them, at most once a second, and
written where what they say is not true any more. A write names the version that it was decided on.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from carrel_scheduler.engines.kubernetes.external_pods import group_words
from carrel_scheduler.engines.kubernetes.external_pods.group_words import Status
from carrel_scheduler.engines.kubernetes.external_pods.guests import ExternalPodReconciler
from carrel_scheduler.engines.kubernetes.external_pods.members import Member
from carrel_scheduler.engines.kubernetes.external_pods.teams import Team
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup, PodGroup
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, KubeError, NotFound
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.resources.kinds import NODE_GROUP, POD_GROUP

log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0


class GroupStatuses:
    """See the module.

    Args:
        client: of the API server.
        guests: what the loop knows.
        pods, nodes: the groups there are.
        now: epoch seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        guests: ExternalPodReconciler,
        pods: Feed[PodGroup],
        nodes: Feed[NodeGroup],
        now: Callable[[], float],
    ) -> None:
        self._client, self._guests, self._now = client, guests, now
        self._pods, self._nodes = pods, nodes
        self._stirred = asyncio.Event()
        guests.stirred = self._stirred.set

    async def run(self) -> None:
        """Look and write for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(self._pods))
            group.create_task(self._follow(self._nodes))
            while True:
                await self._stirred.wait()
                self._stirred.clear()
                if self._guests.ready:
                    await self._look_at_pods()
                    await self._look_at_nodes()
                await asyncio.sleep(LOOK_SECONDS)

    async def _follow(self, feed: Feed[PodGroup] | Feed[NodeGroup]) -> None:
        heard = feed.subscribe()
        while await heard.batch():
            self._stirred.set()

    async def _look_at_pods(self) -> None:
        groups = list(self._pods.objects.values())
        if not groups:
            return
        teams: dict[str, list[Team]] = defaultdict(list)
        for team in self._guests.book.teams.values():
            teams[team.grouping.uid].append(team)
        homeless: dict[str, list[Member]] = defaultdict(list)
        for members in self._guests.book.homeless.values():
            for member in members.values():
                homeless[member.grouping.uid].append(member)
        told: list[tuple[PodGroup, Status]] = []
        for one in groups:
            uid = one.metadata.uid
            with self._guests.quarantine.guard("pod", f"group {uid}"):
                status = group_words.of_pods(one, teams[uid], homeless[uid], self._now())
                told.append((one, status))
        for one, status in told:
            await self._write(POD_GROUP.resource, one, status)

    async def _look_at_nodes(self) -> None:
        groups = list(self._nodes.objects.values())
        if not groups:
            return
        members: dict[str, list[Node]] = defaultdict(list)
        for node in self._guests.nodes.objects():
            members[self._guests.places.groups.of(node)].append(node)
        for one in groups:
            with self._guests.quarantine.guard("node", f"group {one.metadata.name}"):
                status = group_words.of_nodes(one, members[one.metadata.name], self._now())
                await self._write(NODE_GROUP.resource, one, status)

    async def _write(self, resource: Resource, group: PodGroup | NodeGroup, status: Status) -> None:
        if all(group.status.get(name) == value for name, value in status.items()):
            return
        meta = group.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": status}
        try:
            await self._client.patch(resource, meta.name, body, meta.namespace, "status")
        except (NotFound, Conflict):
            self._stirred.set()  # it is another one by now, which is being told
        except KubeError as error:
            log.info("the status of %s %s is not written: %s", resource.kind, meta.name, error)
            self._stirred.set()
