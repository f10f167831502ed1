"""A cluster to attack, and objects to attack it with; nothing is really made."""

import asyncio
import json
import random
from collections.abc import Mapping
from typing import Any, Final

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.workloads.namespaces import manifests
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.objects import Meta, Project, ProjectSpec
from k8s import access
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import DEPLOY, Kubectl, Told, make_namespace, until
from k8s.stores import KubernetesStores

ACCOUNTS: Final = "system:serviceaccount:carrel-system"
WHO: Final[Mapping[str, tuple[str, list[str]]]] = {
    "ada": ("ada", ["project-vision"]),
    "submitter": ("sue", ["submitters"]),
    "scheduler": (f"{ACCOUNTS}:carrel-scheduler", ["system:serviceaccounts"]),
    "hub": (f"{ACCOUNTS}:carrel-hub", ["system:serviceaccounts"]),
}
RBAC: Final = "rbac.authorization.k8s.io"
LIMITS: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


class As:
    """``kubectl`` as somebody; nothing is kept."""

    def __init__(self, kubectl: Kubectl, who: str) -> None:
        user, groups = WHO[who]
        self._kubectl = kubectl
        self._words = (f"--as={user}", *(f"--as-group={one}" for one in groups))
        self._dry = "--dry-run=server"

    def create(self, manifest: Mapping[str, Any]) -> Told:
        text = json.dumps(manifest)
        return self._kubectl.run("create", "-f", "-", *self._words, self._dry, given=text)

    def patch(self, what: str, name: str, body: Any, namespace: str = "", *more: str) -> Told:
        where = ("-n", namespace) if namespace else ()
        words = ("patch", what, name, *where, "--type=merge", "-p", json.dumps(body), *more)
        return self._kubectl.run(*words, *self._words, self._dry)

    def delete(self, what: str, name: str, namespace: str = "") -> Told:
        where = ("-n", namespace) if namespace else ()
        return self._kubectl.run("delete", what, name, *where, *self._words, self._dry)


@pytest.fixture(scope="module")
def installed(ours: ControlPlane, kubectl: Kubectl) -> ControlPlane:
    """A cluster with the whole installation, but for what runs in it."""
    kubectl("apply", "--server-side", "--force-conflicts", "-k", str(DEPLOY))
    return ours


@pytest.fixture
async def cluster(
    installed: ControlPlane, client: KubeClient, stores: KubernetesStores, kubectl: Kubectl
) -> None:
    """Two projects as the scheduler makes them, one other namespace, and policies in force."""
    store = await stores.open()
    controller = Namespaces(
        store,
        client,
        system="carrel-system",
        checkpoints=Checkpoints(size=""),
        chance=random.random,
    )
    for name in ("vision", "speech"):
        notes = {"metadata": {"annotations": {"carrel.dev/adopt": name}}}
        installed.ask("PATCH", f"/api/v1/namespaces/carrel-{name}", notes)
        project = await store.create(Project(meta=Meta(name=name), spec=ProjectSpec()))
        await controller.ensure(project)
    # Of a project, without what the scheduler puts into it.
    make_namespace(installed, "carrel-bare", **manifests.namespace("bare")["metadata"]["labels"])
    make_namespace(installed, "theirs", **{"pod-security.kubernetes.io/enforce": "baseline"})
    scheduler, ada = As(kubectl, "scheduler"), As(kubectl, "ada")
    in_force = {
        "policies": lambda: "restricted pods only" in scheduler.create(namespace("x", {})).error,
        "rights": lambda: not scheduler.create(binding("carrel-bare")).code,
        "marks": lambda: "leave it out" in ada.create(owned()).error,
    }
    for what, holds in in_force.items():
        await asyncio.to_thread(until, holds, f"{what} in force", 30.0)


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
    """That of the lease, which is made where there is none."""
    path = "/apis/coordination.k8s.io/v1/namespaces/carrel-system/leases"
    lease = {"metadata": {"name": "carrel-scheduler"}, "spec": {"leaseTransitions": 1}}
    access.make(plane, path, lease)
    return str(plane.get(f"{path}/carrel-scheduler")["spec"]["leaseTransitions"])


def default_account(plane: ControlPlane, where: str) -> None:
    access.make(
        plane, f"/api/v1/namespaces/{where}/serviceaccounts", {"metadata": {"name": "default"}}
    )
