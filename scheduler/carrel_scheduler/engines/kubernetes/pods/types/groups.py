"""What pods belong to: groups, namespaces, priority classes, and owners of any kind."""

from typing import Any

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types.meta import Kube, Meta


class PodGroupSpec(Kube, frozen=True):
    """How many pods start together."""

    min_member: int = 1


class PodGroup(Kube, frozen=True):
    """Pods that name this group start together."""

    metadata: Meta = Meta()
    spec: PodGroupSpec = PodGroupSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class NodeGroupSpec(Kube, frozen=True):
    """Which nodes are in a group, and for whose work they are; see the resource of that name."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    role: str = ""
    projects: tuple[str, ...] = ()


class NodeGroup(Kube, frozen=True):
    """A group of nodes."""

    metadata: Meta = Meta()
    spec: NodeGroupSpec = NodeGroupSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class Namespace(Kube, frozen=True):
    """A namespace; its labels are asked for by affinities and by the project's."""

    metadata: Meta = Meta()


class PriorityClass(Kube, frozen=True):
    """A named priority of Kubernetes."""

    metadata: Meta = Meta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class Owned(Kube, frozen=True):
    """An object of any kind that may own pods; rules read the fields they know of it."""

    api_version: str = ""
    kind: str = ""
    metadata: Meta = Meta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)
