"""The whole way of MIG instances on a cluster, with the installation's rights and policies.

A kubelet gives GPUs of a device plugin, and the agent of its node, as the component installs it,
asks the scheduler with the token of its pod; only the driver is simulated. The agent and the
scheduler are killed; two profiles compete for a GPU.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.kubernetes.node_tokens import ACCOUNT, AUDIENCE, NAMESPACE
from carrel_scheduler.node.agent import AgentSettings, NodeReporter
from carrel_scheduler.node.mig import SimulatedMig
from carrel_scheduler.node.mig_records import InstanceRecords
from carrel_scheduler.node.mig_worker import MigWorker, serve
from carrel_schema.names import (
    GPU_UUIDS,
    MIG_MODEL,
    MIG_PROFILE,
    MIG_SLOTS,
    RESERVATIONS_NAMESPACE,
)
from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster_engines import until
from k8s.cluster_service import ClusterService
from k8s.device_plugin import UUIDS, labelled
from k8s.ours import DEPLOY, Kubectl, kubectl, ours
from k8s.served import served
from k8s.test_node_agents import token_of
from k8s.test_shared_gpus_story import brought

__all__ = ["kubectl", "ours"]  # fixtures
pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
MODEL = "A100-80GB"
PROJECT = "slices"
SPACE = f"carrel-{PROJECT}"
SAYS = ["sh", "-c", "echo has $NVIDIA_VISIBLE_DEVICES; sleep 600"]


@contextmanager
def divided(node: Node) -> Iterator[None]:
    """GPUs of all nodes are of that model meanwhile: else a share would be one of another's."""
    with labelled(node, {"nvidia.com/gpu.memory": "81920"}), ExitStack() as around:
        for one in node.plane.get("/api/v1/nodes")["items"]:
            path = f"/api/v1/nodes/{one['metadata']['name']}"
            node.plane.ask("PATCH", path, {"metadata": {"labels": {MIG_MODEL: MODEL}}})
            without = {"metadata": {"labels": {MIG_MODEL: None}}}
            around.callback(node.plane.ask, "PATCH", path, without)
        yield


class Agent:
    """The agent of the node; ``kill`` ends one, ``start`` begins the next.

    What the driver has outlives it, and so does what it wrote down.
    """

    def __init__(self, node: str, url: str, token: str, folder: Path) -> None:
        (folder / "token").write_text(token)
        self.settings = AgentSettings.from_environment(
            {
                "CARREL_NODE_NAME": node,
                "CARREL_API_URL": url,
                "CARREL_NODE_TOKEN_FILE": str(folder / "token"),
                "CARREL_MIG": "on",
                "CARREL_MIG_RECORD": str(folder / "instances.json"),
            }
        )
        self.driver = SimulatedMig(MODEL)
        self._ended = threading.Event()

    def start(self) -> None:
        self._ended = threading.Event()
        worker = MigWorker(self.driver, InstanceRecords(self.settings.mig_record))
        reporter = NodeReporter(self.settings)
        parts = (worker, reporter.ask, self._ended.wait)
        threading.Thread(target=serve, args=parts, daemon=True).start()

    def kill(self) -> None:
        self._ended.set()

    def there(self) -> dict[str, set[str]]:
        """Profiles of the instances that there are, by GPU."""
        return {gpu: {one.profile for one in self.driver.instances(gpu)} for gpu in UUIDS}


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
    with divided(plugged):
        async with served(plugged, images, kubectl, tmp_path, (PROJECT,), gpus=2) as made:
            yield made


@pytest.fixture
def token(plugged: Node, kubectl: Kubectl, tmp_path: Path) -> Iterator[str]:
    """That of the pod that the component's DaemonSet has on the node."""
    (tmp_path / "overlay").mkdir()
    base = DEPLOY.resolve()
    (tmp_path / "overlay/kustomization.yaml").write_text(
        json.dumps(
            {
                "resources": [str(_copied(base / "node", tmp_path / "overlay/node"))],
                "components": [
                    str(_copied(base / "components/mig", tmp_path / "overlay/component"))
                ],
            }
        )
    )
    kubectl("apply", "--server-side", "-f", str(DEPLOY / "namespace.yaml"))
    told = kubectl.run(
        "apply", "--server-side", "--force-conflicts", "-k", str(tmp_path / "overlay")
    )
    assert told.code == 0, told.error
    where = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
    plain = plugged.plane.get(f"{where}/carrel-node")["spec"]["template"]["spec"]["affinity"]
    assert "DoesNotExist" in json.dumps(plain)
    found = plugged.plane.get(f"{where}/carrel-node-mig")["spec"]["template"]["spec"]
    spec = found | {"nodeName": plugged.name}
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    pod = plugged.plane.ask("POST", pods, {"metadata": {"name": "agent-mig"}, "spec": spec})
    assert pod["spec"]["serviceAccountName"] == ACCOUNT
    yield token_of(plugged.plane, AUDIENCE, pod)
    kinds = "daemonsets,networkpolicies,serviceaccounts,pods"
    kubectl("delete", kinds, "--all", "-n", NAMESPACE, "--wait=false")


def _copied(source: Path, to: Path) -> str:
    """The name of a copy beside the kustomization, which takes nothing from elsewhere."""
    to.mkdir()
    for file in source.iterdir():
        (to / file.name).write_text(file.read_text())
    return to.name


async def told(service: ClusterService, name: str, **query: str) -> str:
    """Which instance a job says that it sees."""
    text = await service.said(PROJECT, name, "\n", **query)
    return text.splitlines()[0].split()[1]


async def somebodys_pod_has_one(kubectl: Kubectl, image: str, others: set[str]) -> None:
    """One that asks by annotation for what is left is given an instance, and gives it back."""
    made = brought(image, SPACE, MIG_PROFILE, "2g.20gb")
    await asyncio.to_thread(kubectl.apply, made)
    ready = ("wait", "--for=condition=Ready", "--timeout=120s", "pod/brought", "-n", SPACE)
    await asyncio.to_thread(kubectl, *ready)
    found = json.loads(kubectl("get", "pod", "brought", "-n", SPACE, "-o", "json"))["metadata"]
    notes = found["annotations"]
    assert notes[GPU_UUIDS].startswith("MIG-")
    assert notes[GPU_UUIDS] not in others
    assert notes[MIG_SLOTS].isdecimal()
    said = await asyncio.to_thread(kubectl, "logs", "brought", "-n", SPACE)
    assert notes[GPU_UUIDS] in said
    await asyncio.to_thread(kubectl, "delete", "pod", "brought", "-n", SPACE, "--timeout=60s")


async def test_instances_are_made_as_work_asks_whatever_happens_to_who_makes_them(
    service: ClusterService,
    token: str,
    kubectl: Kubectl,
    plugged: Node,
    images: Images,
    tmp_path: Path,
) -> None:
    async def submit(name: str, **fields: Any) -> None:
        await service.submit(PROJECT, name, command=SAYS, grace_seconds=2, **fields)

    agent = Agent(plugged.name, service.scheduler.url, token, tmp_path)
    agent.start()
    await submit("one", mig_profile="3g.40gb")
    await submit("two", gpus=0.5)
    seen = {await told(service, name) for name in ("one", "two")}
    assert len(seen) == 2
    assert all(one.startswith("MIG-") for one in seen)
    await service.phase(PROJECT, "two", "running")
    two = await service.ask("GET", f"/workloads/{PROJECT}/two")
    assert two["spec"]["mig_profile"] == "4g.40gb", "a share is an instance here"
    node = next(
        one for one in (await service.ask("GET", "/nodes"))["items"] if one["name"] == plugged.name
    )
    assert (node["gpu_milli"], node["gpu_allocated_milli"]) == (2000, 1000)
    held = json.loads(kubectl("get", "pods", "-n", RESERVATIONS_NAMESPACE, "-o", "json"))
    assert held["items"], "the device plugin gives the GPU to nobody else"

    await service.restart()
    agent.kill()
    agent.start()
    await submit("three", mig_profile="1g.10gb")
    third = await told(service, "three")
    assert third not in seen
    await somebodys_pod_has_one(kubectl, images.on(plugged, "trainer").name, {*seen, third})
    pods = json.loads(kubectl("get", "pods", "-n", SPACE, "-o", "json"))["items"]
    assert {one["metadata"]["annotations"][GPU_UUIDS] for one in pods} == {*seen, third}

    await service.end_all([PROJECT])
    left = agent.there()
    made = {"3g.40gb", "4g.40gb", "1g.10gb", "2g.20gb"}
    assert set().union(*left.values()) == made, "idle ones stay"
    for name in ("large", "larger"):
        await submit(name, mig_profile="7g.80gb")
    assert len({await told(service, name) for name in ("large", "larger")}) == 2
    assert agent.there() == {gpu: {"7g.80gb"} for gpu in UUIDS}, "they went for it"

    async def tells_of_both() -> bool:
        described = await asyncio.to_thread(kubectl, "describe", "node", plugged.name)
        events = "MIG instance 7g.80gb was made on GPU", "was removed for 7g.80gb"
        return all(event in described for event in events)

    await until(tells_of_both)
    await submit("waits", mig_profile="1g.10gb")
    waits = await service.until(PROJECT, "waits", lambda status: bool(status["reason"]))
    assert waits["phase"] == "pending"

    agent.kill()
    await service.end_all([PROJECT])

    async def nothing_is_held() -> bool:
        kept = ("get", "pods", "-n", RESERVATIONS_NAMESPACE, "-o", "name")
        return not (await asyncio.to_thread(kubectl, *kept)).strip()

    await until(nothing_is_held)
