"""Ends of tasks: requested, recorded, cleaned up.

A node that waits for a container to end does not always notice that its grace period was
shortened, so the engine enforces it: it kills the container's processes when the period is over.
"""

import asyncio
import logging
import math
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import EngineError, TaskId, TaskPhase, UnknownTask
from carrel_scheduler.engines.kubernetes.eviction import unless_gone
from carrel_scheduler.engines.kubernetes.tasks import program
from carrel_scheduler.engines.kubernetes.tasks.manifest import grace_seconds as whole_seconds
from carrel_scheduler.engines.kubernetes.tasks.records import Record, Records
from carrel_scheduler.engines.kubernetes.tasks.settings import FINALIZER, FORGOTTEN
from carrel_scheduler.engines.kubernetes.tasks.status import ENDED_EARLY
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import KubeError, NotFound
from carrel_scheduler.kube.execution import execute
from carrel_scheduler.kube.resources import PODS, SERVICES
from carrel_schema import names
from carrel_schema.names import label

log = logging.getLogger(__name__)
SLACK_SECONDS: Final = 1.0
GIVE_UP_PAUSES: Final = Pauses(1.0, 120.0, 8)
_SEEN: Final = {
    "metadata": {
        "$deleteFromPrimitiveList/finalizers": [FINALIZER],
        "labels": {FORGOTTEN: "true"},
    }
}


class TaskTerminator:
    """Ends tasks; ``records`` has the existing ones."""

    def __init__(self, client: KubeClient, records: Records) -> None:
        self._client, self._records = client, records
        self._grace: dict[TaskId, int] = {}
        self._errands: set[asyncio.Task[None]] = set()

    async def stop(self, task: TaskId, grace_seconds: float) -> None:
        """SIGTERM, and SIGKILL after the grace period. Raises ``UnknownTask``."""
        if not (math.isfinite(grace_seconds) and grace_seconds >= 0):
            raise EngineError(f"grace_seconds={grace_seconds!r}: a number from 0 is right")
        record = await self._known(task)
        if record.status.phase is not TaskPhase.ENDED:
            await self._stop(task, record.pod, whole_seconds(grace_seconds), ENDED_EARLY)

    async def give_up(self, task: TaskId, why: str) -> None:
        """End a task that cannot begin."""
        for pause in GIVE_UP_PAUSES:
            record = self._records.get(task)
            if record is None or record.status.phase is TaskPhase.ENDED:
                return
            log.warning("task %s will not begin: %s", task, why)
            grace = record.pod.grace_seconds
            try:
                await self._stop(task, record.pod, grace, why)
            except EngineError as error:
                log.warning("%s", error)
                await asyncio.sleep(pause)
            else:
                return

    async def _stop(self, task: TaskId, pod: TaskPod, grace: int, why: str) -> None:
        meta, spec = pod.metadata, pod.spec
        self._records.asked(task, why)
        keeps_log = pod.ours and grace == pod.grace_seconds

        async def end() -> None:
            if not keeps_log or meta.deletion_timestamp:
                await self._delete(pod, grace)
            elif spec.active_deadline_seconds is None:
                await self._end_now(pod)

        try:
            if not await unless_gone(self._client, meta, end):
                return
        except KubeError as error:
            raise EngineError(f"task {task} could not be ended: {error}") from error
        if grace < self._grace.setdefault(task, grace):
            self._grace[task] = grace
            errand = asyncio.create_task(self._kill(task, pod, grace))
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    async def _kill(self, task: TaskId, pod: TaskPod, grace: int) -> None:
        """Kill a task that still runs after a shortened grace period."""
        try:
            async with asyncio.timeout(grace + SLACK_SECONDS):
                while self._goes_on(task):
                    await self._records.next_change()
        except TimeoutError:
            meta = pod.metadata
            with suppress(KubeError):  # it has ended meanwhile, or its node is gone
                killing = await execute(
                    self._client, meta.namespace, meta.name, program.KILL, pod.container
                )
                while await killing.read() is not None:
                    pass
                await killing.close()

    def _goes_on(self, task: TaskId) -> bool:
        record = self._records.get(task)
        return record is not None and record.status.phase is not TaskPhase.ENDED

    async def close(self) -> None:
        """Leave everything to the nodes."""
        for errand in self._errands:
            errand.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)

    async def _end_now(self, pod: TaskPod) -> None:
        body = {"metadata": {"uid": pod.metadata.uid}, "spec": {"activeDeadlineSeconds": 1}}
        await self._client.patch(PODS, pod.metadata.name, body, pod.metadata.namespace)

    async def forget(self, task: TaskId) -> None:
        """Drop the record of an ended task."""
        record = await self._known(task)
        if record.status.phase is not TaskPhase.ENDED:
            raise EngineError(f"task {task} has not ended: stop it first")
        self._records.drop(task)
        self._grace.pop(task, None)
        try:
            await self._mark(record.pod)
        except KubeError as error:
            raise EngineError(f"task {task} could not be forgotten: {error}") from error

    async def _mark(self, pod: TaskPod) -> None:
        meta = pod.metadata
        body = {"metadata": {**_SEEN["metadata"], "uid": meta.uid}}

        async def mark() -> None:
            await self._client.patch(PODS, meta.name, body, meta.namespace, how=PatchKind.STRATEGIC)

        await unless_gone(self._client, meta, mark)

    async def remove_workload(self, uid: str) -> None:
        """Delete all pods of a workload."""
        try:
            await self._remove(uid)
        except KubeError as error:
            raise EngineError(f"workload {uid} could not be removed: {error}") from error

    async def _remove(self, uid: str) -> None:
        selector = f"{names.WORKLOAD_UID}={label(uid)},{names.TASK}"
        pods = (await self._client.list(PODS, TaskPod, label_selector=selector)).items
        alive = sorted(str(pod.task) for pod in pods if self._alive(pod))
        if alive:
            raise EngineError(f"task {alive[0]} has not ended: stop it first")
        self._records.drop_all(pod.task for pod in pods if pod.task is not None)
        for pod in pods:
            if pod.ours:
                await self._mark(pod)
            await unless_gone(self._client, pod.metadata, partial(self._delete, pod))
        for namespace in {pod.metadata.namespace for pod in pods}:
            await self._delete_services(namespace, uid)

    def _alive(self, pod: TaskPod) -> bool:
        record = None if pod.task is None else self._records.get(pod.task)
        known_ended = record is not None and record.status.phase is TaskPhase.ENDED
        return bool(pod.spec.node_name) and not pod.ended and not known_ended

    async def _delete(self, pod: TaskPod, grace: int | None = None) -> None:
        meta = pod.metadata
        await self._client.delete(
            PODS, meta.name, meta.namespace, uid=meta.uid, grace_seconds=grace
        )

    async def _delete_services(self, namespace: str, uid: str) -> None:
        with suppress(NotFound):
            await self._client.delete(SERVICES, f"gang-{label(uid)}", namespace)

    async def _known(self, task: TaskId) -> Record:
        """The record of a task; read from the API server if another scheduler started it."""
        record = self._records.get(task)
        if record is not None:
            return record
        for pod in await self._pods(task):
            self._records.take(pod)
        record = self._records.get(task)
        if record is None:
            raise UnknownTask(f"there is no task {task}")
        return record

    async def _pods(self, task: TaskId) -> Iterable[TaskPod]:
        selector = f"{names.TASK}={label(str(task))}"
        try:
            listing = await self._client.list(PODS, TaskPod, label_selector=selector)
        except KubeError as error:
            raise EngineError(f"task {task} could not be looked up: {error}") from error
        return listing.items
