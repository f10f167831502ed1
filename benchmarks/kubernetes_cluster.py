"""A real control plane with Node objects for benchmarks: nodes, pods, schedulers as processes.

The control plane is the one of the tests, on loopback, gone when the benchmark ends.
"""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.resources import NAMESPACES, NODES, SERVICE_ACCOUNTS
from carrel_scheduler.kube.writes import Writer
from k8s.cluster import binaries, control_plane
from k8s.cluster.control_plane import ControlPlane
from k8s.cluster.records import Record

GPUS: Final = 8
NO_NODE_CONTROLLER: Final = "*,-node-lifecycle-controller"
"""The controller that would close Node objects of which no kubelet reports is off."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")
_OF_PODS: Final = ("pods", "events")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running control plane, a client of its admin, and its folder."""

    plane: ControlPlane
    record: Record
    kubeconfig: Path

    def client(self) -> KubeClient:
        """A new client; close it."""
        return KubeClient(from_kubeconfig(self.kubeconfig))

    def writes(self) -> int:
        """The number of writes of pods and events that the API server has carried out."""
        text = str(self.plane.get("/metrics"))
        total = 0.0
        for found in _REQUESTS.finditer(text):
            labels = dict(_LABEL.findall(found[1]))
            wrote = labels["verb"] in _WRITES and labels["code"].startswith("2")
            if wrote and labels["resource"] in _OF_PODS:
                total += float(found[2])
        return int(total)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a control plane; everything of it ends with the block."""
    programs = binaries.control_plane(lambda line: print(line, flush=True))
    record = Record.begin()
    try:
        plane = control_plane.start(programs, record, NO_NODE_CONTROLLER)
        yield Cluster(plane, record, plane.kubeconfig(record.folder / "kubeconfig"))
    finally:
        record.end()


def node(name: str, gpus: int = GPUS) -> dict[str, Any]:
    """A node as an object, with room for eight pods of ``pod`` on its GPUs."""
    amounts = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "512Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def pod(name: str, scheduler: str, gpus: int = 1) -> dict[str, Any]:
    """A pod of one container."""
    amounts = {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": str(gpus)}
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": amounts, "limits": {"nvidia.com/gpu": str(gpus)}},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
        },
    }


async def add_nodes(client: KubeClient, count: int) -> None:
    """Create so many nodes."""
    async with Writer() as writer:
        nodes = [node(f"node-{number:05}") for number in range(count)]
        await asyncio.gather(*(writer.submit(_creation(client, one)) for one in nodes))


def _creation(client: KubeClient, one: Mapping[str, Any]) -> Callable[[], Awaitable[None]]:
    async def create() -> None:
        await client.create(NODES, one)
        # New nodes have a taint until a controller has seen that they are ready, some in a second.
        await client.patch(NODES, one["metadata"]["name"], {"spec": {"taints": None}})

    return create


async def add_namespace(client: KubeClient, name: str) -> None:
    """Create a namespace, and wait until pods can be made there."""
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    account = {"metadata": {"name": "default"}}
    try:
        await client.create(SERVICE_ACCOUNTS, account, name)
    except Exception as error:
        if "AlreadyExists" not in str(error):
            raise


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(pid: int) -> float:
    """The most memory that a process has had in use."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", text)[0]) / 1024
