"""A node of the test cluster: a containerd and a kubelet that run real pods on this machine."""

from dataclasses import dataclass
from pathlib import Path

from k8s.cluster import containerd, kubelet, pause
from k8s.cluster.containerd import Containerd
from k8s.cluster.infrastructure import Infrastructure
from k8s.cluster.plane import ControlPlane
from k8s.cluster.waiting import Process, wait_for

UNSET_UP = "node.cloudprovider.kubernetes.io/uninitialized"


@dataclass(frozen=True, slots=True)
class Node:
    """A node that takes pods.

    Attributes:
        name: of its Node object; a pod with this ``nodeName`` runs here.
        address: of the host on the pods' network: where pods reach what the host serves.
        kubeconfig: for the cluster's admin.
        runtime: its containerd.
        agent: its kubelet's process.
    """

    name: str
    address: str
    plane: ControlPlane
    kubeconfig: Path
    runtime: Containerd
    agent: Process
    log: Path

    def give(self, gpus: int) -> None:
        """Have the node offer so many GPUs, which its machine need not have."""
        capacity = {"status": {"capacity": {"nvidia.com/gpu": str(gpus)}}}
        self.plane.ask("PATCH", f"{self.path}/status", capacity)
        wait_for(lambda: self.offered() == str(gpus), self.agent, self.log)

    def load(self, archive: Path) -> None:
        """Load an image from an OCI archive; pods name it as it is named there."""
        self.runtime.ask("images", "import", "--local", str(archive))

    @property
    def path(self) -> str:
        """The path of its object at the API server."""
        return f"/api/v1/nodes/{self.name}"

    def offered(self) -> str:
        """The number of GPUs that its kubelet offers."""
        told = self.plane.get(self.path)["status"]
        return str(told["allocatable"].get("nvidia.com/gpu", "0"))


def start(infrastructure: Infrastructure, name: str) -> Node:
    """Start a node and wait until it takes pods.

    Args:
        infrastructure: made once for all nodes of a run.
        name: one of ``control_plane.NODES``.

    Raises:
        NotReady: with the end of the log of what failed.
    """
    folder = infrastructure.record.folder / name
    folder.mkdir()
    number = list(infrastructure.plane.node_tokens).index(name)
    runtime = containerd.start(
        infrastructure.programs, infrastructure.record, folder, infrastructure.network, number
    )
    agent = kubelet.start(infrastructure, runtime, name, folder)
    access = infrastructure.plane.kubeconfig(folder / "admin.json")
    log = folder / "kubelet.log"
    made = Node(
        name, infrastructure.network.address, infrastructure.plane, access, runtime, agent, log
    )
    made.load(pause.archive(infrastructure.programs["pause"], folder / "pause.tar"))
    wait_for(lambda: bool(infrastructure.plane.get(made.path)), agent, log)
    _set_up(made)
    wait_for(lambda: _is_ready(infrastructure.plane, made.path), agent, log)
    return made


def _set_up(node: Node) -> None:
    """Set a node up as a cloud's controller does: name its address, let pods in."""
    address = {"type": "InternalIP", "address": "127.0.0.1"}
    host = {"type": "Hostname", "address": node.name}
    node.plane.ask("PATCH", f"{node.path}/status", {"status": {"addresses": [address, host]}})
    wait_for(lambda: _took_taint_away(node), node.agent, node.log)


def _took_taint_away(node: Node) -> bool:
    """Take the one taint away, from the very node that was read; raises ``Refused`` else."""
    found = node.plane.get(node.path)
    kept = [one for one in found["spec"].get("taints", []) if one["key"] != UNSET_UP]
    version = {"resourceVersion": found["metadata"]["resourceVersion"]}
    node.plane.ask("PATCH", node.path, {"metadata": version, "spec": {"taints": kept or None}})
    return True


def _is_ready(plane: ControlPlane, path: str) -> bool:
    node = plane.get(path)
    ready = [one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready"]
    return ready == ["True"] and not node["spec"].get("taints")
