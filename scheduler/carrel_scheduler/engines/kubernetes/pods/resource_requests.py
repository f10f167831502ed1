"""A pod's resource request, counted as Kubernetes counts it, as a request of the core.

Containers run together, init containers one after the other before them; sidecars (init containers
that restart always) run from their turn on. So the request of a resource is the larger of

    all containers + all sidecars
    the largest of: an init container + the sidecars before it

or what the pod as a whole requests, where it says so; and its runtime's ``overhead``.

Amounts are rounded up in steps, so that requests that differ by little are one class: CPU to 10
millicores, memory to MiB, from 1 GiB on to 16 MiB.

Parts of GPUs are asked for by annotations (``gpu_annotations``).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MIB
from carrel_scheduler.engines.kubernetes.pods.gpu_annotations import (
    Share,
    mig_profile_of,
    share_of,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import (
    NANO,
    PodRefused,
    milli,
    parsed,
    pieces,
)
from carrel_scheduler.engines.kubernetes.pods.types import Container, ContainerResources, Pod
from carrel_scheduler.engines.mig_resources import held_milli

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
STORAGE: Final = "ephemeral-storage"
HUGE_PAGES: Final = "hugepages-"
CLAIMED_GPUS: Final = "resource.kubernetes.io/gpu"
"""GPUs that claims of dynamic resource allocation ask for; no container can ask by this name."""
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", CLAIMED_GPUS)
"""Resources that are whole GPUs; a node offers one of them."""
_OF_POD: Final = (CPU, MEMORY)
MOST_CORES: Final = 1_000_000
MOST_GPUS: Final = 65_536
MOST_BYTES: Final = 2**50
MOST_PIECES: Final = 2**40
"""An amount that no node has; sums over all pods still fit into 64 bits."""

Nanos = dict[str, int]
"""Resource name -> billionths."""


@dataclass(frozen=True, slots=True)
class PodRequests:
    """The resource needs of one pod.

    Attributes:
        cpu_milli: millicores; ``memory_bytes``: bytes.
        gpus: whole GPUs; ``gpu_resource``: by which name it asks for them, or for a share.
        share: a part of GPUs, ``None`` where it asks for none.
        mig_profile: of the MIG instance that its annotations ask for; empty: for none.
        extended: other resources by name, sorted: pieces; MiB of what is measured in bytes.
            The pod itself is one of ``pods``.
        parts_milli: so much of GPUs its claims ask for in parts, in thousandths.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    gpu_resource: str = ""
    share: Share | None = None
    mig_profile: str = ""
    extended: tuple[tuple[str, int], ...] = ((PODS, 1),)
    parts_milli: int = 0


def needs_of(
    pod: Pod, claimed_gpus: int = 0, instead: Collection[str] = (), parts_milli: int = 0
) -> PodRequests:
    """The resource needs of a pod.

    Args:
        pod: of whomever.
        claimed_gpus: so many GPUs its claims of dynamic resource allocation ask for.
        instead: extended resources that claims serve in place of device plugins.
        parts_milli: so much of GPUs its claims ask for in parts.

    Raises:
        PodRefused: a quantity or annotation that means nothing, or more than any node has.
    """
    total = _total(pod)
    for name in instead:
        total.pop(name, None)
    if claimed_gpus:
        total[CLAIMED_GPUS] = claimed_gpus * NANO
    _refuse_too_much(total)
    share = share_of(pod.metadata.annotations)
    profile = mig_profile_of(pod.metadata.annotations, total)
    gpu = [name for name in GPU_RESOURCES if total.get(name)]
    if len(gpu) > 1:
        raise PodRefused("two_kinds_of_gpu", "resources", " and ".join(gpu), "one kind of GPU")
    if share is not None and gpu:
        expected = "left out where a share of a GPU is asked for"
        raise PodRefused("share_and_gpus", gpu[0], pieces(total[gpu[0]]), expected)
    if profile and (gpu or parts_milli):
        expected = "left out where a MIG instance is asked for by annotation"
        asked = pieces(total[gpu[0]]) if gpu else parts_milli
        raise PodRefused("mig_and_gpus", gpu[0] if gpu else CLAIMED_GPUS, asked, expected)
    return PodRequests(
        cpu_milli=milli(total.pop(CPU, 0)),
        memory_bytes=pieces(total.pop(MEMORY, 0)),
        gpus=pieces(total[gpu[0]]) if gpu else 0,
        gpu_resource=gpu[0] if gpu else "",
        share=share,
        mig_profile=profile,
        extended=counted(total),
        parts_milli=parts_milli,
    )


def counted(total: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Resources that are neither CPU, memory nor GPUs, in the core's units, with the pod itself."""
    others = {
        name: -(-pieces(nano) // MIB) if in_bytes(name) else pieces(nano)
        for name, nano in total.items()
        if nano > 0 and name not in (CPU, MEMORY, PODS, *GPU_RESOURCES)
    }
    return tuple(sorted({**others, PODS: 1}.items()))


def in_bytes(name: str) -> bool:
    """Whether amounts of the resource are bytes."""
    return name == STORAGE or name.startswith(HUGE_PAGES)


def _refuse_too_much(total: Nanos) -> None:
    for name, nano in total.items():
        if nano > (most := _most(name)) * NANO:
            expected = f"{most} or less over all containers"
            raise PodRefused("too_much", f"resources.{name}", pieces(nano), expected)


def _most(name: str) -> int:
    if name == CPU:
        return MOST_CORES
    if name in GPU_RESOURCES:
        return MOST_GPUS
    return MOST_BYTES if name == MEMORY or in_bytes(name) else MOST_PIECES


def total_of(pod: Pod) -> Nanos:
    """The exact sum of all requests of a pod, its overhead included.

    Raises:
        PodRefused: ``bad_quantity``.
    """
    total = _total(pod)
    total[PODS] = NANO
    return total


def _total(pod: Pod) -> Nanos:
    spec = pod.spec
    running = _sum(_requests(container) for container in spec.containers)
    sidecars: Nanos = {}
    most: Nanos = {}
    for container in spec.init_containers:
        own = _requests(container)
        if container.restart_policy == "Always":
            sidecars = _sum((sidecars, own))
            most = _larger(most, sidecars)
        else:
            most = _larger(most, _sum((sidecars, own)))
    total = _larger(_sum((running, sidecars)), most) if spec.init_containers else running
    for name, nano in requested(spec.resources, "spec.resources").items():
        if name in _OF_POD or name.startswith(HUGE_PAGES):
            total[name] = nano
    return _sum((total, parsed(spec.overhead, "spec.overhead"))) if spec.overhead else total


def _requests(container: Container) -> Nanos:
    return requested(container.resources, f"{container.name}.resources")


def requested(resources: ContainerResources, field: str) -> Nanos:
    """The requests; a limit is used where a request is missing."""
    found = parsed(resources.limits, f"{field}.limits")
    found.update(parsed(resources.requests, f"{field}.requests"))
    return found


def _sum(parts: Iterable[Nanos]) -> Nanos:
    total: Nanos = {}
    for part in parts:
        for name, nano in part.items():
            total[name] = total.get(name, 0) + nano
    return total


def _larger(one: Nanos, other: Nanos) -> Nanos:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


CPU_STEP: Final = 10
MEMORY_STEPS: Final = ((1024, 1), (0, 16))
"""MiB below which the step applies (0: always), and the step in MiB."""
_NO_SHARE: Final = Share()


def request_of(needs: PodRequests, where: NodeConstraint) -> Request:
    """The core's request for a pod with these needs."""
    share = needs.share or _NO_SHARE
    return Request(
        gpus=needs.gpus,
        cpu_milli=_up(needs.cpu_milli, CPU_STEP),
        memory_mib=memory_mib(needs.memory_bytes),
        share_milli=share.milli,
        gpu_memory_mib=share.memory_mib,
        devices=share.devices,
        mig_profile=needs.mig_profile,
        extended=needs.extended,
        counted_milli=held_milli(needs.extended) + needs.parts_milli,
        where=where,
    )


def memory_mib(size: int) -> int:
    """Bytes in MiB, rounded up in steps."""
    mib = _up(size, MIB) // MIB
    step = next(step for below, step in MEMORY_STEPS if not below or mib < below)
    return _up(mib, step)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
