"""Events about MIG instances: what `kubectl describe` says of nodes, and of pods that got none.

Those of a node name no work: whoever may read a node's events need not know whose it is. They are
written in the background, so many in a second; a reason that is repeated while it waits is written
once, and what is too much is left out.
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
Tell = Callable[[Notice], None]


def nobody(_notice: Notice) -> None:
    """Nobody is told."""


def notices_of(node: str, order: MigOrder, result: MigResult) -> list[Notice]:
    """What a node's agent changed for an order, and what it refused."""
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
    """A node got no instance."""
    text = f"MIG instance {order.profile} was not made on GPU {order.device}: {why}"
    return NodeNotice(node, FAILED, text)


def failed_for(pod: ObjectMeta, why: str) -> PodNotice:
    """A pod got no instance, and is placed again."""
    return PodNotice(pod.namespace, pod.name, pod.uid, FAILED, f"{why}. It is placed again.")


class EventWriter:
    """Writes events; see the module. Run ``run`` beside whoever tells.

    Args:
        client: of the API server.
        now: epoch seconds.
        instance: the name of this process.
    """

    def __init__(self, client: KubeClient, now: Callable[[], float], instance: str) -> None:
        self._client, self._now, self._instance = client, now, instance
        self._waiting: dict[Notice, None] = {}
        self._told = asyncio.Event()

    def tell(self, notice: Notice) -> None:
        """Take an event; returns at once."""
        if len(self._waiting) < MOST_WAITING:
            self._waiting[notice] = None
            self._told.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._told.wait()
            if not self._waiting:
                self._told.clear()
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
