"""Jobs with parts of GPUs on a node whose driver lets claims share them, with the whole service.

Each gets its part by a claim that the scheduler makes, with the installation's rights and policies;
the kubelet has the driver prepare it. A part is what the device consumed says, counted once, known
again after a restart, and given to the next when its task has ended.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.pods.quantities import nanos
from carrel_schema.names import namespace_of
from k8s.cluster.ground import Ground
from k8s.cluster.loading import Images
from k8s.cluster_engines import until
from k8s.cluster_service import ClusterService
from k8s.device_driver import DRIVER, DeviceDriver, driven_node
from k8s.ours import DEPLOY, Kubectl, kubectl, ours
from k8s.served import served

__all__ = ["kubectl", "ours"]  # fixtures
pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
PROJECT = "mirrors"
SPACE = namespace_of(PROJECT)
CLASS = "shared-gpus-of-tasks"
SCRIPT = """
env | grep ^FAKE_GPU | sort
echo has $NVIDIA_VISIBLE_DEVICES $CARREL_GPU_MEMORY_MIB
cat /dev/carrel-gpu/limits
echo .
sleep 600
"""
SAYS = ["sh", "-c", SCRIPT]


@pytest.fixture(scope="module")
def driver(nodes_ground: Ground) -> Iterator[DeviceDriver]:
    """A node of its own with a driver of two GPUs of 80 GiB, which claims share."""
    options = ("--shared", "--memory=80Gi")
    with driven_node(nodes_ground, "worker-8", ("gpu-0", "gpu-1"), options) as made:
        yield made


@pytest.fixture
async def service(
    driver: DeviceDriver, images: Images, ours: object, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[ClusterService]:
    kubectl("apply", "--server-side", "-f", str(DEPLOY / "policies/scheduler.yaml"))
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": spec}
    kubectl.apply({**body, "metadata": {"name": CLASS}})
    chosen = {"CARREL_GPU_DEVICE_CLASS": CLASS}
    async with served(
        driver.node, images, kubectl, tmp_path, (PROJECT,), gpus=2, settings=chosen
    ) as made:
        yield made
    kubectl("delete", "deviceclass", CLASS)


async def has(service: ClusterService, name: str) -> tuple[list[tuple[str, int]], list[str]]:
    """The devices and parts, in GiB, that a job's container was given; what it says and limits."""
    text = await service.said(PROJECT, name, "\n.\n")
    lines = text.splitlines()[:-1]
    given = [line.partition("=")[2] for line in lines if line.startswith("FAKE_GPU")]
    parts = [one.partition(" memory=") for one in given]
    told = [line for line in lines if not line.startswith("FAKE_GPU")]
    return [(device, nanos(memory) // nanos("1Gi")) for device, _, memory in parts], told


async def on_node(service: ClusterService, name: str) -> tuple[int, int]:
    nodes = (await service.ask("GET", "/nodes"))["items"]
    found = next(one for one in nodes if one["name"] == name)
    return found["gpu_milli"], found["gpu_allocated_milli"]


def claims(kubectl: Kubectl) -> list[dict[str, Any]]:
    return list(json.loads(kubectl("get", "resourceclaims", "-n", SPACE, "-o", "json"))["items"])


async def test_jobs_get_parts_of_gpus_by_claims_and_give_them_back(
    service: ClusterService, kubectl: Kubectl, driver: DeviceDriver
) -> None:
    name = driver.node.name

    async def submit(job: str, **asked: Any) -> None:
        await service.submit(PROJECT, job, command=SAYS, grace_seconds=1, **asked)

    await submit("half", gpus=0.5)
    [(device, gib)], told = await has(service, "half")
    assert (device in ("gpu-0", "gpu-1"), gib) == (True, 40)
    assert told == [f"has GPU-{device} 40960", f"GPU-{device} {40 * 2**30}"]
    await submit("memory", gpu_memory_bytes=8 * 2**30)
    [(where, gib)], told = await has(service, "memory")
    assert (where, gib, told[0]) == (device, 8, f"has GPU-{device} 8192")
    await submit("whole", gpus=1)
    [(other, gib)], _ = await has(service, "whole")
    assert (other != device, gib) == (True, 80)
    assert await on_node(service, name) == (2000, 1000 + 500 + 110), "counted once"

    await submit("pair", gpus=0.25, gpu_devices=2)
    await service.restart()
    assert await on_node(service, name) == (2000, 1000 + 500 + 110), "after a restart, too"
    assert (await service.status(PROJECT, "pair"))["phase"] == "pending"
    await submit("more", gpus=0.25)
    [(where, gib)], _ = await has(service, "more")
    assert (where, gib) == (device, 20), "its place stands for the same device"
    await service.ask("POST", f"/workloads/{PROJECT}/whole/suspend")
    await service.ask("POST", f"/workloads/{PROJECT}/half/suspend")
    found, told = await has(service, "pair")
    assert sorted(found) == [("gpu-0", 20), ("gpu-1", 20)]
    assert told[0].endswith(" 20480")
    assert (await service.status(PROJECT, "pair"))["failures"] == 0
    assert len({one["metadata"]["uid"] for one in claims(kubectl)}) >= 3
    await service.end_all([PROJECT])

    async def all_is_free() -> bool:
        found = await asyncio.to_thread(claims, kubectl)
        return not driver.prepared() and not any("allocation" in one["status"] for one in found)

    await until(all_is_free)
    assert await on_node(service, name) == (2000, 0)
