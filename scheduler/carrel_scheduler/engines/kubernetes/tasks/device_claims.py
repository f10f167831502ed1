"""GPUs that the pods of tasks are given by claims, where a driver offers them.

The pod asks for GPUs by name as ever. On a node whose GPUs a driver of dynamic resource allocation
offers, a claim is made for it, as for extended resources that devices serve: allocated and
reserved before the pod is bound, freed by Kubernetes' controller when it has ended, and gone with
it. The core counts a GPU as free once its task has ended; a start waits for the controller.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import EngineError, TaskSpec
from carrel_scheduler.engines.kubernetes import device_claims
from carrel_scheduler.engines.kubernetes.device_claims import NotAllocated
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim
from carrel_scheduler.engines.kubernetes.pods.types import Meta, Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.resources import PODS

PAUSES: Final = Pauses(0.1, 1.0, 40)
"""Between looks for free devices: some half a minute together."""


class TaskDevices:
    """See the module.

    Args:
        client: of the API server.
        claims: claims and devices as they are followed; the loop knows the same ones.
    """

    def __init__(self, client: KubeClient, claims: DeviceClaims) -> None:
        self._client, self._claims = client, claims

    @asynccontextmanager
    async def given(self, task: TaskSpec, pod: Meta) -> AsyncIterator[None]:
        """Give a pod its GPUs, and take them back if it is not bound after all.

        Raises:
            EngineError: they are not free.
            KubeError: as the API server says.
        """
        if not task.devices or not self._claims.serves_tasks(task.node):
            yield
            return
        seen = await self._client.get(PODS, pod.name, pod.namespace, type=Pod)
        try:
            await self._allocate(task, seen)
            yield
        except BaseException:
            self._claims.undo(pod.uid)
            raise

    async def _allocate(self, task: TaskSpec, pod: Pod) -> None:
        """Write the allocations. Raises ``EngineError``, ``KubeError``."""
        try:
            for order in await self._decided(task, pod):
                await device_claims.allocate(self._client, order)
        except NotAllocated as error:
            raise EngineError(f"task {task.id}: {error}") from error

    async def _decided(self, task: TaskSpec, pod: Pod) -> tuple[AllocateClaim, ...]:
        """The allocation, once so many devices are free there."""
        for pause in PAUSES:
            if found := self._claims.decide(pod, task.node, len(task.devices)):
                return found
            await self._take_back(pod)
            await asyncio.sleep(pause)
        raise EngineError(
            f"node {task.node}: GPUs of claims that have ended are not free yet; it is tried again"
        )

    async def _take_back(self, pod: Pod) -> None:
        """Release what an interrupted start left to the pod."""
        release = self._claims.take_release(pod.metadata.uid)
        if release is not None:
            await device_claims.release(self._client, release)
