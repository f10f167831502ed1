"""A cluster to attack, and objects to attack it with; nothing is really made."""

import asyncio
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.ledger.resources.store import KubernetesStore
from carrel_scheduler.workloads.namespaces import manifests
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.objects import Meta, Project, ProjectSpec
from k8s import access
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import ApiUser, make_namespace, until
from k8s.stores import PROJECTS, remove_everything

ACCOUNTS: Final = "system:serviceaccount:carrel-system"
WHO: Final[Mapping[str, tuple[str, list[str]]]] = {
    "ada": ("ada", ["project-vision"]),
    "submitter": ("sue", ["submitters"]),
    "scheduler": (f"{ACCOUNTS}:carrel-scheduler", ["system:serviceaccounts"]),
    "hub": (f"{ACCOUNTS}:carrel-hub", ["system:serviceaccounts"]),
}
RBAC: Final = "rbac.authorization.k8s.io"
LIMITS: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def somebody(plane: ControlPlane, who: str) -> ApiUser:
    """Requests as one of the accounts."""
    return ApiUser(plane, *WHO[who])


@pytest.fixture(scope="module")
def cluster(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Two projects as the scheduler makes them, one other namespace, and policies in force."""
    kubeconfig = installed.kubeconfig(tmp_path_factory.mktemp("cluster") / "admin.json")
    for name in PROJECTS:
        make_namespace(installed, f"carrel-{name}")
        notes = {"metadata": {"annotations": {"carrel.dev/adopt": name}}}
        installed.ask("PATCH", f"/api/v1/namespaces/carrel-{name}", notes)
    asyncio.run(_make_projects(kubeconfig))
    # Of a project, without what the scheduler puts into it.
    make_namespace(installed, "carrel-bare", **manifests.namespace("bare")["metadata"]["labels"])
    make_namespace(installed, "theirs", **{"pod-security.kubernetes.io/enforce": "baseline"})
    scheduler, ada = somebody(installed, "scheduler"), somebody(installed, "ada")
    in_force = {
        "policies": lambda: "restricted pods only" in scheduler.create(namespace("x", {})).error,
        "rights": lambda: not scheduler.create(binding("carrel-bare")).code,
        "marks": lambda: "leave it out" in ada.create(owned()).error,
    }
    for what, holds in in_force.items():
        until(holds, f"{what} in force")
    yield
    asyncio.run(_remove_everything(kubeconfig))


async def _make_projects(kubeconfig: Path) -> None:
    client = KubeClient(from_kubeconfig(kubeconfig))
    store = KubernetesStore(client, clock=time.time, ids=lambda: uuid.uuid4().hex)
    controller = Namespaces(
        store,
        client,
        system="carrel-system",
        checkpoints=Checkpoints(size=""),
        chance=random.random,
    )
    for name in PROJECTS:
        project = await store.create(Project(meta=Meta(name=name), spec=ProjectSpec()))
        await controller.ensure(project)
    await store.close()
    await client.close()


async def _remove_everything(kubeconfig: Path) -> None:
    client = KubeClient(from_kubeconfig(kubeconfig))
    await remove_everything(KubernetesStore(client, clock=float, ids=str))
    await client.close()


def namespace(project: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    made = manifests.namespace(project)
    if labels is not None:
        made["metadata"]["labels"] = dict(labels)
    return made


def binding(where: str, role: str = "carrel-tasks", **changes: Any) -> dict[str, Any]:
    subject = {"kind": "ServiceAccount", "name": "carrel-scheduler", "namespace": "carrel-system"}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": changes.pop("name", role), "namespace": where},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
        **changes,
    }


def pod(where: str = "carrel-vision", labels: Any = None, notes: Any = None, **spec: Any) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": spec.pop("name", "attack"),
            "namespace": where,
            "labels": labels or {},
            "annotations": notes or {},
            **({"ownerReferences": spec.pop("owners")} if "owners" in spec else {}),
        },
        "spec": {
            "schedulerName": "carrel",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "one", "image": "none", "securityContext": LIMITS}],
            **spec,
        },
    }


def training(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": spec.pop("kind", "Training"),
        "metadata": {"name": spec.pop("name", "attack"), "namespace": "carrel-vision"},
        "spec": {"user": "ada", **spec},
    }


def owned() -> dict[str, Any]:
    return training(command=["true"], owner="somebody")


def board(**spec: Any) -> dict[str, Any]:
    return training(kind="TensorBoard", tensorboard={"jobs": ["a"]}, **spec)


def epoch(plane: ControlPlane) -> str:
    """The epoch of the lease, which is made where there is none."""
    path = "/apis/coordination.k8s.io/v1/namespaces/carrel-system/leases"
    lease = {"metadata": {"name": "carrel-scheduler"}, "spec": {"leaseTransitions": 1}}
    access.make(plane, path, lease)
    return str(plane.get(f"{path}/carrel-scheduler")["spec"]["leaseTransitions"])


def default_account(plane: ControlPlane, where: str) -> None:
    access.make(
        plane, f"/api/v1/namespaces/{where}/serviceaccounts", {"metadata": {"name": "default"}}
    )
