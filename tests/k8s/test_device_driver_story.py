"""Jobs on a node whose GPUs a driver of dynamic resource allocation offers, with the whole service.

They get GPUs by claims that the scheduler makes, with the installation's rights and policies; the
kubelet has the driver prepare them. Counted once, and known again after a restart.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

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
    chosen = {"CARREL_GPU_DEVICE_CLASS": CLASS}
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

    async def all_is_free() -> bool:
        found = await asyncio.to_thread(claims, kubectl)
        return not driver.prepared() and not any("allocation" in one["status"] for one in found)

    await until(all_is_free)
    assert await on_node(service, name) == (2000, 0)
