"""The whole way of shares on a cluster, with the installation's rights and policies.

Jobs and a pod that somebody else made share GPUs that a kubelet gives; the scheduler is killed; the
pod that holds a GPU is deleted.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carrel_schema.names import GPU_UUIDS, RESERVATIONS_NAMESPACE
from carrel_schema.shared_gpus import variables
from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster_engines import until
from k8s.cluster_service import ClusterService
from k8s.device_plugin import UUIDS, labelled
from k8s.ours import DEPLOY, Kubectl, kubectl, ours
from k8s.served import served

__all__ = ["kubectl", "ours"]  # fixtures
pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
PROJECT = "prisms"
SPACE = f"carrel-{PROJECT}"
SAYS = ["sh", "-c", "echo has $NVIDIA_VISIBLE_DEVICES $CARREL_GPU_MEMORY_MIB; sleep 600"]


@pytest.fixture
async def service(
    plugged: Node, images: Images, ours: object, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[ClusterService]:
    for part in (
        "scheduler/reservations.yaml",
        "policies/pods.yaml",
        "policies/external-pods.yaml",
    ):
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEPLOY / part))
    kubectl("apply", "--server-side", "-f", str(DEPLOY / "policies/scheduler.yaml"))
    with labelled(plugged, {"nvidia.com/gpu.memory": "16384"}):
        async with served(plugged, images, kubectl, tmp_path, (PROJECT,), gpus=2) as made:
            yield made


def reservations(kubectl: Kubectl) -> dict[str, str]:
    """Phases of the pods that hold GPUs, by name."""
    found = json.loads(kubectl("get", "pods", "-n", RESERVATIONS_NAMESPACE, "-o", "json"))
    return {one["metadata"]["name"]: one["status"]["phase"] for one in found["items"]}


def brought(
    image: str, space: str = SPACE, key: str = "gpu-fraction", value: str = "0.5"
) -> dict[str, Any]:
    """A pod of somebody else, that asks by annotation for a part of a GPU."""
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": SAYS,
        "env": variables(),
        "securityContext": secure,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "brought", "namespace": space, "annotations": {key: value}},
        "spec": {
            "schedulerName": "carrel",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }


async def told(service: ClusterService, name: str, **query: str) -> list[str]:
    """What a job says it has: a GPU, and how much of it."""
    text = await service.said(PROJECT, name, "\n", **query)
    return text.splitlines()[0].split()[1:]


async def test_jobs_and_pods_share_gpus_whatever_happens_to_who_gives_them(
    service: ClusterService, kubectl: Kubectl, plugged: Node, images: Images
) -> None:
    for name in ("one", "two"):
        await service.submit(PROJECT, name, gpus=0.5, command=SAYS, grace_seconds=2)
    small = await service.submit(
        PROJECT, "small", gpu_memory_bytes=4 * 2**30, command=SAYS, grace_seconds=2
    )
    assert small
    first = await told(service, "one")
    assert first == await told(service, "two")
    assert (first[0] in UUIDS, first[1]) == (True, "8192")
    other = await told(service, "small")
    assert {first[0], other[0]} == set(UUIDS)
    assert other[1] == "4096"
    typed: dict[str, Any] = {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": "Training",
        "metadata": {"name": "typed", "namespace": SPACE},
        "spec": {"user": "ada", "command": SAYS, "graceSeconds": 2},
    }
    typed["spec"]["resources"] = {"gpuMemory": "2Gi", "cpu": "50m", "memory": "64Mi"}
    applied = await asyncio.to_thread(kubectl.apply, typed)
    assert applied.code == 0, applied.error
    assert await told(service, "typed") == [other[0], "2048"]

    await service.restart()
    await asyncio.to_thread(kubectl.apply, brought(images.on(plugged, "trainer").name))
    ready = ("wait", "--for=condition=Ready", "--timeout=120s", "pod/brought", "-n", SPACE)
    await asyncio.to_thread(kubectl, *ready)
    notes = json.loads(kubectl("get", "pod", "brought", "-n", SPACE, "-o", "json"))["metadata"]
    assert notes["annotations"][GPU_UUIDS] == other[0], "the other GPU has room"
    node = next(
        one for one in (await service.ask("GET", "/nodes"))["items"] if one["name"] == plugged.name
    )
    assert (node["gpu_milli"], node["gpu_allocated_milli"]) == (2000, 1000 + 260 + 130 + 500)
    held = reservations(kubectl)
    assert len(held) == 2

    index = (await service.status(PROJECT, "one"))["tasks"][0]["devices"][0]
    lost = next(name for name in held if name.startswith(f"gpu-{index}-"))
    await asyncio.to_thread(
        kubectl, "delete", "pod", lost, "-n", RESERVATIONS_NAMESPACE, "--wait=false"
    )
    for name in ("one", "two"):
        after = await service.until(PROJECT, name, lambda status: status["attempt"] == 1)
        assert after["failures"] == 0
    again = await told(service, "one", attempt="1")
    assert again == await told(service, "two", attempt="1")
    assert set(reservations(kubectl).values()) == {"Running"}

    await asyncio.to_thread(kubectl, "delete", "pod", "brought", "-n", SPACE)
    await service.end_all([PROJECT])

    async def nothing_is_held() -> bool:
        return not await asyncio.to_thread(reservations, kubectl)

    await until(nothing_is_held)

    pair = {"gpus": 0.25, "gpu_devices": 2}
    await service.submit(PROJECT, "pair", command=SAYS, grace_seconds=2, **pair)
    both, memory = await told(service, "pair")
    assert (set(both.split(",")), memory) == (set(UUIDS), "4096")
    assert len(reservations(kubectl)) == 2
    await service.end_all([PROJECT])
    await until(nothing_is_held)
