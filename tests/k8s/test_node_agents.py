"""The agent's manifest on a real API server, and whose token it takes for which node's."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml
import pytest

from carrel_scheduler.engines.kubernetes.node_tokens import ACCOUNT, AUDIENCE, NAMESPACE, NodeTokens
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.node.agent import look
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.node.nvml import NvmlProvider, open_nvml
from carrel_scheduler.node.owners import PodOwners
from gpu_driver.session import machine
from gpu_driver.state import MIB
from k8s.cluster import pods
from k8s.cluster.control_plane import ControlPlane
from k8s.cluster.images.builder import Image
from k8s.cluster.node import Node
from k8s.ours import DEPLOY, MARKS, Kubectl, client, kubectl, until

__all__ = ["client", "kubectl"]

pytestmark = MARKS
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


@pytest.fixture(scope="module")
def installed(plane: ControlPlane, kubectl: Kubectl) -> Iterator[ControlPlane]:
    kubectl("apply", "--server-side", "-f", str(DEPLOY / "namespace.yaml"))
    told = kubectl.run("apply", "--server-side", "-k", str(DEPLOY / "node"))
    assert told.code == 0, told.error
    assert "PodSecurity" not in told.error
    until(lambda: _is_there(plane, f"{ACCOUNTS}/{ACCOUNT}"), "service account")
    yield plane
    # The namespace stays: others that install everything could make nothing in one that is ending.
    kinds = "daemonsets,networkpolicies,serviceaccounts,pods"
    kubectl("delete", kinds, "--all", "-n", NAMESPACE, "--wait=false")


def _is_there(plane: ControlPlane, path: str) -> bool:
    return bool(plane.get(path)["metadata"]["uid"])


def agent_on(plane: ControlPlane, node: str) -> dict[str, Any]:
    """The agent's pod of a node, as the DaemonSet's controller makes it."""
    template = plane.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/carrel-node")
    spec = template["spec"]["template"]["spec"] | {"nodeName": node}
    body = {"metadata": {"name": f"agent-{node}"}, "spec": spec}
    made: dict[str, Any] = plane.ask("POST", PODS, body)
    return made


def token_of(plane: ControlPlane, audience: str, pod: dict[str, Any] | None) -> str:
    """As the kubelet asks for it."""
    spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 3600}
    if pod is not None:
        meta = pod["metadata"]
        spec["boundObjectRef"] = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": meta["name"],
            "uid": meta["uid"],
        }
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = plane.ask("POST", f"{ACCOUNTS}/{ACCOUNT}/token", body)
    return str(answer["status"]["token"])


def accepted(plane: ControlPlane, token: str) -> bool:
    """Whether the API server accepts a token; it may for seconds after the pod has been deleted.

    It looks pods up in its watch cache and remembers for 10 s that a token was accepted.
    """
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [AUDIENCE]},
    }
    answer = plane.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
    return bool(answer["status"].get("authenticated"))


async def test_a_token_speaks_for_the_node_of_its_pod_alone(
    installed: ControlPlane, client: KubeClient
) -> None:
    agents = {}
    for name in ("agents-1", "agents-2"):
        installed.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        agents[name] = agent_on(installed, name)
    tokens = NodeTokens(client)
    for name, pod in agents.items():
        assert await tokens.node_of(token_of(installed, AUDIENCE, pod)) == name
    other_audience = token_of(installed, "https://elsewhere", agents["agents-1"])
    assert await tokens.node_of(other_audience) is None
    assert await tokens.node_of(token_of(installed, AUDIENCE, None)) is None
    token = token_of(installed, AUDIENCE, agents["agents-1"])
    installed.ask("DELETE", f"{PODS}/agent-agents-1?gracePeriodSeconds=0")
    until(lambda: not accepted(installed, token), "refusal of a token whose pod is gone")
    assert await tokens.node_of(token) is None


async def test_nobody_else_in_a_namespace_of_a_project_is_an_agent(
    installed: ControlPlane, client: KubeClient
) -> None:
    """Also an account of the same name."""
    where = "/api/v1/namespaces/default/serviceaccounts"
    installed.ask("POST", where, {"metadata": {"name": ACCOUNT}})
    body = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": 3600}}
    answer = installed.ask("POST", f"{where}/{ACCOUNT}/token", body)
    assert await NodeTokens(client).node_of(answer["status"]["token"]) is None
    installed.ask("DELETE", f"{where}/{ACCOUNT}")


@pytest.mark.root
def test_the_use_of_a_pod_is_seen_by_its_control_group(
    node: Node, base_image: Image, tmp_path: Path
) -> None:
    """A kubelet's real pod; the driver is the tests' own, and lists the pod's process."""
    waits = ["python3", "-c", "import time; time.sleep(600)"]
    pods.make(node.plane, "uses-gpus", base_image.name, waits, nodeName=node.name)
    uid = pods.wait(node.plane, "uses-gpus")["metadata"]["uid"]

    def process() -> int:
        """The pod's process as the node numbers it."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if (
                    entry.name.isdecimal()
                    and b"time.sleep(600)" in (entry / "cmdline").read_bytes()
                ):
                    names = (entry / "cgroup").read_text()
                    if uid in names or uid.replace("-", "_") in names:
                        return int(entry.name)
        return 0

    pid = until(process, "process of the pod")
    with machine(tmp_path / "gpus", devices=2) as gpus:
        gpus.layout.devices[1].utilization_gpu = 70
        gpus.list_process(1, pid, memory=100 * MIB, sm_percent=70, sampled_us=1)
        gpus.list_process(0, os.getpid(), memory=MIB)
        assert open_nvml(pynvml)
        facts = NodeFacts(name=node.name, cpu_milli=0, memory_mib=0, devices=(), simulated=False)
        other, used = look(NvmlProvider(facts, pynvml, owners=PodOwners())).use
    [own] = used.owners
    assert (own.owner, own.utilization, own.memory_used_mib) == (uid, 0.7, 100)
    assert used.attributed
    assert other.owners == (), "this test is no pod"
    pods.delete(node.plane, "uses-gpus")
