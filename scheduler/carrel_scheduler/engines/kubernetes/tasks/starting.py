"""Start a task exactly once: its pod, what it is given, and then its place.

The name of the pod is the task's id, so a second creation finds it taken. The binding is the start:
before it nothing of the task runs, and only one of any number of schedulers can bind. Whoever finds
a pod of this task without a node goes on where the other one was interrupted.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    EngineError,
    NotOnThisNode,
    TaskId,
    TaskPhase,
    TaskSpec,
)
from carrel_scheduler.engines.kubernetes.binding import BindTarget, NotBound, annotations, bind
from carrel_scheduler.engines.kubernetes.eviction import unless_gone
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import (
    binding_annotations,
    instance_annotations,
)
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import GpuReservations, HeldGpus
from carrel_scheduler.engines.kubernetes.tasks import environment, task_pods
from carrel_scheduler.engines.kubernetes.tasks.device_claims import TaskDevices
from carrel_scheduler.engines.kubernetes.tasks.manifest import pod as manifest
from carrel_scheduler.engines.kubernetes.tasks.records import Records
from carrel_scheduler.engines.kubernetes.tasks.settings import FINALIZER, PodSettings
from carrel_scheduler.engines.kubernetes.tasks.status import ENDED_EARLY
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.engines.kubernetes.tasks.volumes import Claims, storage
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Forbidden,
    KubeError,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from carrel_scheduler.kube.resources import NODES, PODS, SECRETS, SERVICES
from carrel_schema import names
from carrel_schema.names import label

OwnerOf = Callable[[TaskSpec], Awaitable[dict[str, Any] | None]]
ACCOUNT_PAUSES: Final = Pauses(0.1, 0.5, 10)
_NO_ACCOUNT: Final = "error looking up service account"
REMOVE_FINALIZER: Final = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}


class Starter:
    """Starts tasks.

    Args:
        client: of the API server.
        settings: of the cluster.
        records: gets what was started.
        epoch: of the scheduler's leadership; bindings of another one than the present are
            refused by the cluster.
        owner_of: reference to the object that a task is a part of.
        gpus: holds GPUs that tasks share; ``None``: such tasks are refused.
        devices: gives GPUs by claims; ``None``: all are given by device plugins.
        instances: makes MIG instances; ``None``: tasks that need one are refused.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: PodSettings,
        records: Records,
        epoch: Callable[[], int],
        owner_of: OwnerOf,
        gpus: GpuReservations | None = None,
        devices: TaskDevices | None = None,
        instances: MigInstances | None = None,
    ) -> None:
        self._client, self._settings, self._records = client, settings, records
        self._epoch, self._owner_of = epoch, owner_of
        self._gpus, self._devices, self._instances = gpus, devices, instances
        self._claims = Claims(client, self._is_there)
        self._starting: dict[TaskId, list[asyncio.Event]] = {}
        self._nodes: set[str] = set()
        self._awaiting: set[TaskId] = set()

    async def start(self, task: TaskSpec) -> None:
        """Raises ``AlreadyStarted``, or ``EngineError`` after which nothing is left."""
        ended = asyncio.Event()
        starts = self._starting.setdefault(task.id, [])
        starts.append(ended)
        start = self._start_external if task.external else self._start
        try:
            await start(task, ended)
        except (KubeError, NotBound) as error:
            raise EngineError(f"task {task.id} could not be started: {error}") from error
        finally:
            starts.remove(ended)
            if not starts:
                del self._starting[task.id]

    def interrupt(self, task: TaskId) -> None:
        """A task that is being started is to end: its devices are not waited for any longer."""
        for ended in self._starting.get(task, ()):
            ended.set()

    def _is_there(self, task: TaskId) -> bool:
        """Whether a task is being started or has not ended."""
        record = self._records.get(task)
        return task in self._starting or (
            record is not None and record.status.phase is not TaskPhase.ENDED
        )

    async def _start(self, task: TaskSpec, ended: asyncio.Event) -> None:
        owner = await self._owner_of(task)
        wanted = manifest(task, self._settings, owner)
        environment.payload_secret(task, "")
        await self._check_node(task.node)
        namespace = names.namespace_of(task.project)
        claims = storage(task, self._settings).claims
        await self._claims.require(namespace, claims, task)
        if task.subdomain and task.id.index == 0:
            await self._name_gang(task, namespace, owner)
        pod = await self._create(wanted, namespace)
        try:
            uid = pod.metadata.uid
            for secret in environment.payload_secret(task, uid), environment.pull_secret(task, uid):
                if secret is not None:
                    with suppress(AlreadyExists):  # by the one whose start this goes on with
                        await self._client.create(SECRETS, secret, namespace)
            await self._bind(task, pod, ended)
        except AlreadyStarted:
            raise
        except (KubeError, NotBound, EngineError):
            await self._take_back(pod)
            raise

    async def _create(self, wanted: Any, namespace: str) -> TaskPod:
        name = wanted["metadata"]["name"]
        try:
            return await self._made(wanted, namespace)
        except AlreadyExists:
            pod = await self._found(name, namespace)
        if pod.spec.node_name or pod.metadata.deletion_timestamp or not pod.ours:
            raise AlreadyStarted(f"task {name} was started before")
        return pod

    async def _made(self, wanted: Any, namespace: str) -> TaskPod:
        """The pod; the account that the cluster gives a new namespace may be about to be made."""
        for pause in ACCOUNT_PAUSES:
            try:
                return await self._client.create(PODS, wanted, namespace, TaskPod)
            except Forbidden as refusal:
                if _NO_ACCOUNT not in refusal.message:
                    raise
            await asyncio.sleep(pause)
        return await self._client.create(PODS, wanted, namespace, TaskPod)

    async def _found(self, name: str, namespace: str) -> TaskPod:
        """The pod of that name: asked for until there is an answer, as it may run already."""
        while True:
            try:
                return await self._client.get(PODS, name, namespace, TaskPod)
            except NotFound as error:
                # No watch may ever have seen it, and so no event would report its end.
                raise NotOnThisNode(f"pod {name} was deleted while it was being started") from error
            except (Unavailable, TooManyRequests):
                continue  # the client paused before it gave up

    async def _bind(self, task: TaskSpec, pod: TaskPod, ended: asyncio.Event) -> None:
        """Bind the pod to the node of its GPUs, after preparing shared ones."""
        by_claim = self._devices is not None and self._devices.gives(task)
        if by_claim or not task_pods.shares_gpus(task):
            if task.devices and self._gpus is not None:
                await self._gpus.make_room(task.node)
            given = _by_plugin if self._devices is None else self._devices.given
            async with given(task, pod.metadata, ended) as said:
                await self._bind_with(task, pod, said)
            return
        if self._gpus is None:
            raise EngineError("GPUs are not shared here: whole GPUs are right")
        async with self._gpus.hold(task.node, task.devices) as hold:
            if task_pods.has_instance(task):
                said = await self._instance(task, pod, hold)
            else:
                said = binding_annotations(hold.gpus, task.gpu_milli, task.gpu_memory_mib)
            await self._bind_with(task, pod, said)
            hold.pod = pod.metadata

    async def _instance(self, task: TaskSpec, pod: TaskPod, hold: HeldGpus) -> Mapping[str, str]:
        """The annotations of the task's MIG instance, once its node has made it."""
        if self._instances is None:
            raise EngineError("GPUs are not divided here: whole GPUs are right")
        [gpu] = hold.gpus
        profile, slots = task.mig_profile, task.mig_slots
        uuid = await self._instances.take(task.node, gpu, profile, slots, pod.metadata)
        hold.visible = (uuid,)
        return instance_annotations(gpu, uuid)

    async def _bind_with(self, task: TaskSpec, pod: TaskPod, gpus: Mapping[str, str]) -> None:
        meta, epoch = pod.metadata, self._epoch()
        devices = task.devices or None
        target = BindTarget(meta.namespace, meta.name, meta.uid, task.node, devices, gpus=gpus)
        try:
            await bind(self._client, target, epoch)
        except NotBound as error:
            if error.already:
                raise AlreadyStarted(f"task {task.id} was started before") from error
            raise
        if self._records.get(task.id) is None:
            bound = msgspec.structs.replace(pod.spec, node_name=task.node)
            noted = msgspec.structs.replace(
                meta, annotations=meta.annotations | annotations(target, epoch)
            )
            self._records.take(msgspec.structs.replace(pod, spec=bound, metadata=noted))

    async def _take_back(self, pod: TaskPod) -> None:
        """Delete a pod that was not bound: nothing of it ran."""
        meta = pod.metadata
        body = {"metadata": {**REMOVE_FINALIZER["metadata"], "uid": meta.uid}}

        async def delete() -> None:
            await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)

        async def let_go() -> None:
            await self._client.patch(PODS, meta.name, body, meta.namespace, how=PatchKind.STRATEGIC)

        for write in (delete, let_go):
            await unless_gone(self._client, meta, write)
        if pod.task is not None:
            self._records.drop(pod.task)

    async def _check_node(self, name: str) -> None:
        if name in self._nodes:
            return
        try:
            await self._client.get(NODES, name)
        except NotFound as error:
            raise EngineError(f"node={name!r}: there is no such node") from error
        self._nodes.add(name)

    async def _name_gang(
        self, task: TaskSpec, namespace: str, owner: dict[str, Any] | None
    ) -> None:
        """Create the headless service that gives the members of a gang their names."""
        uid = label(task.id.workload_uid)
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": task.subdomain,
                "labels": {names.WORKLOAD_UID: uid, names.MADE_BY: names.MADE_BY_US},
                **({"ownerReferences": [owner]} if owner else {}),
            },
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {names.WORKLOAD_UID: uid},
            },
        }
        with suppress(AlreadyExists):
            await self._client.create(SERVICES, service, namespace)

    async def _start_external(self, task: TaskSpec, ended: asyncio.Event) -> None:
        """Bind an external pod to its place, once the pod exists."""
        self._awaiting.add(task.id)
        try:
            pod = await self._in_time(task)
            await self._bind(task, pod, ended)
            withdrawn = task.id not in self._awaiting
        finally:
            self._awaiting.discard(task.id)
        if withdrawn:  # while it was being bound
            self._records.asked(task.id, ENDED_EARLY)
            meta = pod.metadata
            await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)

    async def _in_time(self, task: TaskSpec) -> TaskPod:
        limit = self._settings.external_seconds
        try:
            async with asyncio.timeout(limit):
                return await self._awaited(task)
        except TimeoutError as error:
            raise EngineError(
                f"task {task.id}: nobody made its pod within {limit:g} s: one with the label "
                f"{names.TASK}={task.id} and schedulerName {names.SCHEDULER_NAME} is right"
            ) from error

    def withdraw(self, task: TaskId) -> bool:
        """A task that waits for its pod, or is being bound, is to end; whether there is one."""
        waited = task in self._awaiting
        self._awaiting.discard(task)
        if waited:
            self._records.wake()
        return waited

    async def _awaited(self, task: TaskSpec) -> TaskPod:
        while True:
            if task.id not in self._awaiting:
                raise EngineError(f"task {task.id} was ended before its pod was made")
            if self._records.get(task.id) is not None:
                raise AlreadyStarted(f"task {task.id} was started before")
            pod = self._records.unbound(task.id)
            if pod is not None and pod.metadata.namespace == names.namespace_of(task.project):
                return pod
            await self._records.next_change()


@asynccontextmanager
async def _by_plugin(
    _task: TaskSpec, _pod: ObjectMeta, _ended: asyncio.Event
) -> AsyncIterator[Mapping[str, str]]:
    """Leave the choice of GPUs to the node's device plugin, which tells the container."""
    yield {}
