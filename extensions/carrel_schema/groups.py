"""Groups of other people's pods, groups and levels of nodes: as a cluster writes them."""

from typing import Annotated, Literal

import msgspec

from carrel_schema.constraints import Constraint


class PodGroupSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods that start together: those with the label `carrel.dev/pod-group` of this name.

    Attributes:
        min_member: so many are placed together or none of them.
        priority_class_name: the priority of the group; empty: that of its pods.
        queue: the project that it counts for; empty: that of its namespace.
    """

    min_member: Annotated[int, Constraint(ge=1, le=10_000)] = 1
    priority_class_name: str = ""
    queue: str = ""


class PodGroupStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The observed state of a PodGroup.

    Attributes:
        phase: waits for room, is placed, or is over.
        pods: so many of its pods are there.
        placed: so many of them have their places.
        reason: why it waits, in a sentence.
    """

    phase: Literal["pending", "placed", "ended"] = "pending"
    pods: int = 0
    placed: int = 0
    reason: str = ""
    observed_generation: int = 0


class TopologyLevel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A level of a topology: nodes with the same value of a label are one domain.

    Attributes:
        node_label: the key of the label; the last level may be `kubernetes.io/hostname`.
    """

    node_label: Annotated[str, Constraint(min_length=1, max_length=317)]


class TopologySpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The levels of the cluster's topology, in the form of Kueue's Topology.

    Attributes:
        levels: from coarse to fine, as zone, block, rack.
    """

    levels: Annotated[tuple[TopologyLevel, ...], Constraint(min_length=1, max_length=16)]


class TopologyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Reserved for controllers."""

    observed_generation: int = 0


class NodeGroupSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that are chosen together, by their labels or their names.

    Attributes:
        description: for people.
        match_labels: labels that a node of the group has, all of them.
        node_names: nodes that are in the group whatever their labels are.
        role: what its nodes are for; empty: for all work.
        projects: those whose work may go there; with no departments either: all.
        departments: those whose projects' work may go there.
    """

    description: str = ""
    match_labels: dict[str, str] = {}
    node_names: tuple[str, ...] = ()
    role: Literal["", "training", "interactive"] = ""
    projects: tuple[str, ...] = ()
    departments: tuple[str, ...] = ()


class NodeGroupStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The nodes that are in the group now.

    Attributes:
        nodes: how many.
        available: so many of them may be given new work.
        gpus: that they offer together.
    """

    nodes: int = 0
    available: int = 0
    gpus: int = 0
    observed_generation: int = 0
