"""Kubernetes Events about MIG instances, for ``kubectl describe`` of nodes and of pods without one.

Events of a node name no workload, since users who may read them need not know whose work it is.
``EventWriter`` writes events in the background, at most ``PER_SECOND``. An event that equals one
which is still queued is written once; beyond ``MOST_WAITING`` queued ones new events are dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from carrel_scheduler.engines.kubernetes.notifications import NodeNotice, PodNotice, record_event
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.node.contract import MigOrder, MigResult

log = logging.getLogger(__name__)
MADE: Final = "MigInstanceCreated"
REMOVED: Final = "MigInstanceRemoved"
FAILED: Final = "MigInstanceFailed"
PER_SECOND: Final = 2.0
MOST_WAITING: Final = 200
Notice = PodNotice | NodeNotice
Publish = Callable[[Notice], None]


def discard(_notice: Notice) -> None:
    """Write no event."""


def notices_of(node: str, order: MigOrder, result: MigResult) -> list[Notice]:
    """The events for the result of an order: instances removed, made, or why it failed."""
    gpu, profile = f"GPU {order.device}", order.profile
    found: list[Notice] = [
        NodeNotice(node, REMOVED, f"Idle MIG instance {gone} of {gpu} was removed for {profile}.")
        for gone in result.removed
    ]
    if result.made:
        found.append(NodeNotice(node, MADE, f"MIG instance {profile} was made on {gpu}."))
    if result.error:
        found.append(failed_on(node, order, result.error))
    return found


def failed_on(node: str, order: MigOrder, why: str) -> NodeNotice:
    """The event of a node on which an instance could not be made."""
    text = f"MIG instance {order.profile} was not made on GPU {order.device}: {why}"
    return NodeNotice(node, FAILED, text)


def failed_for(pod: ObjectMeta, why: str) -> PodNotice:
    """The event of a pod that got no instance and is placed again."""
    return PodNotice(pod.namespace, pod.name, pod.uid, FAILED, f"{why}. It is placed again.")


class EventWriter:
    """Writes events; see the module. ``run`` has to run as a task while events are published.

    Args:
        client: of the API server.
        now: epoch seconds.
        instance: the name of this process.
    """

    def __init__(self, client: KubeClient, now: Callable[[], float], instance: str) -> None:
        self._client, self._now, self._instance = client, now, instance
        self._waiting: dict[Notice, None] = {}
        self._queued = asyncio.Event()

    def publish(self, notice: Notice) -> None:
        """Queue an event; returns at once."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting[notice] = None
            self._queued.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._queued.wait()
            if not self._waiting:
                self._queued.clear()
                continue
            notice = next(iter(self._waiting))
            del self._waiting[notice]
            await self._write(notice)
            await asyncio.sleep(1.0 / PER_SECOND)

    async def _write(self, notice: Notice) -> None:
        warning = notice.token == FAILED
        try:
            await record_event(
                self._client, notice, now=self._now(), instance=self._instance, warning=warning
            )
        except KubeError as error:
            log.info("no event was written for %s: %s", notice.name, error)
