"""Jobs on a node whose GPUs a driver of dynamic resource allocation offers, with the whole service.

They get GPUs by claims that the scheduler makes, with the installation's rights and policies; the
kubelet has the driver prepare them. Counted once, and known again after a restart. So are parts of
GPUs once the driver lets claims share them, and MIG instances once it makes such.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.pods.quantities import nanos
from carrel_schema.names import namespace_of
from k8s.cluster.loading import Images
from k8s.cluster_engines import until
from k8s.cluster_service import ClusterService
from k8s.device_driver import DRIVER, DeviceDriver
from k8s.ours import DEPLOY, Kubectl, kubectl, ours
from k8s.served import served

__all__ = ["kubectl", "ours"]  # fixtures
pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
PROJECT = "lenses"
CLASS = "gpus-of-tasks"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SAYS = ["sh", "-c", "env | grep ^FAKE_GPU | sort; echo .; sleep 600"]
SCRIPT = """
env | grep ^FAKE_GPU | sort
echo has $NVIDIA_VISIBLE_DEVICES $CARREL_GPU_MEMORY_MIB
cat /dev/carrel-gpu/limits
echo .
sleep 600
"""
SAYS_MORE = ["sh", "-c", SCRIPT]


@dataclass(frozen=True)
class DriverSite:
    """The project on the service, and the node where its work runs."""

    service: ClusterService
    driver: DeviceDriver

    async def submit(self, name: str, command: Sequence[str] = SAYS, **asked: Any) -> None:
        await self.service.submit(PROJECT, name, command=command, grace_seconds=1, **asked)

    async def lines(self, name: str) -> list[str]:
        """What a job's container says."""
        return (await self.service.said(PROJECT, name, ".\n")).splitlines()[:-1]

    async def given(self, name: str) -> list[str]:
        """The devices that a job's container was told of."""
        return [line.partition("=")[2] for line in await self.lines(name)]

    async def parts(self, name: str) -> tuple[list[tuple[str, int]], list[str]]:
        """The devices of a job and how much of each, in GiB; what else its container says."""
        lines = await self.lines(name)
        given = [line.partition("=")[2] for line in lines if line.startswith("FAKE_GPU")]
        parts = [one.partition(" memory=") for one in given]
        told = [line for line in lines if not line.startswith("FAKE_GPU")]
        return [(device, nanos(memory) // nanos("1Gi")) for device, _, memory in parts], told

    async def status(self, name: str) -> Any:
        return await self.service.status(PROJECT, name)

    async def suspend(self, name: str) -> None:
        await self.service.ask("POST", f"/workloads/{PROJECT}/{name}/suspend")

    async def on_node(self) -> tuple[int, int]:
        """How many GPUs the node has, and how many are in use, in thousandths."""
        nodes = (await self.service.ask("GET", "/nodes"))["items"]
        found = next(one for one in nodes if one["name"] == self.driver.node.name)
        return found["gpu_milli"], found["gpu_allocated_milli"]

    def claims(self) -> list[dict[str, Any]]:
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace_of(PROJECT)}/resourceclaims"
        return list(self.driver.node.plane.get(path)["items"])

    async def end_all(self) -> None:
        """End all work, and wait until nothing is given or prepared any more."""
        await self.service.end_all([PROJECT])
        await until(self._all_is_free)

    async def _all_is_free(self) -> bool:
        found = await asyncio.to_thread(self.claims)
        given = any("allocation" in one.get("status", {}) for one in found)
        return not given and not self.driver.prepared()


@pytest.fixture
async def site(
    driver: DeviceDriver, images: Images, ours: object, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[DriverSite]:
    kubectl("apply", "--server-side", "-f", str(DEPLOY / "policies/scheduler.yaml"))
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    driver.node.plane.ask("POST", CLASSES, {"metadata": {"name": CLASS}, "spec": spec})
    chosen = {"CARREL_GPU_DEVICE_CLASS": CLASS, "CARREL_MIG_DEVICE_CLASS": CLASS}
    async with served(
        driver.node, images, kubectl, tmp_path, (PROJECT,), gpus=2, settings=chosen
    ) as made:
        yield DriverSite(made, driver)
    driver.node.plane.ask("DELETE", f"{CLASSES}/{CLASS}")


async def test_jobs_get_what_the_driver_offers_and_give_it_back(site: DriverSite) -> None:
    await whole_gpus(site)
    with site.driver.offering(("gpu-0", "gpu-1"), "--shared", "--memory=80Gi"):
        await parts_of_gpus(site)
    with site.driver.offering(("gpu-0",), "--halves"):
        await instances_of_a_gpu(site)


async def whole_gpus(site: DriverSite) -> None:
    await site.submit("two", gpus=2)
    assert sorted(await site.given("two")) == ["gpu-0", "gpu-1"]
    assert await site.on_node() == (2000, 2000), "counted once"
    [claim] = site.claims()
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    [request] = claim["spec"]["devices"]["requests"]
    assert (request["exactly"]["deviceClassName"], request["exactly"]["count"]) == (CLASS, 2)

    await site.submit("next", gpus=1)
    await site.service.restart()
    assert (await site.status("two"))["phase"] == "running"
    assert await site.on_node() == (2000, 2000), "the next scheduler counts it once, too"
    assert (await site.status("next"))["phase"] == "pending"

    await site.suspend("two")
    [device] = await site.given("next")
    assert device in ("gpu-0", "gpu-1")
    assert (await site.status("next"))["failures"] == 0
    assert await site.on_node() == (2000, 1000)
    await site.end_all()
    assert await site.on_node() == (2000, 0)


async def parts_of_gpus(site: DriverSite) -> None:
    """Of two GPUs of 80 GiB that claims share."""
    await site.submit("half", SAYS_MORE, gpus=0.5)
    [(device, gib)], told = await site.parts("half")
    assert (device in ("gpu-0", "gpu-1"), gib) == (True, 40)
    assert told == [f"has GPU-{device} 40960", f"GPU-{device} {40 * 2**30}"]
    await site.submit("memory", SAYS_MORE, gpu_memory_bytes=8 * 2**30)
    [(where, gib)], told = await site.parts("memory")
    assert (where, gib, told[0]) == (device, 8, f"has GPU-{device} 8192")
    await site.submit("whole", gpus=1)
    [(other, gib)], _ = await site.parts("whole")
    assert (other != device, gib) == (True, 80)
    counted = 1000 + 500 + 110
    assert await site.on_node() == (2000, counted), "counted once"

    await site.submit("pair", SAYS_MORE, gpus=0.25, gpu_devices=2)
    await site.service.restart()
    assert await site.on_node() == (2000, counted), "after a restart, too"
    assert (await site.status("pair"))["phase"] == "pending"
    await site.submit("more", gpus=0.25)
    [(where, gib)], _ = await site.parts("more")
    assert (where, gib) == (device, 20), "its place stands for the same device"
    for name in ("whole", "half"):
        await site.suspend(name)
    found, told = await site.parts("pair")
    assert sorted(found) == [("gpu-0", 20), ("gpu-1", 20)]
    assert told[0].endswith(" 20480")
    assert (await site.status("pair"))["failures"] == 0
    await site.end_all()
    assert await site.on_node() == (2000, 0)


async def instances_of_a_gpu(site: DriverSite) -> None:
    """The driver offers it as a whole and as two halves."""
    for name in ("left", "right"):
        await site.submit(name, mig_profile="3g.40gb")
    halves = [*await site.given("left"), *await site.given("right")]
    assert sorted(halves) == ["gpu-0-half-0", "gpu-0-half-4"]
    await site.submit("third", mig_profile="3g.40gb")
    await site.submit("whole", gpus=1)
    await site.service.restart()
    for name in ("third", "whole"):
        assert (await site.status(name))["phase"] == "pending"
    told = f"GPUs of `{site.driver.node.name}` are divided into MIG instances"
    await site.service.until(
        PROJECT, "whole", lambda status: told in (status["reason"] or {}).get("sentence", "")
    )
    for name in ("third", "left", "right"):
        await site.suspend(name)
    assert await site.given("whole") == ["gpu-0"]
    assert await site.on_node() == (1000, 1000)
    await site.end_all()
