"""The engine of a cluster: five verbs over pods; see ``engines.contract.Engine``.

The API server's objects are its only memory, so any number of openings see the same. An ended pod
stays, for its log, until its workload is removed; ``forget`` marks it and removes the finalizer.

To end a task its pod is given a deadline in the past, so that the node ends it with its own grace
period and keeps the log. Another grace period than its own takes a deletion: the node then throws
the log away with the pod.
"""

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from typing import Any, Final

from carrel_scheduler.engines.contract import (
    EngineError,
    ExecSession,
    LogRequest,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
    UnknownTask,
)
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import GpuReservations
from carrel_scheduler.engines.kubernetes.tasks import task_pods
from carrel_scheduler.engines.kubernetes.tasks.device_claims import TaskDevices
from carrel_scheduler.engines.kubernetes.tasks.logs import read_log
from carrel_scheduler.engines.kubernetes.tasks.records import Record, Records
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from carrel_scheduler.engines.kubernetes.tasks.starting import OwnerOf, Starter
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.engines.kubernetes.tasks.terminal import PodTerminal, open_terminal
from carrel_scheduler.engines.kubernetes.tasks.termination import TaskTerminator
from carrel_scheduler.engines.streams import StatusStream, Streams
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.kube.execution import Channel, RemoteCommand, execute
from carrel_scheduler.kube.resources import PODS
from carrel_schema import names
from carrel_schema.names import label

_TABLES: Final = ("cat", "/proc/net/tcp", "/proc/net/tcp6")
_ESTABLISHED: Final = "01"
_LISTENS: Final = "0A"
_FIELDS: Final = 4
LOOK_SECONDS: Final = 10.0


async def met_at(
    client: KubeClient, records: Records, members: Sequence[TaskId], port: int
) -> frozenset[int]:
    """The indices of those members who have met others at a TCP port."""
    seen = await asyncio.gather(*(_has_met(client, records, one, port) for one in members))
    return frozenset(one.index for one, met in zip(members, seen, strict=True) if met)


async def _has_met(client: KubeClient, records: Records, member: TaskId, port: int) -> bool:
    record = records.get(member)
    if record is None or record.pod.state.running is None:
        return False
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return port in ports(await _tables(client, record.pod))
    except (KubeError, TimeoutError):
        return False  # it has ended, or its node does not answer: nobody knows


async def _tables(client: KubeClient, pod: TaskPod) -> str:
    meta, found = pod.metadata, b""
    reading = await execute(client, meta.namespace, meta.name, _TABLES, pod.container)
    try:
        while (piece := await reading.read()) is not None:
            found += piece.data if piece.channel is Channel.OUTPUT else b""
    finally:
        await reading.close()
    return found.decode("ascii", "replace")


def ports(tables: str) -> Iterator[int]:
    """The ports of connections, at both ends, and of listening sockets."""
    for line in tables.splitlines():
        fields = line.split()
        if len(fields) < _FIELDS or fields[3] not in (_ESTABLISHED, _LISTENS):
            continue
        for address in fields[1:3]:
            yield int(address.rpartition(":")[2], 16)


async def no_owner(_task: TaskSpec) -> dict[str, Any] | None:
    """Tasks belong to nothing."""
    return None


class KubernetesEngine:
    """Runs tasks as pods.

    Args:
        client: of the API server; it is not closed with the engine.
        settings: of the cluster.
        clock: epoch seconds.
        epoch: of the scheduler's leadership, written into every binding.
        owner_of: reference to the object that a task is a part of, if there is one.
        gpus: holds the GPUs that tasks share; ``None``: none are shared. It is not closed either.
        devices: gives GPUs by claims; ``None``: all are given by device plugins.
        instances: makes MIG instances on them; ``None``: nobody does.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: PodSettings,
        *,
        clock: Callable[[], float] = time.time,
        epoch: Callable[[], int] = lambda: 0,
        owner_of: OwnerOf = no_owner,
        gpus: GpuReservations | None = None,
        devices: TaskDevices | None = None,
        instances: MigInstances | None = None,
    ) -> None:
        self._client = client
        self._streams = Streams()
        self._opened_once = False
        self._gpus, self._devices = gpus, devices
        self._records = Records(
            client, clock, settings.begin_seconds, self._changed, self._give_up, self._pod_ended
        )
        self._starter = Starter(
            client, settings, self._records, epoch, owner_of, gpus, devices, instances
        )
        self._ender = TaskTerminator(client, self._records)
        self._terminals: weakref.WeakSet[PodTerminal] = weakref.WeakSet()
        self._errands: set[asyncio.Task[None]] = set()
        self._closed = False

    async def open(self) -> None:
        """List the existing tasks; called by the first verb."""
        if self._closed:
            raise EngineError("the engine is closed")
        await self._records.open()
        self._opened_once = True

    def _changed(self, status: TaskStatus) -> None:
        if self._opened_once:  # what was found while opening is no change
            self._streams.publish(status)

    def _pod_ended(self, pod: str) -> None:
        """Free the allocation of a pod that has ended."""
        for held in (self._gpus, self._devices):
            if held is not None:
                held.ended(pod)

    def _give_up(self, task: TaskId, why: str) -> None:
        errand = asyncio.create_task(self._ender.give_up(task, why))
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    def workload_of(self, pod: str) -> str | None:
        """The workload of a pod, by the pod's uid or by ``namespace/name``."""
        task = self._records.task_of(pod)
        return None if task is None else task.workload_uid

    def known_gpus(self, nodes: Container[str]) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """UUIDs of the GPUs that workloads have on these nodes, by node and by workload.

        A workload is left out whose GPUs are not known, as where a device plugin gives them.
        """
        by_claim = self._devices.uuids_of if self._devices else (lambda _: frozenset[str]())
        return task_pods.known_gpus(self._records.pods_on(nodes), by_claim)

    async def start(self, task: TaskSpec) -> None:
        """Start once."""
        await self.open()
        await self._starter.start(task)

    def interrupt_start(self, task: TaskId) -> None:
        """Have a start fail that waits until drivers have prepared the devices of its claim."""
        self._starter.interrupt(task)

    async def stop(self, task: TaskId, grace_seconds: float) -> None:
        """Request the end; the node enforces the grace period, with or without the scheduler."""
        await self.open()
        if not self._starter.withdraw(task):
            await self._ender.stop(task, grace_seconds)

    async def list(self) -> Sequence[TaskStatus]:
        """List the tasks that have not been forgotten."""
        await self.open()
        return self._records.statuses()

    def watch(self) -> AsyncIterator[TaskStatus]:
        """Changes from now on."""
        return self._streams.add(StatusStream(self.open))

    async def forget(self, task: TaskId) -> None:
        """Drop an ended task's record; its pod stays, for its log."""
        await self.open()
        await self._ender.forget(task)

    async def remove_workload(self, workload_uid: str) -> None:
        """Delete the pods of all attempts, and their logs with them."""
        await self.open()
        await self._ender.remove_workload(workload_uid)

    async def logs(self, workload_uid: str, request: LogRequest) -> AsyncIterator[bytes]:
        """Output of one task. Raises ``UnknownTask`` at the first step."""
        await self.open()
        found = await self._pods_of(workload_uid, request.index)
        pods = {pod.task: pod for pod in found if pod.task is not None}
        task = request.choose(workload_uid, pods)

        async def begun() -> bool:
            return await self._begun(task)

        async for data in read_log(self._client, pods[task], request, begun):
            yield data

    async def _pods_of(self, uid: str, index: int) -> Sequence[TaskPod]:
        selector = f"{names.WORKLOAD_UID}={label(uid)},{names.TASK_INDEX}={index},{names.TASK}"
        try:
            listing = await self._client.list(PODS, TaskPod, label_selector=selector)
        except KubeError as error:
            raise EngineError(f"the logs of workload {uid} cannot be found: {error}") from error
        return listing.items

    async def _begun(self, task: TaskId) -> bool:
        """Wait until a task runs or has ended; returns whether it ever ran."""
        while not self._closed:
            record = self._records.get(task)
            if record is None:  # forgotten: it has ended
                return True
            if record.status.phase is not TaskPhase.STARTING:
                return True
            await self._records.next_change()
        return False

    async def exec(self, task: TaskId, command: Sequence[str]) -> ExecSession:
        """A command beside a running task, on a terminal."""
        await self.open()
        record = await self._record(task)
        if record.status.phase is not TaskPhase.RUNNING:
            raise EngineError(f"task {task} is not running")
        terminal = await open_terminal(self._client, record.pod, task, command)
        self._terminals.add(terminal)
        return terminal

    async def run(self, task: TaskId, command: Sequence[str]) -> RemoteCommand:
        """A command beside a running task, with pipes in place of a terminal."""
        await self.open()
        record = await self._record(task)
        if record.status.phase is not TaskPhase.RUNNING:
            raise EngineError(f"task {task} is not running")
        meta, inside = record.pod.metadata, record.pod.container
        try:
            return await execute(
                self._client, meta.namespace, meta.name, command, inside, stdin=True
            )
        except KubeError as error:
            raise EngineError(f"no command beside task {task}: {error.message}") from error

    def running_task(self, workload_uid: str) -> TaskId | None:
        """The first running task of a workload."""
        running = [
            status.id
            for status in self._records.statuses()
            if status.id.workload_uid == workload_uid and status.phase is TaskPhase.RUNNING
        ]
        return min(running, default=None)

    async def listen(self) -> None:
        """Watch the tasks' pods; never returns, raises the error that prevents the watch."""
        await self._records.listening()

    async def met_at(self, members: Sequence[TaskId], port: int) -> frozenset[int]:
        """The indices of those members of a gang who have met others at a TCP port."""
        return await met_at(self._client, self._records, members, port)

    async def _record(self, task: TaskId) -> Record:
        record = self._records.get(task)
        if record is None:
            raise UnknownTask(f"there is no task {task}")
        return record

    async def close(self) -> None:
        """Release everything; tasks go on."""
        self._closed = True
        self._streams.close()
        await asyncio.gather(*(terminal.close() for terminal in self._terminals), *self._errands)
        await self._ender.close()
        await self._records.close()
        if self._devices is not None:
            await self._devices.close()
