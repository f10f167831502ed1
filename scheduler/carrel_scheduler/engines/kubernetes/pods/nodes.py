"""Nodes of Kubernetes as the core's nodes, less what unmanaged pods use.

Amounts are summed exactly and rounded once; of GPUs, so many devices that are not ours are reported
as broken. Labels keep their names; a few are normalised: the node group, the roles of workers, and
by which name GPUs are requested. An unmanaged pod that cannot be parsed counts as one pod.
"""

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.mig import MODELS
from carrel_scheduler.core.nodes.nodes import MOST_DEVICES
from carrel_scheduler.core.requests import GPU_RESOURCE, IN_GROUP
from carrel_scheduler.core.resources import MIB
from carrel_scheduler.engines import gpu_models
from carrel_scheduler.engines.external import NodeHealth
from carrel_scheduler.engines.gpu_models import UNGROUPED
from carrel_scheduler.engines.kubernetes.pods.quantities import (
    NANO,
    PodRefused,
    milli_floor,
    nanos,
    parsed,
    pieces_floor,
)
from carrel_scheduler.engines.kubernetes.pods.resource_requests import (
    CPU,
    GPU_RESOURCES,
    MEMORY,
    PODS,
    Nanos,
    in_bytes,
    total_of,
)
from carrel_scheduler.engines.kubernetes.pods.selectors import NO_EXECUTE, closed, core_taint, hard
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from carrel_scheduler.engines.mig_resources import held_milli
from carrel_schema.names import (
    GPU_INDEX,
    GROUP,
    MIG_MODEL,
    MIG_PREFIX,
    NODE_GROUP,
    RESERVATIONS_NAMESPACE,
)

NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class UnmanagedUse:
    """Sums by node."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Nanos]] = {}
        self._nodes: dict[str, Nanos] = {}

    def put(self, pod: Pod) -> set[str]:
        """Record a pod's present state; returns the nodes whose use changed.

        A pod that has no node, or has ended, uses nothing; a terminating one still does.
        """
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.ended or not node:
            return self.drop(uid)
        total = _total(pod)
        if self._pods.get(uid) == (node, total):
            return set()
        changed = self.drop(uid)
        self._pods[uid] = (node, total)
        self._add(node, total, 1)
        return changed | {node}

    def drop(self, uid: str) -> set[str]:
        """Remove a pod; returns the node whose use changed."""
        found = self._pods.pop(uid, None)
        if found is None:
            return set()
        node, total = found
        self._add(node, total, -1)
        return {node}

    def of(self, node: str) -> Mapping[str, int]:
        """Resource -> billionths in use on the node."""
        return self._nodes.get(node, NOTHING)

    def _add(self, node: str, total: Nanos, sign: int) -> None:
        sums = self._nodes.setdefault(node, {})
        for name, nano in total.items():
            sums[name] = sums.get(name, 0) + sign * nano
        if not sums.get(PODS):
            del self._nodes[node]


def is_reservation(pod: Pod) -> bool:
    """Whether a pod holds a GPU that others share: it is counted as theirs."""
    meta = pod.metadata
    return meta.namespace == RESERVATIONS_NAMESPACE and GPU_INDEX in meta.labels


def _total(pod: Pod) -> Nanos:
    try:
        total = total_of(pod)
    except PodRefused:
        return {PODS: NANO}
    if is_reservation(pod):
        for name in GPU_RESOURCES:
            total.pop(name, None)
    return total


NODE_GROUP_ALIASES: Final = ("run.ai/type", "run.ai/node-pool", "kai.scheduler/node-pool")
GPU_WORKER: Final = "node-role.kubernetes.io/carrel-gpu-worker"
CPU_WORKER: Final = "node-role.kubernetes.io/carrel-cpu-worker"
ROLE_ALIASES: Final = {
    "node-role.kubernetes.io/runai-gpu-worker": GPU_WORKER,
    "node-role.kubernetes.io/gpu-worker": GPU_WORKER,
    "node-role.kubernetes.io/runai-cpu-worker": CPU_WORKER,
    "node-role.kubernetes.io/cpu-worker": CPU_WORKER,
}
ROLE: Final = "yes"
"""The core's value of role labels, which people leave empty or fill with anything."""
BY_PLUGIN: Final = "plugin"
BY_CLAIMS: Final = "claims"
"""The values of the label ``TASK_GPUS`` that the core is told of nodes."""
DRAIN: Final = f"{GROUP}/drain"
"""Annotation: what runs here moves away, and nothing new starts."""
GPU_MEMORY: Final = "nvidia.com/gpu.memory"
"""Label of the GPU feature discovery: MiB of each GPU."""
GPU_MEMORY_AMD: Final = "amd.com/gpu.vram"
GPU_MODELS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
_OFF: Final = ("", "false", "no", "0")
_SILENCE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def node_set(
    node: Node,
    used: Mapping[str, int] = NOTHING,
    taken: Collection[int] = (),
    before: Collection[int] = (),
    group: str = "",
) -> NodeSet:
    """The node as the core's event.

    Args:
        node: as Kubernetes describes it.
        used: resource -> billionths that pods of others use here (``ForeignUse.of``).
        taken: devices that workloads hold, or that are reserved for them.
        before: devices that were reported broken last; they stay so while that is still right.
        group: the node group that a resource puts it into; else its label says so.

    Raises:
        PodRefused: ``bad_quantity``: a quantity of the node cannot be read; ``bad_mig_model``.
    """
    offered = _left(parsed(node.status.allocatable, "status.allocatable"), used)
    resource = gpu_resource(node)
    devices, broken = _devices(node, resource, used, taken, before)
    extended, divided = _extended(offered), mig_model(node)
    profiles = tuple(MODELS[divided].profiles) if divided else _profiles(extended)
    return NodeSet(
        name=node.metadata.name,
        devices=devices,
        cpu_milli=milli_floor(offered.get(CPU, 0)),
        memory_mib=pieces_floor(offered.get(MEMORY, 0)) // MIB,
        schedulable=in_order(node),
        broken_devices=broken,
        labels=tuple(sorted(labels_of(node, group).items())),
        gpu_memory_mib=gpu_memory_mib(node),
        mig_model=divided,
        instances_only=bool(divided),
        profiles=profiles,
        divided=bool(profiles),
        extended=extended,
        counted_milli=held_milli(extended),
        taints=frozenset(core_taint(taint) for taint in hard(node.spec.taints)),
        draining=is_draining(node),
    )


def gpu_resource(node: Node) -> str:
    """The resource name of the node's GPUs; empty without GPUs."""
    for offered in (node.status.capacity, node.status.allocatable):
        for name in GPU_RESOURCES:
            if offered.get(name, "0") != "0":
                return name
    return ""


def in_order(node: Node) -> bool:
    """Whether it may be given new work: ready, not cordoned, not marked as out of order."""
    if node.spec.unschedulable or closed(node.spec.taints):
        return False
    if node.metadata.deletion_timestamp is not None:
        return False
    return all(c.status == "True" for c in node.status.conditions if c.type == "Ready")


def health_of(node: Node) -> NodeHealth:
    """The health of a node."""
    ready = (one for one in node.status.conditions if one.type == "Ready")
    if any(one.status != "True" for one in ready):
        return NodeHealth.SILENT
    if any(taint.key in _SILENCE and taint.effect == NO_EXECUTE for taint in node.spec.taints):
        return NodeHealth.SILENT
    if is_draining(node):
        return NodeHealth.DRAINING
    return NodeHealth.CORDONED if node.spec.unschedulable else NodeHealth.IN_ORDER


def is_draining(node: Node) -> bool:
    """Whether an admin has requested a drain of the node."""
    return node.metadata.annotations.get(DRAIN, "").lower() not in _OFF


def labels_of(node: Node, group: str = "") -> dict[str, str]:
    """The node's labels, with equivalent ones in one spelling."""
    labels = dict(node.metadata.labels)
    for key in (GPU_WORKER, CPU_WORKER):
        if key in labels:
            labels[key] = ROLE
    for alias, key in ROLE_ALIASES.items():
        if alias in labels:
            labels[key] = ROLE
    labels[IN_GROUP] = node_group(node, group) or UNGROUPED
    if labels[IN_GROUP] != UNGROUPED:
        labels[NODE_GROUP] = labels[IN_GROUP]
    if resource := gpu_resource(node):
        labels[GPU_RESOURCE] = resource
    if model := gpu_model(node):
        labels[gpu_models.LABEL] = model
    return labels


def role_for(*, gpus: bool) -> tuple[str, frozenset[str]]:
    """The label that work requires where nodes take only work of their roles."""
    return GPU_WORKER if gpus else CPU_WORKER, frozenset({ROLE})


def node_group(node: Node, group: str = "") -> str:
    """The node's group: as given, else by its label or a label that others use for it."""
    labels = node.metadata.labels
    given = (labels[key] for key in (NODE_GROUP, *NODE_GROUP_ALIASES) if labels.get(key))
    return group or next(given, "")


def gpu_count(node: Node) -> int:
    """The number of GPUs that the node offers, in use or not."""
    resource = gpu_resource(node)
    return _count(node.status.allocatable, resource) if resource else 0


def gpu_model(node: Node) -> str:
    """The model of its GPUs, as the feature discovery of its vendor says it."""
    labels = node.metadata.labels
    return next((labels[key] for key in GPU_MODELS if key in labels), "")


def mig_model(node: Node) -> str:
    """The model of the GPUs that the scheduler divides into MIG instances; empty: it does not.

    Raises ``PodRefused`` for one that is not known.
    """
    written = node.metadata.labels.get(MIG_MODEL, "")
    if written and written not in MODELS:
        field, right = f"metadata.labels[{MIG_MODEL}]", f"one of {', '.join(MODELS)}"
        raise PodRefused("bad_mig_model", field, written, right)
    return written


def gpu_memory_mib(node: Node) -> int:
    """The memory of each of the node's GPUs; 0 if unknown."""
    written = node.metadata.labels.get(GPU_MEMORY, "")
    if written.isdecimal():
        return int(written)
    written = node.metadata.labels.get(GPU_MEMORY_AMD, "")
    try:
        return pieces_floor(nanos(written)) // MIB if written else 0
    except PodRefused:
        return 0


def _left(offered: Nanos, used: Mapping[str, int]) -> Nanos:
    return {name: max(0, nano - used.get(name, 0)) for name, nano in offered.items()}


def _devices(
    node: Node,
    resource: str,
    used: Mapping[str, int],
    taken: Collection[int],
    before: Collection[int],
) -> tuple[int, frozenset[int]]:
    """The number of devices, and those of them that Carrel may not allocate."""
    least = max(taken, default=-1) + 1
    if not resource:
        return least, frozenset(set(range(least)) - set(taken))
    able = _count(node.status.allocatable, resource)
    devices = min(MOST_DEVICES, max(able, _count(node.status.capacity, resource), least))
    out = devices - min(devices, able) + used.get(resource, 0) // NANO
    free = [index for index in range(devices) if index not in taken]
    kept = [index for index in free if index in before]
    order = [*reversed(kept), *(index for index in reversed(free) if index not in before)]
    return devices, frozenset(order[:out])


def _count(offered: Mapping[str, str], resource: str) -> int:
    return pieces_floor(nanos(offered.get(resource, "0"), resource))


def _profiles(extended: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """The profiles of MIG instances that a node offers by name: those there are now, else all."""
    found = {
        name.removeprefix(MIG_PREFIX): most
        for name, most in extended
        if name.startswith(MIG_PREFIX)
    }
    return tuple(name for name, most in found.items() if most) or tuple(found)


def _extended(offered: Nanos) -> tuple[tuple[str, int], ...]:
    others: Iterable[tuple[str, int]] = (
        (name, pieces_floor(nano) // MIB if in_bytes(name) else pieces_floor(nano))
        for name, nano in offered.items()
        if name not in (CPU, MEMORY, *GPU_RESOURCES)
    )
    return tuple(sorted(others))
