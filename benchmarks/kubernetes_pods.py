"""Pods as a busy cluster has them: several kilobytes each, most of it of no use to a scheduler.

They are written to a real API server in the steps in which a cluster writes them, so the server
adds what it adds there: defaults, the token's volume, and who manages which field.
"""

import asyncio
from functools import partial
from typing import Any, Final

from benchmarks.kubernetes_cluster import Cluster, add_namespace, add_nodes
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import Conflict
from carrel_scheduler.kube.resources import PODS
from carrel_scheduler.kube.writes import Writer

NAMESPACE: Final = "carrel-vision"
NODES: Final = 50
_AT: Final = "2026-01-05T10:00:00Z"
_IMAGE: Final = "registry.example.org/research/vision-trainer:2026.1"
_DIGEST: Final = "sha256:" + "0123456789abcdef" * 4


async def fill(cluster: Cluster, count: int) -> None:
    """Nodes, and so many pods that run on them."""
    client = cluster.client()
    await add_nodes(client, NODES)
    await add_namespace(client, NAMESPACE)
    async with Writer(32) as writer:
        await asyncio.gather(*(writer.submit(partial(_run, client, n)) for n in range(count)))
    await client.close()


async def _run(client: KubeClient, number: int) -> None:
    """Create a pod, bind it, and tell that it runs, as a scheduler and a kubelet do."""
    name = name_of(number)
    made = await client.create(PODS, pod(number), NAMESPACE)
    target = {"kind": "Node", "name": f"node-{number % NODES:05}"}
    metadata = {"name": name, "uid": made["metadata"]["uid"]}
    body = {"metadata": metadata, "target": target}
    try:
        await client.post_sub(PODS, name, "binding", body, NAMESPACE)
    except Conflict as error:
        if not error.retried:  # else an earlier try, whose answer was lost, has done it
            raise
    await tell(client, number, restarts=0)


async def tell(client: KubeClient, number: int, restarts: int) -> None:
    """Write a pod's status as a kubelet does; another number of restarts is a change."""
    await client.patch(
        PODS,
        name_of(number),
        {"status": status(number, restarts)},
        NAMESPACE,
        "status",
        PatchKind.STRATEGIC,
        field_manager="kubelet",
    )


def name_of(number: int) -> str:
    """A pod's name."""
    return f"train-{number:05}-worker-0"


def pod(number: int) -> dict[str, Any]:
    """A pod of one container of a training."""
    labels = {
        "app.kubernetes.io/name": "trainer",
        "app.kubernetes.io/part-of": f"train-{number:05}",
        "carrel.dev/project": "vision",
        "carrel.dev/workload": f"train-{number:05}",
        "carrel.dev/task-index": "0",
        "carrel.dev/user": f"user-{number % 40}",
    }
    return {
        "metadata": {
            "name": name_of(number),
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
        },
        "spec": {
            "schedulerName": "carrel",
            "restartPolicy": "Never",
            "containers": [_container(number)],
            "volumes": _volumes(),
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 60,
        },
    }


def _container(number: int) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    environment = {
        "CARREL_TASK": f"train-{number:05}-0-1",
        "CARREL_CHECKPOINT_DIR": "/checkpoints",
        "NCCL_DEBUG": "WARN",
        "OMP_NUM_THREADS": "4",
        "PYTHONUNBUFFERED": "1",
        "TORCH_HOME": "/data/torch",
    }
    return {
        "name": "trainer",
        "image": _IMAGE,
        "command": ["python", "-m", "train", "--config", f"/data/configs/run-{number}.yaml"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "resources": {"requests": amounts, "limits": amounts},
        "ports": [{"name": "metrics", "containerPort": 9090}],
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "checkpoints", "mountPath": "/checkpoints"},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's own
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _volumes() -> list[dict[str, Any]]:
    return [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
    ]


def status(number: int, restarts: int) -> dict[str, Any]:
    """The status that a kubelet writes for a running pod."""
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    address = f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"
    container = {
        "name": "trainer",
        "image": _IMAGE,
        "imageID": f"{_IMAGE.partition(':')[0]}@{_DIGEST}",
        "containerID": f"containerd://{number:064x}",
        "ready": True,
        "started": True,
        "restartCount": restarts,
        "state": {"running": {"startedAt": _AT}},
    }
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _AT} for kind in kinds
        ],
        "hostIP": "192.0.2.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": _AT,
        "containerStatuses": [container],
    }
