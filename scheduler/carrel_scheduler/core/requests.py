"""The resource request of one task, and its conditions on nodes.

Equal requests are one *class* to the core: their capacity on every node is counted once for all
tasks and workloads that share it. Keep free text and exact byte figures out of them: round CPU and
memory up to steps at the edge, or every workload becomes a class of its own.
"""

from dataclasses import dataclass

from carrel_scheduler.core.resources import MILLI, ResourceVector

HOST = "host"
"""The level and label key that stands for the single node, whatever labels nodes have."""

IN_GROUP = "node group"
"""Told of nodes as if it were a label, in words that people read: the group of a node."""

GPU_RESOURCE = "carrel.dev/gpu-resource"
"""Told of nodes as if it were a label: the resource by which pods ask for the node's GPUs."""
TASK_GPUS = "carrel.dev/task-gpus"
"""Told likewise: how tasks get GPUs of the node, where they may get some by claims."""
GPU_LABELS = (GPU_RESOURCE, TASK_GPUS)
"""A request has them by its GPUs, not by what its user asked of nodes."""


@dataclass(frozen=True, slots=True)
class NodeConstraint:
    """Conditions and preferences of a task for nodes.

    Attributes:
        nodes: when given, only these.
        labels: required, all of them: the node's value of the key is one of the values.
        preferred: nodes that satisfy more of these are taken first; never a condition.
        avoided: names of nodes that are taken last, whatever they satisfy; never a condition.
        avoided_devices: devices of a node, by its name, that are taken last there, the first of
            them least of all; never a condition.
        device_types: where devices of a node are unlike, the types that will do, the best first:
            each entry is a set of equally good ones. Nothing for other nodes, whose labels say
            what they are; ``None``: any.
        tolerations: taints that do not keep the task away, ``key`` or ``key=value``; ``*`` all.
        apart: members of one workload go to different values of this label key (``HOST``: to
            different nodes); empty means that they may share.
        spread: whether the nodes with most free capacity come first; ``None``: see the settings.
    """

    nodes: frozenset[str] | None = None
    labels: tuple[tuple[str, frozenset[str]], ...] = ()
    preferred: tuple[tuple[str, frozenset[str]], ...] = ()
    avoided: frozenset[str] = frozenset()
    avoided_devices: tuple[tuple[str, int], ...] = ()
    device_types: tuple[frozenset[str], ...] | None = None
    tolerations: frozenset[str] = frozenset()
    apart: str = ""
    spread: bool | None = None


ANYWHERE = NodeConstraint()


@dataclass(frozen=True, slots=True)
class Request:
    """The resource request of one task; at most one of the four GPU forms.

    Attributes:
        gpus: whole devices.
        share_milli: thousandths (1 to 999) of each of ``devices`` GPUs.
        gpu_memory_mib: memory on each of ``devices`` GPUs; becomes a share of a device by the
            memory of the node's GPUs, rounded up to a hundredth.
        devices: how many GPUs a share is taken of.
        mig_profile: a MIG instance such as ``2g.10gb``, on one device.
        extended: countable resources by name, sorted by name.
        counted_milli: thousandths of GPUs that these are: they count for the queue, no device is
            held. So are MIG instances where somebody else divides the GPUs.
    """

    gpus: int = 0
    cpu_milli: int = 0
    memory_mib: int = 0
    share_milli: int = 0
    gpu_memory_mib: int = 0
    devices: int = 1
    mig_profile: str = ""
    extended: tuple[tuple[str, int], ...] = ()
    where: NodeConstraint = ANYWHERE
    counted_milli: int = 0

    @classmethod
    def of(cls, amounts: ResourceVector, where: NodeConstraint = ANYWHERE) -> "Request":
        """Whole GPUs, CPU and memory; ``gpu_milli`` is a multiple of 1000 or below it."""
        whole, share = divmod(amounts.gpu_milli, MILLI)
        return cls(
            gpus=whole,
            share_milli=share,
            cpu_milli=amounts.cpu_milli,
            memory_mib=amounts.memory_mib,
            where=where,
        )


NOTHING = Request()
"""A task that needs no capacity."""
