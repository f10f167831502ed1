"""Devices that a driver prepares before their pod is bound, on the real API server.

The test plays the driver: it writes the conditions of allocated devices into the claims' status.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from carrel_scheduler.engines.kubernetes.external_pods.executor import ExecutorLimits
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from carrel_scheduler.kube.resources import PODS
from k8s.claimed_devices import DRIVER, add_pod, asked, claims, device_class, told
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import MARKS
from k8s.scheduling import Site, comes_to_be, running, site

pytestmark = MARKS
ATTACHED: Final = "gpu.example.com/attached"
FAILED: Final = "gpu.example.com/attach-failed"


@pytest.fixture
async def here(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    """A node with a GPU of its own, and one that has to be attached to it."""
    async with site(plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as made:
        await made.add_nodes(1, gpus=0)
        [node] = made.nodes
        gpu = {"attributes": {"type": {"string": "gpu"}}}
        conditions = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED]}
        attached = {"name": "attached", **gpu, **conditions, "bindsToNode": True}
        spec = {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [attached, {"name": "own", **gpu}],
        }
        await made.client.create(RESOURCE_SLICES, {"metadata": {"name": node}, "spec": spec})
        await made.client.create(DEVICE_CLASSES, device_class(made.name))
        await made.add_project("a", 2)
        yield made
        await made.client.delete(RESOURCE_SLICES, node)
        await made.client.delete(DEVICE_CLASSES, made.name)


async def ask(here: Site, pod: str) -> None:
    """A pod with a claim of its name, for one GPU."""
    body = {"metadata": {"name": pod}, "spec": asked(here)}
    await here.client.create(RESOURCE_CLAIMS, body, here.namespace("a"))
    await add_pod(here, "a", pod, resourceClaimName=pod)


async def allocated(here: Site, name: str) -> dict[str, Any]:
    """The allocation of a claim, once it has one of which the driver has said nothing."""
    found: dict[str, Any] = {}

    async def there() -> bool:
        status = (await claims(here, "a"))[name].get("status", {})
        found.update(status.get("allocation", {}))
        return "allocation" in status and "devices" not in status

    await comes_to_be(there)
    return found


async def say(here: Site, name: str, condition: str, message: str = "") -> None:
    """Write a condition as the driver does."""
    claim = (await claims(here, "a"))[name]
    [result] = claim["status"]["allocation"]["devices"]["results"]
    true = {
        "type": condition,
        "status": "True",
        "reason": "Played",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    device = {key: result[key] for key in ("driver", "pool", "device")}
    status = {"devices": [{**device, "conditions": [true]}]}
    space = here.namespace("a")
    await here.client.patch(RESOURCE_CLAIMS, name, {"status": status}, space, sub="status")


async def the_own_gpu_is_taken(here: Site) -> None:
    await ask(here, "own")
    await here.until(lambda: "own" in here.bound("a"), "the pod whose GPU needs no preparation")
    [result] = (await allocated(here, "own"))["devices"]["results"]
    assert result["device"] == "own"


async def test_a_pod_is_bound_once_its_device_is_prepared_and_holds_up_nobody(here: Site) -> None:
    async with running(here.scheduler()):
        await the_own_gpu_is_taken(here)
        await ask(here, "waits")
        allocation = await allocated(here, "waits")
        [result] = allocation["devices"]["results"]
        assert (result["device"], result["bindingConditions"]) == ("attached", [ATTACHED])
        assert result["bindingFailureConditions"] == [FAILED]
        assert allocation["allocationTimestamp"]
        [node] = here.nodes

        async def nominated() -> bool:
            pod = await here.client.get(PODS, "waits", here.namespace("a"))
            return bool(pod["status"].get("nominatedNodeName") == node)

        await comes_to_be(nominated)
        await here.add_pod("a", "other", gpus=0)
        await here.until(lambda: "other" in here.bound("a"), "a pod without devices, meanwhile")
        assert "waits" not in here.bound("a")
        await say(here, "waits", ATTACHED)
        await here.until(lambda: "waits" in here.bound("a"), "the pod, once that is prepared")
        assert here.bound("a")["waits"].spec.node_name == node


async def test_a_device_that_cannot_be_prepared_is_given_back_and_given_anew(here: Site) -> None:
    async with running(here.scheduler()):
        await the_own_gpu_is_taken(here)
        await ask(here, "waits")
        first = await allocated(here, "waits")
        await say(here, "waits", FAILED, "the switch does not answer")
        said = f"device attached cannot be prepared ({FAILED}): the switch does not answer"
        await here.until(told(here, "a", "waits", said), "why it was not started")
        again = await allocated(here, "waits")
        assert again["devices"] == first["devices"], "no other GPU is free"
        assert "waits" not in here.bound("a")
        await say(here, "waits", ATTACHED)
        await here.until(lambda: "waits" in here.bound("a"), "the pod, at the second try")


async def test_a_device_that_is_not_prepared_in_time_is_given_up(here: Site) -> None:
    limits = ExecutorLimits(notifications_per_second=50.0, preparation_seconds=0.5)
    async with running(here.scheduler(limits=limits)):
        await the_own_gpu_is_taken(here)
        await ask(here, "late")
        said = f"device attached lacks the condition {ATTACHED} after 0.5 s"
        await here.until(told(here, "a", "late", said), "why it was not started")
        assert "late" not in here.bound("a")
