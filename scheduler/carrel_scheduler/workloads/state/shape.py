"""The shape of a workload for the core: how many tasks, how few will do, how it grows.

The core places *parts*. Of most work a part is a task. Of one elastic task that changes its GPUs a
part is one GPU: the first carries the task's CPU and memory, all lie on one node, and their number
doubles and halves. Such a task starts again from its checkpoint whenever its parts change.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.gangs import Group, Growth, Level
from carrel_scheduler.core.mig import counted_gpu_milli
from carrel_scheduler.core.requests import ANYWHERE, HOST, NodeConstraint, Request
from carrel_scheduler.core.resources import MIB, MILLI, ResourceVector
from carrel_scheduler.engines import gpu_models
from carrel_scheduler.engines.mig_resources import held_milli
from carrel_schema.kinds import KINDS
from carrel_schema.names import NODE_GROUP, mig_resource
from carrel_schema.objects import Resources, Workload, WorkloadSpec, WorkloadStatus
from carrel_schema.sections import Rendezvous

RENDEZVOUS: Final = "_rendezvous"
"""The name, in ``TaskInfo.ports`` of the first member, of the port at which a gang meets."""

MEMBER: Final = "_member"
"""The name, there, of the port at which a member of an MPI gang takes commands."""

WORKER: Final = "_worker"
"""The name, there, of the port of a further member of any other gang, for TensorFlow."""

NODE_LEVELS: Final = ("node", HOST, "kubernetes.io/hostname")
"""The names of the topology level whose domains are the single nodes."""


def is_gang(spec: WorkloadSpec) -> bool:
    """Whether the tasks have to find each other."""
    return spec.kind == "distributed" or spec.tasks > 1


def rendezvous_of(spec: WorkloadSpec) -> Rendezvous:
    """The rendezvous of a workload's members."""
    return spec.rendezvous or Rendezvous()


def is_mpi(spec: WorkloadSpec) -> bool:
    """Whether the first member runs the command and starts the others by MPI."""
    return is_gang(spec) and rendezvous_of(spec).launcher == "mpi"


def meets(spec: WorkloadSpec) -> bool:
    """Whether its members report that they have met; in an MPI gang they do not."""
    return is_gang(spec) and not is_mpi(spec)


def own_ports(spec: WorkloadSpec, index: int) -> list[str]:
    """The ports that a member needs for the others, by name."""
    if not is_gang(spec):
        return []
    if is_mpi(spec):
        return [RENDEZVOUS, MEMBER] if index == 0 else [MEMBER]
    return [RENDEZVOUS] if index == 0 else [WORKER]


def port_of(workload: Workload) -> int:
    """The port at which the members meet; 0 before it is assigned."""
    tasks = (task for task in workload.status.tasks if task.index == 0)
    return next((task.ports.get(RENDEZVOUS, 0) for task in tasks), 0)


def resizes(spec: WorkloadSpec) -> bool:
    """Whether the workload has one task whose number of GPUs changes."""
    return spec.elastic is not None and spec.elastic.gpus_of_task


def least_parts(spec: WorkloadSpec) -> int:
    """The smallest number of parts with which the workload may run."""
    if resizes(spec):
        gpus = max(1, spec.resources.gpu_milli // MILLI)
        return gpus // (gpus & -gpus)
    if spec.elastic is not None and spec.elastic.min_tasks:
        return min(spec.elastic.min_tasks, spec.tasks)
    return spec.tasks


def most_parts(spec: WorkloadSpec, largest_gpus: int) -> int:
    """The largest number of parts it can run with where the largest node has so many GPUs."""
    if not resizes(spec):
        return spec.tasks
    most = least_parts(spec)
    wanted = max(largest_gpus, spec.resources.gpu_milli // MILLI)
    while most * 2 <= wanted:
        most *= 2
    return most


def group_of(
    spec: WorkloadSpec,
    largest_gpus: int,
    done: int = 0,
    where: NodeConstraint = ANYWHERE,
    *,
    divides: bool = False,
) -> Group | None:
    """The gang's structure; ``None`` where equal tasks start together and may be placed anywhere.

    So many tasks that are ``done`` count no more: the minimum is that of the others.
    """
    least, most = max(0, least_parts(spec) - done), most_parts(spec, largest_gpus)
    if resizes(spec):
        whole = amounts_of(spec.resources)
        cpu, memory = whole.cpu_milli, whole.memory_mib
        first = Request(gpus=1, cpu_milli=cpu, memory_mib=memory, where=where)
        requests = (first, *(Request(gpus=1, where=where) for _ in range(most - 1)))
        one_node = Level(required=HOST)
        return Group(requests=requests, min_tasks=least, level=one_node, growth=Growth.DOUBLE)
    level = level_of(spec) if most > 1 else None
    if least == most and level is None:
        return None
    request = request_of(spec, where, divides=divides)
    return Group(requests=(request,) * most, min_tasks=least, level=level)


def level_of(spec: WorkloadSpec) -> Level | None:
    """The topology level at which the tasks have to be together; ``None`` without one."""
    required, preferred = level_key(spec.topology_required), level_key(spec.topology_preferred)
    return Level(required, preferred) if required or preferred else None


def level_key(name: str) -> str:
    """The core's name of a topology level: the single node has several names."""
    return HOST if name in NODE_LEVELS else name


def where_of(
    spec: WorkloadSpec,
    models: Collection[str] = (),
    spread: bool | None = None,
    status: WorkloadStatus | None = None,
    *,
    mixes: Collection[str] = (),
) -> NodeConstraint:
    """The workload's own conditions on nodes.

    Args:
        spec: of the work.
        models: of GPUs that nodes have.
        spread: whether its project spreads work over nodes; ``None``: as the cluster does.
        status: of the work: where its last attempts failed it is placed only if no other place
            fits, unless it wants no such care.
        mixes: labels of nodes with GPUs of several models.
    """
    failed = status if status is not None and spec.avoid_failed_nodes else WorkloadStatus()
    where = NodeConstraint(
        avoided=frozenset(failed.failed_nodes),
        avoided_devices=tuple(map(_device_at, failed.failed_devices)),
        spread=spread,
    )
    if spec.gpu_types:
        where = gpu_models.devices_in_order(where, spec.gpu_types, mixes)
    if spec.node_group:
        where = gpu_models.within_groups(where, NODE_GROUP, (spec.node_group,), mixes)
    if spec.gpu_types:
        *earlier, last = gpu_models.in_order(spec.gpu_types, {*models, *mixes})
        where = replace(where, preferred=tuple(earlier), labels=(*where.labels, last))
    return where


def _device_at(place: str) -> tuple[str, int]:
    """Node and index of a device that is written as ``NODE/INDEX``."""
    node, _, index = place.rpartition("/")
    return node, int(index)


def request_of(
    spec: WorkloadSpec, where: NodeConstraint = ANYWHERE, *, divides: bool = False
) -> Request:
    """The request of each task, where all are equal, with these conditions on nodes.

    ``divides``: the core divides GPUs itself; else nodes offer MIG instances by name.
    """
    found = Request.of(amounts_of(spec.resources), where)
    if found.share_milli:
        found = replace(found, devices=spec.resources.gpu_devices)
    profile = spec.resources.mig_profile
    if not profile:
        return found
    if divides:
        return replace(found, mig_profile=profile)
    extended = ((mig_resource(profile), 1),)
    return replace(found, extended=extended, counted_milli=held_milli(extended))


def amounts_of(resources: Resources) -> ResourceVector:
    """A task's request in the core's units; memory is rounded up to whole MiB."""
    return ResourceVector(
        resources.gpu_milli, resources.cpu_milli, -(-resources.memory_bytes // MIB)
    )


def held_by(spec: WorkloadSpec, parts: Collection[int]) -> Resources:
    """The resources that this many placed parts hold together."""
    one, many = spec.resources, len(parts)
    if resizes(spec):
        tasks = min(many, 1)
        gpu_milli = many * MILLI
    else:
        tasks = many
        gpu_milli = counted_gpu_milli(one) * many
    return Resources(
        gpu_milli=gpu_milli,
        cpu_milli=one.cpu_milli * tasks,
        memory_bytes=one.memory_bytes * tasks,
    )


def is_preemptible(workload: Workload) -> bool:
    """Whether the workload is preemptible: the user's choice, else the default of its kind."""
    facts = KINDS[workload.spec.kind]
    if workload.spec.preemptible is None or not facts.may_choose:
        return facts.preemptible
    return workload.spec.preemptible


def preemptibility(workload: Workload) -> Preemptibility:
    """Which of its tasks may be evicted: of protected elastic work those beyond its minimum."""
    if is_preemptible(workload) or workload.status.lowered_by:
        return Preemptibility.YES
    elastic = workload.spec.elastic is not None
    return Preemptibility.SURPLUS if elastic else Preemptibility.NO
