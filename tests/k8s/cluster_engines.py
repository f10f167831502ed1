"""Engines over one cluster, and the end of everything that a test started with them."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.engines.kubernetes.tasks.engine import KubernetesEngine
from carrel_scheduler.engines.kubernetes.tasks.settings import FINALIZER, PodSettings
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod, pod_name
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.errors import AlreadyExists, NotFound
from carrel_scheduler.kube.resources import (
    LEASES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICE_ACCOUNTS,
)
from carrel_schema import names
from contract.engine_tasks import PROJECT
from k8s.cluster.node import Node

NAMESPACE = names.namespace_of(PROJECT)
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def storage_of(node: Node) -> Path:
    """The folder of a node's machine that is the projects' storage."""
    folder = node.kubeconfig.parent / "storage"
    folder.mkdir(exist_ok=True)
    return folder


class ClusterEngines:
    """Opens engines over the same cluster; see ``contract.engine_tasks.Engines``."""

    def __init__(self, kubeconfig: Path, node: str, image: str, storage: Path) -> None:
        self.node = node
        self.client = KubeClient(from_kubeconfig(kubeconfig))
        self.settings = PodSettings(image=image, pull_policy="Never")
        self._storage, self._turn = storage, 0
        self._open: list[KubernetesEngine] = []

    async def open(self, **options: Any) -> KubernetesEngine:
        """Open another engine over the cluster."""
        engine = KubernetesEngine(self.client, self.settings, epoch=self._epoch, **options)
        self._open.append(engine)
        return engine

    async def offer_storage(self, namespace: str) -> None:
        """A volume for a project's claim: a folder of this machine."""
        folder = self._storage / namespace
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        with suppress(AlreadyExists):
            await self.client.create(PERSISTENT_VOLUMES, _volume(namespace, folder))

    async def prepare(self, namespace: str = NAMESPACE) -> None:
        """A project's namespace with its storage."""
        await self.offer_storage(namespace)
        space = {"metadata": {"name": namespace, "labels": RESTRICTED}}
        for resource, wanted, within in (
            (NAMESPACES, space, ""),
            (PERSISTENT_VOLUME_CLAIMS, _claim(namespace), namespace),
        ):
            with suppress(AlreadyExists):
                await self.client.create(resource, wanted, within)

        async def complete() -> bool:
            claim = await self.client.get(
                PERSISTENT_VOLUME_CLAIMS, names.CHECKPOINTS_CLAIM, namespace
            )
            accounts = await self.client.list(SERVICE_ACCOUNTS, namespace=namespace)
            return bool(claim["status"].get("phase") == "Bound" and accounts.items)

        await until(complete)
        self._turn = await self._leads()

    async def _leads(self) -> int:
        """The epoch that the cluster takes bindings of, where it looks at them."""
        lease = {"metadata": {"name": names.LEASE}, "spec": {"leaseTransitions": 1}}
        with suppress(AlreadyExists):
            space = {"metadata": {"name": names.SYSTEM_NAMESPACE}}
            await self.client.create(NAMESPACES, space)
        with suppress(AlreadyExists):
            await self.client.create(LEASES, lease, names.SYSTEM_NAMESPACE)
        found = await self.client.get(LEASES, names.LEASE, names.SYSTEM_NAMESPACE)
        return int(found["spec"]["leaseTransitions"])

    def _epoch(self) -> int:
        return self._turn

    async def lose(self, task: TaskSpec) -> None:
        """Take a task's pod away as a controller does when its node is gone."""
        await self.client.delete(PODS, pod_name(task.id), NAMESPACE, grace_seconds=0)

    async def clean(self) -> None:
        """Close all engines and end all tasks."""
        for engine in self._open:
            await engine.close()
        listing = await self.client.list(PODS, TaskPod, label_selector=names.TASK)
        for pod in listing.items:
            meta = pod.metadata
            body = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
            with suppress(NotFound):
                await self.client.patch(
                    PODS, meta.name, body, meta.namespace, how=PatchKind.STRATEGIC
                )
                await self.client.delete(PODS, meta.name, meta.namespace, grace_seconds=0)
        for part in ("checkpoints", "events"):
            shutil.rmtree(self._storage / NAMESPACE / part, ignore_errors=True)
        await self.client.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what nobody tells us of, for a bounded time."""
    async with asyncio.timeout(180):
        while not await condition():  # noqa: ASYNC110 - another process sets no event of ours
            await asyncio.sleep(0.05)


def _volume(name: str, folder: Path) -> dict[str, Any]:
    return {
        "metadata": {"name": f"storage-{name}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": name, "name": names.CHECKPOINTS_CLAIM},
        },
    }


def _claim(namespace: str) -> dict[str, Any]:
    return {
        "metadata": {"name": names.CHECKPOINTS_CLAIM, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": f"storage-{namespace}",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
