"""What users of other schedulers submit is placed under quota, gangs as a whole, and told why."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.leadership import Clocks, Leader
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, TaskTokens
from carrel_schema.objects import Meta, Project, ProjectSpec, Quota
from k8s.cluster.control_plane import ControlPlane, Refused
from k8s.ours import MARKS
from k8s.peers.applying import TIMEOUT_SECONDS, Space, define, until
from k8s.standalone import Standalone

pytestmark = MARKS

GPUS = 8
LIMIT = 5
HEARTBEAT_SECONDS = 5.0
INSTANCE = "nvidia.com/mig-1g.10gb"
"""An eighth of a GPU."""
SYSTEM = "carrel-system"


@pytest.fixture
def spaces(plane: ControlPlane) -> Iterator[dict[str, Space]]:
    define(plane)
    made = {
        name: Space(plane, f"quota-{uuid.uuid4().hex[:8]}")
        for name in ("kubeflow-pytorchjob", "jobset", "volcano-job")
    }
    yield made
    for one in made.values():
        for pod in one.pods():
            _force(one, pod)
        one.end()


@pytest.fixture
def node(plane: ControlPlane) -> Iterator[str]:
    name = f"peers-{uuid.uuid4().hex[:8]}"
    amounts = {"nvidia.com/gpu": str(GPUS), "cpu": "64", "memory": "256Gi", "pods": "110"}
    amounts[INSTANCE] = "14"
    labels = {"peers": "yes", "kubernetes.io/hostname": name}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [_ready()]}
    plane.ask(
        "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status}
    )
    yield name
    plane.ask("DELETE", f"/api/v1/nodes/{name}")


def _ready() -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "Ready", "status": "True", "reason": "Played", "lastHeartbeatTime": now}


def _force(space: Space, pod: dict[str, Any]) -> None:
    path = f"/api/v1/namespaces/{space.name}/pods/{pod['metadata']['name']}"
    with suppress(Refused):
        space.plane.ask("DELETE", path, {"gracePeriodSeconds": 0})


def _finish(space: Space, pod: dict[str, Any]) -> None:
    """As a kubelet says that the work of a pod is done."""
    path = f"/api/v1/namespaces/{space.name}/pods/{pod['metadata']['name']}/status"
    space.plane.ask("PATCH", path, {"status": {"phase": "Succeeded"}})


@asynccontextmanager
async def scheduling(plane: ControlPlane, node: str, folder: Path) -> AsyncIterator[None]:
    """Our scheduler, with one project; and a node that says that it is well."""
    with suppress(Refused):
        plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    client = KubeClient(from_kubeconfig(plane.kubeconfig(folder / "admin")))
    ledger = await open_ledger(
        f"sqlite:///{folder}/ledger.sqlite", clock=time.time, ids=lambda: uuid.uuid4().hex
    )
    limit = Quota(gpu_milli=1000 * LIMIT)
    await ledger.create(
        Project(meta=Meta(name="speech"), spec=ProjectSpec(quota=limit, limit=limit))
    )
    launch = LaunchSettings(api_url="", checkpoint_root=folder, tokens=TaskTokens(b"k" * 32))
    leader = Leader(client, SYSTEM, f"peers-{node}", Clocks(time.monotonic, time.time))
    scheduler = Standalone(client, ledger, launch, "peers", time.time, leader)
    stop, began = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop, began))
    beating = asyncio.create_task(_beat(plane, node))
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await began.wait()
        yield
    finally:
        beating.cancel()
        stop.set()
        await running
        await client.close()
        await ledger.close()


async def _beat(plane: ControlPlane, node: str) -> None:
    while True:
        told = {"status": {"conditions": [_ready()]}}
        with suppress(Refused, OSError):  # the next one may come through
            await asyncio.to_thread(plane.ask, "PATCH", f"/api/v1/nodes/{node}/status", told)
        await asyncio.sleep(HEARTBEAT_SECONDS)


def bound(space: Space) -> int:
    return sum(1 for pod in space.pods() if pod["spec"].get("nodeName"))


def told(space: Space) -> list[str]:
    """What the waiting pods of a space are told in their conditions."""
    return [
        condition["message"]
        for pod in space.pods()
        for condition in pod["status"].get("conditions", ())
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]


async def comes_to_be(ask: Any) -> None:
    await asyncio.to_thread(until, ask)


async def test_gangs_of_peers_are_placed_under_quota(
    plane: ControlPlane, spaces: dict[str, Space], node: str, tmp_path: Path
) -> None:
    first, second = spaces["kubeflow-pytorchjob"], spaces["jobset"]
    async with scheduling(plane, node, tmp_path):
        await asyncio.to_thread(first.apply, "kubeflow-pytorchjob.yaml")
        await comes_to_be(lambda: bound(first) == 4)
        await asyncio.to_thread(second.apply, "jobset.yaml")
        await comes_to_be(lambda: sum("speech" in message for message in told(second)) == 5)
        assert bound(second) == 0
        for pod in first.pods():
            _finish(first, pod)
        await comes_to_be(lambda: bound(second) == 5)
        devices = sorted(
            pod["metadata"]["annotations"]["carrel.dev/devices"] for pod in second.pods()
        )
        assert len(set(devices)) == 5
        third = spaces["volcano-job"]
        await asyncio.to_thread(third.apply, "volcano-job.yaml")
        await comes_to_be(lambda: len(told(third)) == 4)
        assert bound(third) == 0
        _finish(second, second.pods()[0])
        await _instances_count_as_their_parts(spaces["jobset"])


async def _instances_count_as_their_parts(space: Space) -> None:
    """A GPU is left of the limit, and the node has more instances than that."""
    for number in range(10):
        _ask_for(space, f"part-{number}", INSTANCE)
    _ask_for(space, "half", "nvidia.com/mig-3g.40gb")
    await comes_to_be(lambda: sum(_is_bound(pod) for pod in _parts(space)) == 8)
    await comes_to_be(lambda: _say_of_quota_and_instances(told(space)))
    assert sum(_is_bound(pod) for pod in _parts(space)) == 8


def _say_of_quota_and_instances(messages: list[str]) -> bool:
    """As the two parts and the half that wait are told in the end."""
    of_quota = sum("speech" in message for message in messages)
    return len(messages) == 3 and of_quota >= 2 and any(f"`{INSTANCE}`" in one for one in messages)


def _ask_for(space: Space, name: str, resource: str) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: "1"}}}
    labels = {"carrel.dev/project": "speech"}
    pod = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": "carrel", "containers": [container]},
    }
    space.plane.ask("POST", f"/api/v1/namespaces/{space.name}/pods", pod)


def _parts(space: Space) -> list[dict[str, Any]]:
    return [pod for pod in space.pods() if pod["metadata"]["name"].startswith("part-")]


def _is_bound(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))
