"""Jobs on a node whose GPUs a driver of dynamic resource allocation offers, with the whole service.

They get GPUs by claims that the scheduler makes, with the installation's rights and policies; the
kubelet has the driver prepare them. Counted once, and known again after a restart. So are parts of
GPUs, where the driver lets claims share them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
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
PROJECT = "lenses"
SPACE = namespace_of(PROJECT)
CLASS = "gpus-of-tasks"
SAYS = ["sh", "-c", "env | grep ^FAKE_GPU | sort; echo .; sleep 600"]


@pytest.fixture(scope="module")
def driver(nodes_ground: Ground) -> Iterator[DeviceDriver]:
    """A node of its own with a driver of two GPUs."""
    with driven_node(nodes_ground, "worker-3", ("gpu-0", "gpu-1")) as made:
        yield made


@pytest.fixture
async def service(
    driver: DeviceDriver, images: Images, ours: object, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[ClusterService]:
    kubectl("apply", "--server-side", "-f", str(DEPLOY / "policies/scheduler.yaml"))
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": spec}
    kubectl.apply({**body, "metadata": {"name": CLASS}})
    chosen = {"CARREL_GPU_DEVICE_CLASS": CLASS, "CARREL_MIG_DEVICE_CLASS": CLASS}
    async with served(
        driver.node, images, kubectl, tmp_path, (PROJECT,), gpus=2, settings=chosen
    ) as made:
        yield made
    kubectl("delete", "deviceclass", CLASS)


async def given(service: ClusterService, name: str) -> list[str]:
    """The devices that a job's container was told of."""
    text = await service.said(PROJECT, name, ".\n")
    return [line.partition("=")[2] for line in text.splitlines()[:-1]]


async def on_node(service: ClusterService, name: str) -> tuple[int, int]:
    """How many GPUs a node has, and how many are in use, in thousandths."""
    nodes = (await service.ask("GET", "/nodes"))["items"]
    found = next(one for one in nodes if one["name"] == name)
    return found["gpu_milli"], found["gpu_allocated_milli"]


def claims(kubectl: Kubectl) -> list[dict[str, Any]]:
    return list(json.loads(kubectl("get", "resourceclaims", "-n", SPACE, "-o", "json"))["items"])


async def all_is_free(kubectl: Kubectl, driver: DeviceDriver) -> bool:
    found = await asyncio.to_thread(claims, kubectl)
    return not driver.prepared() and not any("allocation" in one["status"] for one in found)


async def test_jobs_get_gpus_by_claims_and_give_them_back(
    service: ClusterService, kubectl: Kubectl, driver: DeviceDriver
) -> None:
    name = driver.node.name
    await service.submit(PROJECT, "two", gpus=2, command=SAYS, grace_seconds=1)
    assert sorted(await given(service, "two")) == ["gpu-0", "gpu-1"]
    assert await on_node(service, name) == (2000, 2000), "counted once"
    [claim] = claims(kubectl)
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    [request] = claim["spec"]["devices"]["requests"]
    assert (request["exactly"]["deviceClassName"], request["exactly"]["count"]) == (CLASS, 2)

    await service.submit(PROJECT, "next", gpus=1, command=SAYS, grace_seconds=1)
    await service.restart()
    assert (await service.status(PROJECT, "two"))["phase"] == "running"
    assert await on_node(service, name) == (2000, 2000), "the next scheduler counts it once, too"
    assert (await service.status(PROJECT, "next"))["phase"] == "pending"

    await service.ask("POST", f"/workloads/{PROJECT}/two/suspend")
    [device] = await given(service, "next")
    assert device in ("gpu-0", "gpu-1")
    assert (await service.status(PROJECT, "next"))["failures"] == 0
    assert await on_node(service, name) == (2000, 1000)

    await service.ask("POST", f"/workloads/{PROJECT}/next/suspend")

    await until(partial(all_is_free, kubectl, driver))
    assert await on_node(service, name) == (2000, 0)


SHARES = [
    "sh",
    "-c",
    """
env | grep ^FAKE_GPU | sort
echo has $NVIDIA_VISIBLE_DEVICES $CARREL_GPU_MEMORY_MIB
cat /dev/carrel-gpu/limits
echo .
sleep 600
""",
]


@pytest.fixture
def sharing(driver: DeviceDriver) -> Iterator[DeviceDriver]:
    """The node's driver lets claims share its two GPUs of 80 GiB."""
    driver.close()
    driver.options = ("--shared", "--memory=80Gi")
    driver.start()
    yield driver
    driver.close()
    driver.options = ()
    driver.start()


async def has(service: ClusterService, name: str) -> tuple[list[tuple[str, int]], list[str]]:
    """The devices and parts, in GiB, that a job's container was given; what it says and limits."""
    text = await service.said(PROJECT, name, "\n.\n")
    lines = text.splitlines()[:-1]
    given = [line.partition("=")[2] for line in lines if line.startswith("FAKE_GPU")]
    parts = [one.partition(" memory=") for one in given]
    told = [line for line in lines if not line.startswith("FAKE_GPU")]
    return [(device, nanos(memory) // nanos("1Gi")) for device, _, memory in parts], told


async def test_jobs_get_parts_of_gpus_by_claims_and_give_them_back(
    sharing: DeviceDriver, service: ClusterService, kubectl: Kubectl
) -> None:
    name = sharing.node.name

    async def submit(job: str, **asked: Any) -> None:
        await service.submit(PROJECT, job, command=SHARES, grace_seconds=1, **asked)

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
    await until(partial(all_is_free, kubectl, sharing))
    assert await on_node(service, name) == (2000, 0)


@pytest.fixture
def halving(driver: DeviceDriver) -> Iterator[DeviceDriver]:
    """The node's driver offers one GPU, as a whole and as two halves of it."""
    driver.close()
    driver.names, driver.options = ("gpu-0",), ("--halves",)
    driver.start()
    yield driver
    driver.close()
    driver.names, driver.options = ("gpu-0", "gpu-1"), ()
    driver.start()


async def test_jobs_get_instances_that_the_driver_makes_of_a_gpu(
    halving: DeviceDriver, service: ClusterService, kubectl: Kubectl
) -> None:
    node = halving.node.name

    async def submit(job: str, **asked: Any) -> None:
        await service.submit(PROJECT, job, command=SAYS, grace_seconds=1, **asked)

    for job in ("left", "right"):
        await submit(job, mig_profile="3g.40gb")
    halves = [*await given(service, "left"), *await given(service, "right")]
    assert sorted(halves) == ["gpu-0-half-0", "gpu-0-half-4"]
    await submit("third", mig_profile="3g.40gb")
    await submit("whole", gpus=1)
    await service.restart()
    for job in ("third", "whole"):
        assert (await service.status(PROJECT, job))["phase"] == "pending"
    await service.ask("POST", f"/workloads/{PROJECT}/third/suspend")
    for job in ("left", "right"):
        await service.ask("POST", f"/workloads/{PROJECT}/{job}/suspend")
    assert await given(service, "whole") == ["gpu-0"]
    assert await on_node(service, node) == (1000, 1000)
    await service.end_all([PROJECT])
    await until(partial(all_is_free, kubectl, halving))
