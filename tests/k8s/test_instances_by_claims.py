"""Shares of GPUs that become MIG instances by claims, from the command line to the claim.

The service is a process, API server and controllers are real; a kubelet is played, and so is
the driver: it offers the instances of a GPU as devices that take from counters of the GPU.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from carrel_scheduler.kube.errors import NotFound
from carrel_scheduler.kube.resources import LEASES
from carrel_schema.names import LEASE, WORKLOAD_UID
from k8s.claimed_devices import DRIVER, device_class
from k8s.cluster.control_plane import ControlPlane
from k8s.cluster_service import ClusterService, cluster_service
from k8s.fault_site import TaskSite
from k8s.ours import MARKS, Kubectl, kubectl, make_namespace, ours
from k8s.scheduling import Site, comes_to_be, site
from k8s.served import Shell

__all__ = ["kubectl", "ours"]  # fixtures
pytestmark = MARKS
SYSTEM: Final = "carrel-system"
GIB: Final = "Gi"
SLOTS: Final = {"1g.10gb": (1, 10), "2g.20gb": (2, 20), "3g.40gb": (3, 40)}
"""The compute slots, of seven, and the memory in GiB, of eighty, that an instance takes."""


@dataclass(frozen=True)
class DividedSite:
    """A project on a service, and a node whose driver offers instances of its GPU."""

    service: ClusterService
    shell: Shell
    here: Site
    project: str

    async def submit(self, name: str, *words: str) -> dict[str, Any]:
        """Submit from the shell; what the service answers about it then."""
        await self.shell("submit", name, "-p", self.project, *words, "--", "sleep", "600")
        return dict(await self.service.ask("GET", f"/workloads/{self.project}/{name}"))

    async def device(self, workload: dict[str, Any]) -> str:
        """The device in the claim of a job's pod, once it runs."""
        await self.service.phase(self.project, workload["name"], "running")
        [pod] = [
            pod
            for pod in self.here.of("a").values()
            if pod.metadata.labels.get(WORKLOAD_UID) == workload["uid"]
        ]
        listed = await self.here.client.list(RESOURCE_CLAIMS, namespace=pod.metadata.namespace)
        [claim] = [
            one
            for one in listed.items
            if one["metadata"]["ownerReferences"][0]["uid"] == pod.metadata.uid
        ]
        [request] = claim["spec"]["devices"]["requests"]
        [selector] = request["exactly"]["selectors"]
        assert workload["spec"]["mig_profile"] in selector["cel"]["expression"]
        [result] = claim["status"]["allocation"]["devices"]["results"]
        assert (result["driver"], result["pool"]) == (DRIVER, pod.spec.node_name)
        return str(result["device"])

    async def gpus_in_use(self) -> float:
        found = await self.service.ask("GET", f"/projects/{self.project}")
        return float(found["use"]["gpus_allocated"])


def device(name: str, kind: str, slots: int, gib: int, profile: str = "") -> dict[str, Any]:
    counters = {"slots": {"value": str(slots)}, "memory": {"value": f"{gib}{GIB}"}}
    attributes = {"type": {"string": kind}}
    if profile:
        attributes["profile"] = {"string": profile}
    uses = [{"counterSet": "gpu-0", "counters": counters}]
    return {"name": name, "attributes": attributes, "consumesCounters": uses}


def slices(node: str) -> list[dict[str, Any]]:
    """A GPU as a whole, and each instance that can be made of it, with the counters they share."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    common = {"driver": DRIVER, "nodeName": node, "pool": pool}
    whole = {"slots": {"value": "7"}, "memory": {"value": f"80{GIB}"}}
    devices = [device("gpu-0", "gpu", 7, 80)]
    for profile, (slots, gib) in SLOTS.items():
        for place in range(7 // slots):
            name = f"gpu-0-{profile.replace('.', '-')}-{place}"
            devices.append(device(name, "mig", slots, gib, profile))
    parts = {
        "sets": {"sharedCounters": [{"name": "gpu-0", "counters": whole}]},
        "devices": {"devices": devices},
    }
    return [
        {"metadata": {"name": f"{node}-{word}"}, "spec": {**common, **content}}
        for word, content in parts.items()
    ]


@pytest.fixture
async def divided(
    ours: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> AsyncIterator[DividedSite]:
    make_namespace(ours, SYSTEM)
    kubeconfig = ours.kubeconfig(tmp_path / "kubeconfig")
    async with site(kubeconfig, tmp_path, TaskSite) as here:
        node = f"{here.name}-divided"
        classes = {kind: f"{here.name}-{kind}" for kind in ("gpu", "mig")}
        settings = {
            "CARREL_GPU_DEVICE_CLASS": classes["gpu"],
            "CARREL_MIG_DEVICE_CLASS": classes["mig"],
            "CARREL_STORAGE_CLAIM": "none",
        }
        await here.add_node(node, gpus=0)
        for kind, name in classes.items():
            await here.client.create(DEVICE_CLASSES, device_class(name, kind))
        for one in slices(node):
            await here.client.create(RESOURCE_SLICES, one)
        state = tmp_path / "state"
        state.mkdir()
        async with cluster_service(state, kubeconfig, "127.0.0.1", "none", settings) as service:
            project = here.project("a")
            quota = {"gpus": 1}
            await service.ask("POST", "/projects", {"name": project, "quota": quota})
            yield DividedSite(service, Shell(service, tmp_path), here, project)
            await service.end_all([project])
            await asyncio.to_thread(kubectl, "delete", "projects.carrel.dev", project)
        with suppress(NotFound):
            await here.client.delete(LEASES, LEASE, SYSTEM)
        for one in slices(node):
            await here.client.delete(RESOURCE_SLICES, one["metadata"]["name"])
        for name in classes.values():
            await here.client.delete(DEVICE_CLASSES, name)


async def test_a_share_is_the_smallest_instance_of_a_driver_until_the_gpu_is_used_up(
    divided: DividedSite,
) -> None:
    first = await divided.submit("first", "-g", "0.25")
    assert (first["spec"]["mig_profile"], first["spec"]["gpus"]) == ("2g.20gb", 0)
    second = await divided.submit("second", "-g", "0.25")
    assert await divided.device(first) != await divided.device(second)
    assert await divided.gpus_in_use() == 0.5
    large = await divided.submit("large", "-g", "0.4")
    assert large["spec"]["mig_profile"] == "3g.40gb"
    assert await divided.device(large) == "gpu-0-3g-40gb-0"
    assert await divided.gpus_in_use() == 1.0

    await divided.submit("third", "-g", "0.25")
    waits = await divided.service.until(
        divided.project, "third", lambda status: bool(status["reason"])
    )
    assert "2g.20gb" in waits["reason"]["sentence"]
    assert waits["phase"] == "pending"
    described = await divided.shell("describe", "job", "third", "-p", divided.project)
    assert "2g.20gb" in described
    await divided.service.ask("POST", f"/workloads/{divided.project}/large/suspend")
    third = await divided.service.ask("GET", f"/workloads/{divided.project}/third")
    taken = {await divided.device(one) for one in (first, second, third)}
    assert taken == {f"gpu-0-2g-20gb-{place}" for place in range(3)}

    async def counted() -> bool:
        return await divided.gpus_in_use() == 0.75

    await comes_to_be(counted)
