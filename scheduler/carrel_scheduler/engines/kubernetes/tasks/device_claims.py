"""GPUs that the pods of tasks are given by claims, where a driver offers them.

The pod asks for GPUs by name as ever, and for a part of one by a name that no node offers. On a
node whose GPUs a driver of dynamic resource allocation offers, a claim is made for it, as for
extended resources that devices serve: allocated and reserved before the pod is bound, and gone with
it. The core counts a GPU as free once its task has ended, which is when its node has nothing
prepared for the pod any more, so the claim is deleted at once. Kubernetes' controller does the same
later, where nobody could; a start waits for it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.engines.contract import EngineError, NotOnThisNode, TaskSpec
from carrel_scheduler.engines.kubernetes import device_claims
from carrel_scheduler.engines.kubernetes.device_claims import NotAllocated
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim, ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.devices.place_claims import PlacedGpus, decide_places
from carrel_scheduler.engines.kubernetes.pods.devices.task_shares import SharingTerms
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta, Pod
from carrel_scheduler.engines.kubernetes.tasks import task_pods
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.resources import PODS
from carrel_schema.names import GPU_MEMORY_MIB, GPU_UUIDS, mig_resource

PAUSES: Final = Pauses(0.1, 1.0, 40)
"""Pauses between looks for free devices: half a minute in all."""
FREEING: Final = Pauses(0.5, 15.0, 8)
"""Pauses between tries to free the devices of an ended task."""
NOTHING: Final[Mapping[str, str]] = {}
log = logging.getLogger(__name__)


class TaskDevices:
    """See the module.

    Args:
        client: of the API server.
        claims: claims and devices as they are followed; the loop knows the same ones.
    """

    def __init__(self, client: KubeClient, claims: DeviceClaims) -> None:
        self._client, self._claims = client, claims
        self._freeing: dict[str, asyncio.Task[None]] = {}

    def ended(self, pod: str) -> None:
        """A pod has ended, by its uid: what its claim has is free for others."""
        order = self._claims.deletion_of(pod)
        if order is not None and pod not in self._freeing:
            self._freeing[pod] = asyncio.create_task(self._free(pod, order))

    async def _free(self, pod: str, order: ReleaseClaim) -> None:
        try:
            for pause in FREEING:
                try:
                    await device_claims.release(self._client, order)
                except KubeError as error:
                    log.debug("the claim %s is not freed yet: %s", order.claim, error)
                    await asyncio.sleep(pause)
                else:
                    return
        finally:
            del self._freeing[pod]

    async def close(self) -> None:
        """Leave what is not freed yet to Kubernetes' controller."""
        for task in (tasks := list(self._freeing.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def gives(self, task: TaskSpec) -> bool:
        """Whether a task gets its GPUs, or its part of one, by a claim."""
        if task_pods.has_instance(task):
            return False
        if task.mig_profile:
            return self._claims.serves_instance(task.node, mig_resource(task.mig_profile))
        if not task.devices:
            return False
        if self._claims.terms(task.node) is not None:
            return True
        return not task_pods.has_share(task) and self._claims.serves_tasks(task.node)

    def uuids_of(self, pod: str) -> frozenset[str]:
        """UUIDs of the GPUs that a pod has by its claim, by the pod's uid; empty if not known."""
        return self._claims.gpu_uuids(pod)

    @asynccontextmanager
    async def given(
        self, task: TaskSpec, pod: ObjectMeta, ended: asyncio.Event
    ) -> AsyncIterator[Mapping[str, str]]:
        """Give a pod its GPUs, and take them back if it is not bound after all.

        It begins with annotations that tell the pod which part of which GPUs it has. Once ``ended``
        is set, it waits no longer until drivers have prepared them.

        Raises:
            EngineError: they are not free.
            KubeError: as the API server says.
        """
        if not self.gives(task):
            yield NOTHING
            return
        seen = await self._client.get(PODS, pod.name, pod.namespace, type=Pod)
        terms = None if task.mig_profile else self._claims.terms(task.node)
        try:
            if terms is None:
                await self._allocate(task, await self._decided(task, seen), ended)
                yield NOTHING
            else:
                found = await self._placed(task, seen, terms)
                await self._allocate(task, (found.order,), ended)
                yield _told(task, found)
        except BaseException:
            self._claims.undo(pod.uid)
            raise

    async def _allocate(
        self, task: TaskSpec, orders: tuple[AllocateClaim, ...], ended: asyncio.Event
    ) -> None:
        """Write the allocations, and wait until drivers have prepared what they prepare before.

        Raises ``EngineError``, ``KubeError``.
        """
        try:
            allocated = [await device_claims.allocate(self._client, order) for order in orders]
            for order in allocated:
                await device_claims.await_preparation(self._client, order, ended=ended)
        except NotAllocated as error:
            raise EngineError(f"task {task.id}: {error}") from error

    async def _decided(self, task: TaskSpec, pod: Pod) -> tuple[AllocateClaim, ...]:
        """The allocation, once so many devices are free there."""
        for pause in PAUSES:
            if found := self._claims.decide(pod, task.node, len(task.devices)):
                return found
            await self._take_back(pod)
            await asyncio.sleep(pause)
        raise _not_free(task)

    async def _placed(self, task: TaskSpec, pod: Pod, terms: SharingTerms) -> PlacedGpus:
        """The parts of the GPUs at the task's places, once so much is free of them."""
        milli = min(task.gpu_milli, MILLI)
        asked = terms.amounts(milli, task.gpu_memory_mib if milli < MILLI else 0)
        if asked is None:
            raise NotOnThisNode(
                f"node {task.node}: its driver gives no such part of a GPU: {milli / MILLI:g}"
            )
        for pause in PAUSES:
            try:
                found = decide_places(self._claims, pod, task.node, task.devices, asked)
            except LookupError as error:
                raise EngineError(f"task {task.id}: {error.args[0]}") from error
            if found is not None:
                return found
            await self._take_back(pod)
            await asyncio.sleep(pause)
        raise _not_free(task)

    async def _take_back(self, pod: Pod) -> None:
        """Release what an interrupted start left to the pod."""
        release = self._claims.take_release(pod.metadata.uid)
        if release is not None:
            await device_claims.release(self._client, release)


def _told(task: TaskSpec, found: PlacedGpus) -> Mapping[str, str]:
    """The annotations of a pod with a part of a GPU; one that has all of it needs none."""
    if not task_pods.has_share(task):
        return NOTHING
    memory = found.memory_bytes // NANO // MIB
    return {GPU_UUIDS: ",".join(found.uuids), GPU_MEMORY_MIB: str(memory)}


def _not_free(task: TaskSpec) -> EngineError:
    return EngineError(
        f"node {task.node}: GPUs of claims that have ended are not free yet; it is tried again"
    )
