"""What a project's namespace holds: rights, who reaches its pods, where its work is saved.

Rights are given by binding roles that the installation brings; the scheduler can bind these roles
and no others, so it can give nobody more than an admin foresaw.
"""

from dataclasses import dataclass
from typing import Any, Final

from carrel_scheduler.ledger.objects import Project
from carrel_scheduler.ledger.resources import names

Manifest = dict[str, Any]
RESEARCHER: Final = "carrel-researcher"
TASKS: Final = "carrel-tasks"
WORKSPACES: Final = "carrel-workspaces"
PROJECT_NETWORK: Final = "carrel-project"
SCHEDULER_ACCOUNT: Final = "carrel-scheduler"
HUB_ACCOUNT: Final = "carrel-hub"
_RBAC: Final = "rbac.authorization.k8s.io"
_STANDARD: Final = "pod-security.kubernetes.io"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The volume that a project's tasks save their work on.

    Attributes:
        size: as Kubernetes writes it; empty: none is made.
        storage_class: empty: the cluster's own choice.
        access_modes: how many nodes may use it at once.
    """

    size: str = "100Gi"
    storage_class: str = ""
    access_modes: tuple[str, ...] = ("ReadWriteMany",)


def labels(project: str) -> dict[str, str]:
    """Of everything that is made for a project."""
    return {names.PROJECT: project, names.MADE_BY: names.MADE_BY_US}


def security() -> dict[str, str]:
    """Labels by which a namespace takes only pods of the ``restricted`` standard."""
    return {f"{_STANDARD}/{mode}": "restricted" for mode in ("enforce", "warn")}


def namespace(project: str) -> Manifest:
    """A new namespace."""
    name = names.namespace_of(project)
    marks = labels(project) | security()
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}


def group_of(project: Project) -> str:
    """The group whose members belong to the project, for Kubernetes as for the Hub."""
    return project.spec.members_group or f"project-{project.meta.name}"


def role_bindings(project: Project, system: str) -> list[Manifest]:
    """Rights of members, of the scheduler and of the Hub; ``system`` is the latter's namespace."""
    members = {"apiGroup": _RBAC, "kind": "Group", "name": group_of(project)}
    subjects = {
        RESEARCHER: members,
        TASKS: _account(SCHEDULER_ACCOUNT, system),
        WORKSPACES: _account(HUB_ACCOUNT, system),
    }
    return [_binding(project.meta.name, role, subject) for role, subject in subjects.items()]


def _account(name: str, namespace: str) -> Manifest:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def _binding(project: str, role: str, subject: Manifest) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "labels": labels(project)},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def network(project: str, system: str) -> Manifest:
    """Pods of a project are reached by each other, and by the proxy and the gateway."""
    within: Manifest = {"podSelector": {}}
    ours = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": system}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": PROJECT_NETWORK, "labels": labels(project)},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [within, ours]}],
        },
    }


def claim(project: str, told: Checkpoints) -> Manifest:
    """The volume for checkpoints."""
    chosen = {"storageClassName": told.storage_class} if told.storage_class else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": names.CHECKPOINTS_CLAIM, "labels": labels(project)},
        "spec": {
            "accessModes": list(told.access_modes),
            "resources": {"requests": {"storage": told.size}},
            **chosen,
        },
    }
