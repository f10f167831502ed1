"""The objects of a fault story: projects, nodes, external pods and workloads.

The kubelet is simulated, the scheduler is real: a process of its own (``scheduler_processes``).
"""

import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from carrel_scheduler.engines.kubernetes.pods.types import Pod as OfScheduler
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.errors import KubeError, NotFound
from carrel_scheduler.kube.resources import LEASES, PODS
from carrel_scheduler.ledger.resources.kinds import WORK
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.resources.rows import open_rows
from carrel_scheduler.ledger.resources.store import KubernetesStore
from carrel_schema.names import LEASE, TASK, WORKLOAD_UID
from carrel_schema.objects import Workload
from k8s.kubelets import Pod
from k8s.scheduling import GPU, Site, simulated_kubelets
from k8s.stores import remove_everything

SECURE: Final = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
}
NO_FINALIZERS: Final = {"metadata": {"finalizers": None}}


@dataclass
class TaskSite(Site):
    """The objects of a test whose pods are tasks, too: their containers say how they are."""

    @override
    async def say(self, pod: OfScheduler, phase: str) -> None:
        """Write the status of a pod, and of its containers with it."""
        meta, now = pod.metadata, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        running = phase == "Running"
        state: dict[str, Any] = {"running": {"startedAt": now}}
        if not running:
            code = 0 if phase == "Succeeded" else 143
            state = {"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}}
        containers = [
            {"name": one.name, "image": "none", "imageID": "", "ready": running}
            | {"restartCount": 0, "state": state}
            for one in pod.spec.containers
        ]
        body = {
            "metadata": {"uid": meta.uid},
            "status": {
                "phase": phase,
                "conditions": [{"type": "Ready", "status": str(running)}],
                "containerStatuses": containers,
            },
        }
        how = PatchKind.STRATEGIC
        await self.client.patch(PODS, meta.name, body, meta.namespace, sub="status", how=how)


@dataclass
class FaultSite(TaskSite):
    """The objects of one story; ``ledger`` is one of custom resources."""

    @override
    def template(self, gpus: int = 1, **more: Any) -> dict[str, Any]:
        """The template with the security context that namespaces of projects require."""
        made = super().template(gpus, **SECURE, **more)
        made["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        return made

    async def add_work(
        self, word: str, name: str, kind: str, tasks: int, gpus: int, **more: Any
    ) -> None:
        """Create a workload as ``kubectl`` does; ``more`` goes into its specification."""
        resource = WORK["distributed" if kind == "distributed" else "training"].resource
        spec: dict[str, Any] = {
            "user": "ada",
            "command": ["true"],
            "graceSeconds": 5,
            "resources": {"gpus": gpus, "cpu": "100m", "memory": "64Mi"},
            **more,
        }
        if tasks > 1:
            spec["tasks"] = tasks
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.client.create(resource, manifest, self.namespace(word))

    def tasks_of(self, uid: str) -> list[Pod]:
        """Pods of a workload that have a node and have not ended."""
        return [
            pod
            for word in "ab"
            for pod in self.bound(word).values()
            if pod.metadata.labels.get(WORKLOAD_UID) == uid
        ]

    async def work(self) -> dict[str, Workload]:
        """The workloads as their objects show them, by name."""
        return {one.meta.name: one for one in (await self.ledger.list(Workload)).items}

    async def check_room(self) -> None:
        """Fail if a node has more GPUs allocated than it has, or a device has two pods."""
        await self.check_devices()
        given: Counter[str] = Counter()
        for pod in (await self.client.list(PODS, Pod)).items:
            if pod.spec.node_name and not pod.ended:
                asked = [one.resources.requests.get(GPU, 0) for one in pod.spec.containers]
                given[pod.spec.node_name] += sum(int(one) for one in asked)
        for node, gpus in given.items():
            if node in self.nodes:
                there = int(self.nodes[node]["status"]["allocatable"][GPU])
                assert gpus <= there, f"{gpus} GPUs of the {there} of {node} are given away"

    @override
    async def clear(self) -> None:
        """Remove everything, also pods whose finalizer waits for a scheduler that has ended."""
        for pod in (await self.client.list(PODS, Pod)).items:
            meta = pod.metadata
            with suppress(NotFound):
                if TASK in meta.labels:
                    await self.client.patch(PODS, meta.name, NO_FINALIZERS, meta.namespace)
                await self.client.delete(PODS, meta.name, meta.namespace, grace_seconds=0)
        await remove_everything(KubernetesStore(self.client, clock=float, ids=str))
        await super().clear()


@asynccontextmanager
async def fault_site(kubeconfig: Path, folder: Path, lease_in: str) -> AsyncIterator[FaultSite]:
    """The objects of a story; they and the lease are removed at the end."""
    client = KubeClient(from_kubeconfig(kubeconfig))
    rows = await open_rows(database(folder), clock=time.time, ids=lambda: uuid.uuid4().hex)
    ledger = KubernetesLedger(client, rows, clock=time.time, ids=lambda: uuid.uuid4().hex)
    made = FaultSite(client, ledger, folder)
    try:
        async with simulated_kubelets(made):
            yield made
    finally:
        with suppress(KubeError):
            await client.delete(LEASES, LEASE, lease_in)
        await ledger.close()
        await client.close()


def database(folder: Path) -> str:
    """The URL of a story's database."""
    return f"sqlite:///{folder}/rows.sqlite"
