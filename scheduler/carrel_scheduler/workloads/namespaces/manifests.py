"""Manifests of a project's namespace: rights, network rules, claims for its files.

Rights are given by binding roles that the installation brings; the scheduler can bind these roles
and no others, so it can give nobody more than an admin foresaw.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final

from carrel_schema import names
from carrel_schema.objects import Project

Manifest = dict[str, Any]
RESEARCHER: Final = "carrel-researcher"
TASKS: Final = "carrel-tasks"
WORKSPACES: Final = "carrel-workspaces"
PROJECT_NETWORK: Final = "carrel-project"
SCHEDULER_ACCOUNT: Final = "carrel-scheduler"
HUB_ACCOUNT: Final = "carrel-hub"
METADATA: Final = (
    "169.254.0.0/16",  # link-local: AWS, Azure, Google, OpenStack, Oracle and others
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure's agents
    "fd00:ec2::/32",  # AWS over IPv6
    "fd20:ce::254/128",  # Google over IPv6
    "fe80::/10",
)
"""The addresses at which clouds give a machine its credentials."""
NODE_DNS: Final = "169.254.20.10/32"
"""The usual address of a node's own cache of names."""
DNS_PORTS: Final = (53, 5353)
SERVING_PORTS: Final = (8080, 8081, 8091)
"""The scheduler's API, the Hub's, the gateway."""
RBAC: Final = "rbac.authorization.k8s.io"
_STANDARD: Final = "pod-security.kubernetes.io"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The volume for the checkpoints of a project's tasks.

    Attributes:
        size: as Kubernetes writes it; empty: none is made.
        storage_class: empty: the cluster's own choice.
        access_modes: how many nodes may use it at once.
    """

    size: str = "100Gi"
    storage_class: str = ""
    access_modes: tuple[str, ...] = ("ReadWriteMany",)


def labels(project: str) -> dict[str, str]:
    """The labels of all objects that are created for a project."""
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
    """The group of the project's members, in Kubernetes as in the Hub."""
    return project.spec.members_group or f"project-{project.meta.name}"


def role_bindings(project: Project, system: str) -> list[Manifest]:
    """Rights of members, of the scheduler and of the Hub; ``system`` is the latter's namespace."""
    members = {"apiGroup": RBAC, "kind": "Group", "name": group_of(project)}
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
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "labels": labels(project)},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def network(project: str, system: str, closed: Iterable[str] = ()) -> Manifest:
    """The network policies of a project's pods, for ingress and egress.

    They are reached by each other and by the parts of Carrel. They reach each other, names, the
    parts that serve work, and the world outside but for metadata services, which give whoever asks
    the rights of the node, and for the networks ``closed``.
    """
    within: Manifest = {"podSelector": {}}
    ours: Manifest = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": system}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "carrel"}},
    }
    egress = [
        {"to": [within]},
        {"to": [ours], "ports": [{"port": port} for port in SERVING_PORTS]},
        {
            "to": [{"namespaceSelector": {}}, {"ipBlock": {"cidr": NODE_DNS}}],
            "ports": [
                {"port": port, "protocol": protocol}
                for port in DNS_PORTS
                for protocol in ("UDP", "TCP")
            ],
        },
        {"to": _outside([*METADATA, *closed])},
    ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": PROJECT_NETWORK, "labels": labels(project)},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [within, ours]}],
            "egress": egress,
        },
    }


def _outside(closed: Iterable[str]) -> list[Manifest]:
    """All addresses outside these networks."""
    networks = [ip_network(one) for one in closed]
    return [
        {
            "ipBlock": {
                "cidr": cidr,
                "except": sorted({str(one) for one in networks if one.version == version}),
            }
        }
        for version, cidr in ((4, "0.0.0.0/0"), (6, "::/0"))
    ]


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
