"""A scheduler of external pods alone: no REST API, no Hub, no tasks of its own.

What it decides, binds and evicts is what the whole service does with external pods; it is for
measuring that and for tests of its faults. As a process, ``python -m k8s.standalone``, it reads

=========================  =====================================================================
variable                   meaning
=========================  =====================================================================
``KUBECONFIG``             how to reach the cluster; unset: from within it
``CARREL_DATABASE_URL``    SQLAlchemy URL of the ledger that has the projects
``CARREL_STATE_DIR``       folder for what is kept beside it
``CARREL_NAMESPACE``       where the lease of leadership lives
``CARREL_GPU_IMAGE``       image of the pods that hold shared GPUs; without it no GPU is shared
=========================  =====================================================================

It says ``ready`` on its standard output once it places pods, and ends on SIGTERM.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from carrel_scheduler.engines.contract import (
    EngineError,
    ExecSession,
    LogRequest,
    TaskId,
    TaskSpec,
    TaskStatus,
    UnknownTask,
)
from carrel_scheduler.engines.external import ExternalPods, ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods.executor import BindingFenced, ExecutorLimits
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import (
    NO_PROVISIONING,
    ExternalPodReconciler,
)
from carrel_scheduler.engines.kubernetes.external_pods.watchers import ExternalPodRunner, Feeds
from carrel_scheduler.engines.kubernetes.leadership import (
    Clocks,
    Leader,
    LeadershipLost,
    StateFolderLock,
)
from carrel_scheduler.engines.kubernetes.provisioning.types import ProvisioningSettings
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import ReservationSettings
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import GpuReservations
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import find
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.secret_keys import KEYS_FILE, SecretKeys
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, TaskTokens
from carrel_scheduler.workloads.reconcile.executor import Executor, HubRefused
from carrel_scheduler.workloads.reconcile.reconciler import Reconciler
from carrel_scheduler.workloads.reconcile.recovery import recover
from carrel_scheduler.workloads.reconcile.watchers import watch_projects, watch_workloads
from carrel_schema.objects import Workload


class NoTasks:
    """An engine without tasks: all work is external pods."""

    async def start(self, task: TaskSpec) -> None:
        """Refuses."""
        raise EngineError(f"{task.id}: this scheduler places pods that others made, and no others")

    def interrupt_start(self, task: TaskId) -> None:
        """Do nothing: nothing is started."""

    async def stop(self, task: TaskId, grace_seconds: float) -> None:
        """Raises ``UnknownTask``: there are no tasks."""
        raise UnknownTask(f"{task} (to end within {grace_seconds} s)")

    async def list(self) -> Sequence[TaskStatus]:
        """None."""
        return ()

    async def watch(self) -> AsyncIterator[TaskStatus]:
        """Yield nothing: there are no tasks."""
        nothing: Sequence[TaskStatus] = ()
        for status in nothing:
            yield status

    async def forget(self, task: TaskId) -> None:
        """Raises ``UnknownTask``: there are no tasks."""
        raise UnknownTask(str(task))

    async def remove_workload(self, workload_uid: str) -> None:
        """No effect: there are no tasks."""

    async def logs(self, workload_uid: str, _request: LogRequest) -> AsyncIterator[bytes]:
        """None."""
        nothing: Sequence[bytes] = ()
        for chunk in nothing:
            yield chunk + workload_uid.encode()

    async def exec(self, task: TaskId, command: Sequence[str]) -> ExecSession:
        """Raises ``UnknownTask``: there are no tasks."""
        raise UnknownTask(f"{task}: {command}")

    async def close(self) -> None:
        """No effect: there is nothing to release."""


class NoHub:
    """Refuses to start workspaces: there is no Hub."""

    async def start_workspace(self, workload: Workload) -> None:
        """Refuses."""
        raise HubRefused(f"no Hub starts {workload.meta.name}")


@dataclass(frozen=True, slots=True)
class Standalone:
    """The parts of a scheduler that schedules external pods only.

    Attributes:
        client: of the API server; ``ledger``: has the projects, takes the history.
        launch: settings of tasks that there are none of.
        instance: the name of this process.
        now: epoch seconds.
        leader: claims the lease; ``None``: nobody else schedules here, in epoch ``epoch``.
        ours: the cluster knows our kinds: groups of nodes and of pods are followed.
        provisioning: how nodes are asked for.
        gpu_image: of the pods that hold shared GPUs; empty: no GPU is shared.
    """

    client: KubeClient
    ledger: Ledger
    launch: LaunchSettings
    instance: str
    now: Callable[[], float]
    leader: Leader | None = None
    epoch: int = 0
    limits: ExecutorLimits = field(default_factory=ExecutorLimits)
    stale_grace_s: float = 60.0
    ours: bool = False
    provisioning: ProvisioningSettings = NO_PROVISIONING
    gpu_image: str = ""

    async def run(self, stop: asyncio.Event, began: asyncio.Event) -> None:
        """Schedule until ``stop``; ``began`` is set once the first turn may come.

        Raises, in a group: ``LeadershipLost``, ``BindingFenced``, what the ledger or the API
            refuses.
        """
        if self.leader is None:
            await self._run(stop, began, self.epoch)
            return
        epoch = await self.leader.acquire()
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self.leader.keep())
                await self.leader.fenced()
                await self._run(stop, began, epoch)
                keeping.cancel()
        finally:
            await self.leader.release()

    async def _run(self, stop: asyncio.Event, began: asyncio.Event, epoch: int) -> None:
        made: list[ExternalPodReconciler] = []

        def external_pods(access: ReconcilerAccess) -> ExternalPods:
            made.append(
                ExternalPodReconciler(
                    access, stale_grace_s=self.stale_grace_s, provisioning=self.provisioning
                )
            )
            return made[0]

        executor = Executor(NoTasks(), self.ledger, self.launch, NoHub())
        loop = Reconciler(self.ledger, executor, clock=self.now, external_pods=external_pods)
        feeds = Feeds.of(self.client, ours=self.ours)
        gpus = self._gpus(feeds, epoch) if self.gpu_image else None
        work = ExternalPodRunner(
            self.client,
            feeds,
            made[0],
            self.ledger,
            loop.enqueue,
            loop.cache.projects,
            epoch=epoch,
            instance=self.instance,
            now=self.now,
            limits=self.limits,
            gpus=gpus,
        )
        projects, workloads = await recover(loop, (), ())
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work.run(began, loop.epoch))]
                if gpus is not None:
                    tasks.append(group.create_task(gpus.run()))
                await began.wait()
                tasks += [
                    group.create_task(watch_projects(self.ledger, loop, projects)),
                    group.create_task(watch_workloads(self.ledger, loop, workloads)),
                    group.create_task(loop.run()),
                ]
                await stop.wait()
                for task in tasks:
                    task.cancel()
        finally:
            if gpus is not None:
                await gpus.close()
            await feeds.close()
            await work.executor.flush()

    def _gpus(self, feeds: Feeds, epoch: int) -> GpuReservations:
        settings = ReservationSettings(image=self.gpu_image)
        return GpuReservations(self.client, feeds.pods, settings, epoch=lambda: epoch, now=self.now)


async def serve() -> None:
    """Run until SIGTERM or SIGINT."""
    stop, began = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    state = Path(os.environ["CARREL_STATE_DIR"])
    ledger = await open_ledger(
        os.environ["CARREL_DATABASE_URL"],
        clock=time.time,
        ids=lambda: uuid.uuid4().hex,
        keys=SecretKeys.load_or_create(state / KEYS_FILE),
    )
    client = KubeClient(find())
    instance = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
    namespace = os.environ["CARREL_NAMESPACE"]
    lock = StateFolderLock(state)
    clocks = Clocks(time.monotonic, time.time)
    leader = Leader(client, namespace, instance, clocks, state_folder=lock.name)
    launch = LaunchSettings(api_url="", checkpoint_root=state, tokens=TaskTokens(os.urandom(32)))
    image = os.environ.get("CARREL_GPU_IMAGE", "")
    scheduler = Standalone(client, ledger, launch, instance, time.time, leader, gpu_image=image)
    said = asyncio.create_task(_say(began))
    try:
        await scheduler.run(stop, began)
    finally:
        said.cancel()
        await client.close()
        await ledger.close()
        lock.close()


async def _say(began: asyncio.Event) -> None:
    await began.wait()
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def main() -> None:
    """Entry point."""
    logging.basicConfig(level=os.environ.get("CARREL_LOG_LEVEL", "INFO"))
    try:
        asyncio.run(serve())
    except* (LeadershipLost, BindingFenced) as errors:
        sys.exit(f"carrel-scheduler: {errors.exceptions[0]}")


if __name__ == "__main__":
    main()
