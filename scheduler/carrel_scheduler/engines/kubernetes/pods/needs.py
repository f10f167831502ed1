"""What a pod needs, counted as Kubernetes counts it.

Containers run together, init containers one after the other before them; sidecars (init containers
that restart always) run from their turn on. So the need of a resource is the larger of

    all containers + all sidecars
    the largest of: an init container + the sidecars before it

or what the pod as a whole asks for, where it says so; and what its runtime takes (``overhead``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.core.resources import MIB
from carrel_scheduler.engines.kubernetes.pods.errors import PodRefused
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO, milli, parsed, pieces
from carrel_scheduler.engines.kubernetes.pods.sharing import Share, share_of
from carrel_scheduler.engines.kubernetes.pods.types import Container, Pod, Resources

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
STORAGE: Final = "ephemeral-storage"
HUGE_PAGES: Final = "hugepages-"
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""Resources that are whole GPUs; a node offers one of them."""
_OF_POD: Final = (CPU, MEMORY)
MOST_CORES: Final = 1_000_000
MOST_GPUS: Final = 65_536
MOST_BYTES: Final = 2**50
MOST_PIECES: Final = 2**40
"""More than any node has, and so little that sums over all pods fit into 64 bits."""

Nanos = dict[str, int]
"""Resource name -> billionths."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What one pod needs.

    Attributes:
        cpu_milli: millicores; ``memory_bytes``: bytes.
        gpus: whole GPUs; ``gpu_resource``: by which name it asks for them, or for a share.
        share: a part of GPUs, ``None`` where it asks for none.
        extended: other resources by name, sorted: pieces; MiB of what is measured in bytes.
            The pod itself is one of ``pods``.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    gpu_resource: str = ""
    share: Share | None = None
    extended: tuple[tuple[str, int], ...] = ((PODS, 1),)


def needs_of(pod: Pod) -> Needs:
    """What a pod needs.

    Raises:
        PodRefused: a quantity or annotation that means nothing, more than any node has, or claims
            of dynamic resource allocation, which are not supported.
    """
    _refuse_claims(pod)
    total = _total(pod)
    _refuse_too_much(total)
    share = share_of(pod.metadata.annotations)
    gpu = [name for name in GPU_RESOURCES if total.get(name)]
    if len(gpu) > 1:
        raise PodRefused("two_kinds_of_gpu", "resources", " and ".join(gpu), "one kind of GPU")
    if share is not None and gpu:
        expected = "left out where a share of a GPU is asked for"
        raise PodRefused("share_and_gpus", gpu[0], pieces(total[gpu[0]]), expected)
    return Needs(
        cpu_milli=milli(total.pop(CPU, 0)),
        memory_bytes=pieces(total.pop(MEMORY, 0)),
        gpus=pieces(total[gpu[0]]) if gpu else 0,
        gpu_resource=gpu[0] if gpu else "",
        share=share,
        extended=counted(total),
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


def _refuse_claims(pod: Pod) -> None:
    if pod.spec.resource_claims:
        names = ", ".join(claim.name for claim in pod.spec.resource_claims)
        expected = (
            "empty: claims of dynamic resource allocation are not supported, GPUs are asked for "
            f"by {GPU_RESOURCES[0]} in the limits of a container"
        )
        raise PodRefused("resource_claims", "spec.resourceClaims", names, expected)


def total_of(pod: Pod) -> Nanos:
    """Everything that a pod asks for, exactly, the pod itself included.

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


def requested(resources: Resources, field: str) -> Nanos:
    """Requests; a limit stands for the request that is not given."""
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
