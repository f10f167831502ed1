"""Additions to the cluster on request: a scheduler, volumes, GPUs, a node for one test.

The scheduler is Kubernetes' own, for pods that are not Carrel's. Volumes are folders of this
machine, each for a claim by its name: what a storage class would make.
"""

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from k8s.cluster import binaries
from k8s.cluster.node import Node
from k8s.cluster.plane import ControlPlane
from k8s.cluster.records import END_SECONDS, Record

VOLUMES: Final = "/api/v1/persistentvolumes"


@contextmanager
def scheduler(plane: ControlPlane, record: Record) -> Iterator[None]:
    """Kubernetes' own scheduler, for as long as it is wanted."""
    access = plane.kubeconfig(record.folder / "scheduler.json")
    program = binaries.peers(print)["kube-scheduler"]
    command = [str(program), f"--kubeconfig={access}", "--leader-elect=false", "--secure-port=0"]
    process = record.start(command, record.folder / "kube-scheduler.log")
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def volumes(plane: ControlPlane, folder: Path, claims: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Volumes for claims, named by namespace and name; their files stay in the folder.

    Everybody may write to them, in place of fsGroup, which folders of a machine do not have.
    """
    made: list[str] = []
    try:
        for namespace, claim in claims:
            path = folder / namespace / claim
            path.mkdir(parents=True)
            path.chmod(0o777)
            name = f"{folder.name}-{namespace}-{claim}"
            spec = {
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "hostPath": {"path": str(path)},
                "claimRef": {"namespace": namespace, "name": claim},
                "persistentVolumeReclaimPolicy": "Retain",
            }
            plane.ask("POST", VOLUMES, {"metadata": {"name": name}, "spec": spec})
            made.append(name)
        yield
    finally:
        for name in made:
            plane.ask("DELETE", f"{VOLUMES}/{name}")


@contextmanager
def gpus(node: Node, offered: int) -> Iterator[None]:
    """The node offers so many GPUs meanwhile."""
    before = int(node.offered())
    node.give(offered)
    try:
        yield
    finally:
        node.give(before)


@contextmanager
def alone(node: Node) -> Iterator[None]:
    """Keep the other nodes of the tests from taking pods."""
    with ExitStack() as around:
        for other in node.plane.get("/api/v1/nodes")["items"]:
            name = other["metadata"]["name"]
            if name == node.name or other["spec"].get("unschedulable"):
                continue
            path = f"/api/v1/nodes/{name}"
            node.plane.ask("PATCH", path, {"spec": {"unschedulable": True}})
            around.callback(node.plane.ask, "PATCH", path, {"spec": {"unschedulable": False}})
        yield
