"""Simulated kubelets: they run what is bound and end what is told to end.

Nothing is in their pods.
"""

import asyncio
import itertools
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.pods.types import Pod as OfScheduler
from carrel_scheduler.engines.kubernetes.pods.types import PodSpec
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import ChangeKind
from carrel_scheduler.kube.resources import NODES, PODS

HEARTBEAT_SECONDS: Final = 10.0
_numbers = itertools.count(1)


class DeadlineSpec(PodSpec, frozen=True):
    """A specification with the fields that only kubelets need."""

    active_deadline_seconds: int | None = None


class Pod(OfScheduler, frozen=True):
    """A pod as a kubelet reads it."""

    spec: DeadlineSpec = DeadlineSpec()


def _name() -> str:
    return f"t{next(_numbers)}{uuid.uuid4().hex[:5]}"


@dataclass
class Kubelets:
    """Simulated kubelets of one test's nodes; its namespaces have ``name`` in theirs.

    Attributes:
        pods: as last seen, by uid; ``changed`` is set with each change.
        nodes: as they were made, by name.
        silent: nodes whose kubelet ends no pod; they still say that they are there.
        real: nodes that have a kubelet of their own; nobody plays it.
    """

    client: KubeClient
    name: str = field(init=False, default_factory=_name)
    pods: dict[str, Pod] = field(init=False, default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)
    changed: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    silent: set[str] = field(init=False, default_factory=set)
    real: set[str] = field(init=False, default_factory=set)
    _over: set[str] = field(init=False, default_factory=set)
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    async def watch(self, feed: Feed[Pod]) -> None:
        heard = feed.subscribe()
        while changes := await heard.batch():
            for change in changes:
                if change.kind is ChangeKind.SYNCED:
                    continue
                pod = change.object
                if not pod.metadata.namespace.startswith(f"carrel-{self.name}-"):
                    continue
                if change.kind is ChangeKind.DELETED:
                    self.pods.pop(pod.metadata.uid, None)
                else:
                    self.pods[pod.metadata.uid] = pod
                    await self._tend(pod)
            self.changed.set()

    async def _tend(self, pod: Pod) -> None:
        """Run what is bound and end what was told to end, as the node's kubelet does."""
        meta = pod.metadata
        if pod.spec.node_name in self.real:
            return
        if pod.spec.node_name and pod.status.phase == "Pending" and not meta.deletion_timestamp:
            with suppress(KubeError):
                await self.finish(pod, "Running")
        if pod.spec.node_name in self.silent:
            return
        over = pod.spec.active_deadline_seconds is not None and pod.spec.node_name
        if over and not pod.ended and not meta.deletion_timestamp:
            with suppress(KubeError):
                await self.finish(pod, "Failed")
        if meta.deletion_timestamp:
            with suppress(KubeError):
                if not pod.ended:
                    await self.finish(pod, "Failed")
                await self.client.delete(
                    PODS, meta.name, meta.namespace, uid=meta.uid, grace_seconds=0
                )

    async def finish(self, pod: OfScheduler, phase: str = "Succeeded") -> None:
        """A pod has ended by itself, or begun; what has ended does not begin again.

        One after the other: that it runs may be on its way while somebody ends it.
        """
        async with self._turn:
            if phase != "Running":
                self._over.add(pod.metadata.uid)
            elif pod.metadata.uid in self._over:
                return
            await self.say(pod, phase)

    async def say(self, pod: OfScheduler, phase: str) -> None:
        """Write the status of a pod."""
        meta = pod.metadata
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        body = {"metadata": {"uid": meta.uid}, "status": {"phase": phase, "conditions": [ready]}}
        how = PatchKind.STRATEGIC
        await self.client.patch(PODS, meta.name, body, meta.namespace, sub="status", how=how)

    async def tend_again(self) -> None:
        """Compare all the time, as kubelets do, not only when told."""
        while True:
            await asyncio.sleep(1.0)
            for pod in list(self.pods.values()):
                await self._tend(pod)

    async def beat(self) -> None:
        """Say that the nodes are there, for as long as they are."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            for name in list(self.nodes):
                with suppress(KubeError):
                    how = PatchKind.STRATEGIC
                    await self.client.patch(NODES, name, {"status": ready()}, sub="status", how=how)


def ready() -> Mapping[str, Any]:
    """A node's status that says that it is well now."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "lastHeartbeatTime": now,
            }
        ]
    }
