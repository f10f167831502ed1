"""The cluster as our own service accounts may use it: their manifests, their tokens, no more."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from carrel_scheduler.workloads.namespaces import manifests
from carrel_schema.objects import Meta, Project, ProjectSpec
from k8s.cluster.plane import ControlPlane, Refused

RIGHTS: Final = Path(__file__).parents[2] / "deploy" / "kubernetes" / "rights"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
SYSTEM: Final = "carrel-system"
TOKEN_SECONDS: Final = 7200


def give(plane: ControlPlane) -> None:
    """Apply what the installation brings: accounts, roles, who has which, priorities."""
    make(plane, "/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    for file in (*sorted(RIGHTS.glob("*.yaml")), RIGHTS.parent / "priorities.yaml"):
        for one in yaml.safe_load_all(file.read_text()):
            if one["kind"] != "Kustomization":
                make(plane, place(one), one)


def project_namespace(plane: ControlPlane, project: str) -> None:
    """A project's namespace with its rights, as the scheduler makes it."""
    make(plane, "/api/v1/namespaces", manifests.namespace(project))
    base = f"{RBAC}/namespaces/carrel-{project}/rolebindings"
    for binding in manifests.role_bindings(
        Project(meta=Meta(name=project), spec=ProjectSpec()), SYSTEM
    ):
        make(plane, base, binding)


def kubeconfig(plane: ControlPlane, account: str, to: Path) -> Path:
    """The kubeconfig of a service account of Carrel."""
    path = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/{account}/token"
    asked = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
    token = plane.ask("POST", path, asked)["status"]["token"]
    config = json.loads(plane.kubeconfig(to).read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    to.write_text(json.dumps(config))
    return to


def make(plane: ControlPlane, path: str, body: dict[str, Any]) -> None:
    """An object of the cluster, unless it is there."""
    try:
        plane.ask("POST", path, body)
    except Refused as refused:
        if refused.status != 409:
            raise


def place(one: Mapping[str, Any]) -> str:
    """The path to which a manifest is posted."""
    namespace = one["metadata"].get("namespace")
    base = "/api/v1" if one["apiVersion"] == "v1" else f"/apis/{one['apiVersion']}"
    kind = f"{one['kind'].lower()}s".replace("sss", "sses")
    return f"{base}/namespaces/{namespace}/{kind}" if namespace else f"{base}/{kind}"
