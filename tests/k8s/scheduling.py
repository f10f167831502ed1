"""A scheduler of external pods on the real API server, with Node objects and simulated kubelets.

Each test has its own namespaces, projects and nodes; its pods go to its nodes only, by a label.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.external_pods.executor import ExecutorLimits
from carrel_scheduler.engines.kubernetes.external_pods.reconciler import NO_PROVISIONING
from carrel_scheduler.engines.kubernetes.leadership import Clocks, Leader
from carrel_scheduler.engines.kubernetes.provisioning.types import ProvisioningSettings
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.errors import AlreadyExists, Conflict, NotFound
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.resources import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, TaskTokens
from carrel_schema.objects import Meta, Project, ProjectSpec, Quota
from contract.ledger.copied_ledgers import empty_ledger
from k8s.kubelets import Kubelets, Pod, ready
from k8s.standalone import Standalone

TIMEOUT_SECONDS: Final = 180.0
ONLY: Final = "carrel.test/only"
GPU: Final = "nvidia.com/gpu"


@dataclass
class Site(Kubelets):
    """The objects of one test on the cluster.

    Attributes:
        labels: of its namespaces.
    """

    ledger: Ledger
    folder: Path
    labels: dict[str, str] = field(default_factory=dict)

    def project(self, word: str) -> str:
        return f"{self.name}-{word}"

    def namespace(self, word: str) -> str:
        return f"carrel-{self.project(word)}"

    async def add_project(self, word: str, gpus: int) -> None:
        name, namespace = self.project(word), self.namespace(word)
        spec = ProjectSpec(quota=Quota(gpu_milli=1000 * gpus))
        await self.ledger.create(Project(meta=Meta(name=name), spec=spec))
        await self.client.create(
            NAMESPACES, {"metadata": {"name": namespace, "labels": self.labels}}
        )
        with suppress(AlreadyExists):
            await self.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace)

    async def add_nodes(self, count: int, gpus: int = 4) -> None:
        for number in range(count):
            await self.add_node(f"{self.name}-{number}", gpus)

    async def add_node(self, name: str, gpus: int = 4, **more: str) -> None:
        """A node with so many GPUs; ``more`` are labels of it."""
        amounts = {GPU: str(gpus), "cpu": "64", "memory": "256Gi", "pods": "60"}
        labels = {ONLY: self.name, "kubernetes.io/hostname": name, **more}
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": amounts, "allocatable": amounts, **ready()},
        }
        self.nodes[name] = await self.client.create(NODES, body)
        # New nodes have a taint until a controller has seen that they are ready.
        await self.client.patch(NODES, name, {"spec": {"taints": None}})

    def pod(self, name: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
        """A pod of one container; ``more`` goes into its specification."""
        return {"metadata": {"name": name}, "spec": self.template(gpus, **more)}

    def template(self, gpus: int = 1, **more: Any) -> dict[str, Any]:
        asked = {"cpu": "1", "memory": "1Gi", GPU: str(gpus)}
        resources = {"requests": asked, "limits": {GPU: str(gpus)}}
        return {
            "schedulerName": "carrel",
            "nodeSelector": {ONLY: self.name},
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **more,
        }

    async def add_pod(self, word: str, name: str, gpus: int = 1, **more: Any) -> None:
        await self.client.create(PODS, self.pod(name, gpus, **more), self.namespace(word))

    # What is seen

    def of(self, word: str) -> dict[str, Pod]:
        """The pods of a project, by name."""
        namespace = self.namespace(word)
        found = [pod for pod in self.pods.values() if pod.metadata.namespace == namespace]
        return {pod.metadata.name: pod for pod in found}

    def bound(self, word: str) -> dict[str, Pod]:
        return {
            name: pod
            for name, pod in self.of(word).items()
            if pod.spec.node_name and not pod.ended and not pod.metadata.deletion_timestamp
        }

    async def until(self, found: Callable[[], Any], what: str) -> Any:
        """The result of ``found`` once there is one."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (answer := found()):
            self.changed.clear()
            left = deadline - time.monotonic()
            assert left > 0, f"no {what} after {TIMEOUT_SECONDS:g} s; {self._pods_told()}"
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, 0.5)):
                    await self.changed.wait()
        return answer

    def _pods_told(self) -> str:
        """The pods with their nodes and what they were told, for the message of a failure."""
        lines = [
            f"{name} on {pod.spec.node_name or 'no node'}: "
            + "; ".join(one.message for one in pod.status.conditions if one.message)
            for name, pod in sorted(
                ((pod.metadata.name, pod) for pod in self.pods.values()), key=lambda one: one[0]
            )
        ]
        return "pods: " + (", ".join(lines) or "none")

    async def check_devices(self) -> None:
        """Fail if a device has two pods, by a list of the server: a watch shows several times."""
        taken: dict[tuple[str, str], str] = {}
        for pod in (await self.client.list(PODS, Pod)).items:
            if not pod.spec.node_name or pod.ended:
                continue
            text = pod.metadata.annotations.get("carrel.dev/devices", "")
            for device in text.split(",") if text else ():
                key = (pod.spec.node_name, device)
                assert key not in taken, f"{key}: {taken[key]} and {pod.metadata.name}"
                taken[key] = pod.metadata.name

    async def clear(self) -> None:
        for name in list(self.nodes):
            with suppress(NotFound):
                await self.client.delete(NODES, name)
        for pod in list(self.pods.values()):
            meta = pod.metadata
            with suppress(NotFound, Conflict):
                await self.client.delete(PODS, meta.name, meta.namespace, grace_seconds=0)

    # The scheduler

    def scheduler(
        self,
        instance: str = "one",
        leader: Leader | None = None,
        client: KubeClient | None = None,
        stale_grace_s: float = 3.0,
        limits: ExecutorLimits | None = None,
        clock: Callable[[], float] = time.time,
        ours: bool = False,
        provisioning: ProvisioningSettings = NO_PROVISIONING,
    ) -> Standalone:
        launch = LaunchSettings(
            api_url="", checkpoint_root=self.folder, tokens=TaskTokens(b"k" * 32)
        )
        return Standalone(
            client or self.client,
            self.ledger,
            launch,
            f"{self.name}-{instance}",
            clock,
            leader,
            limits=limits or ExecutorLimits(notifications_per_second=50.0),
            stale_grace_s=stale_grace_s,
            ours=ours,
            provisioning=provisioning,
        )

    def leader(
        self,
        namespace: str,
        instance: str,
        client: KubeClient | None = None,
        duration: float = 3.0,
    ) -> Leader:
        clocks = Clocks(time.monotonic, time.time)
        return Leader(client or self.client, namespace, instance, clocks, duration)


async def comes_to_be(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask the API server until it says so."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await holds():  # noqa: ASYNC110 - it is the API server that is asked
            await asyncio.sleep(0.2)


@asynccontextmanager
async def simulated_kubelets(here: Site) -> AsyncIterator[None]:
    """The nodes of a site are ready, and its pods run and end, inside the block."""
    feed = Feed(here.client, PODS, Pod)
    tasks = [asyncio.create_task(one) for one in (here.watch(feed), here.beat(), here.tend_again())]
    try:
        await feed.synced()
        yield
        for task in tasks:
            assert not task.done() or task.result() is None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await here.clear()
        await feed.close()


@asynccontextmanager
async def running(scheduler: Standalone) -> AsyncIterator[None]:
    """A scheduler at work, in this process."""
    stop, began = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(scheduler.run(stop, began))
    begun = asyncio.create_task(began.wait())
    await asyncio.wait([task, begun], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield
    finally:
        begun.cancel()
        stop.set()
        await task


@asynccontextmanager
async def site(
    kubeconfig: Path, folder: Path, kind: Callable[[KubeClient, Ledger, Path], Site] | None = None
) -> AsyncIterator[Site]:
    """A test's part of the cluster; its nodes and pods are gone at the end."""
    client = KubeClient(from_kubeconfig(kubeconfig))
    ledger = await open_ledger(
        empty_ledger(folder / "ledger.sqlite"), clock=time.time, ids=lambda: uuid.uuid4().hex
    )
    try:
        made = (kind or Site)(client, ledger, folder)
        async with simulated_kubelets(made):
            yield made
    finally:
        await client.close()
        await ledger.close()
