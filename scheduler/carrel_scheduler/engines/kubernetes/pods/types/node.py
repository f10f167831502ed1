"""Nodes."""

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types.affinity import Taint
from carrel_scheduler.engines.kubernetes.pods.types.meta import Condition, Kube, Meta, Quantities


class NodeSpec(Kube, frozen=True):
    """What an admin, or a controller, says of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Kube, frozen=True):
    """What the node says of itself."""

    capacity: Quantities = msgspec.field(default_factory=dict)
    allocatable: Quantities = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Node(Kube, frozen=True):
    """A node."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
