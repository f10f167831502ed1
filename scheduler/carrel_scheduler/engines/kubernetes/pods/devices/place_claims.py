"""The claim that gives a task's pod the GPUs at its places, of devices that claims share. Pure.

It is one for extended resources, as Kubernetes' scheduler makes them: the pod need not know of it,
its containers ask for something by name, and the pod's status says which requests of the claim they
get for it. So a pod that is made before its place is known, or by the Hub, is served the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.devices.allocation import allocation_of
from carrel_scheduler.engines.kubernetes.pods.devices.capacity import Asked, written
from carrel_scheduler.engines.kubernetes.pods.devices.extended import (
    ExtendedClaim,
    amounts_of,
    claim_of_pod,
)
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import NodeDevice
from carrel_scheduler.engines.kubernetes.pods.devices.known import KnownDevices
from carrel_scheduler.engines.kubernetes.pods.devices.matching import (
    Match,
    RequestedDevices,
    given_to,
)
from carrel_scheduler.engines.kubernetes.pods.devices.orders import NOTHING, AllocateClaim
from carrel_scheduler.engines.kubernetes.pods.devices.task_shares import (
    MEMORY,
    devices_at,
    request_of,
)
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    CapacityRequests,
    ClaimDevices,
    ClaimRequest,
    DeviceRequest,
    ResourceClaimSpec,
)
from carrel_scheduler.engines.kubernetes.pods.resource_requests import GPU_RESOURCES
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.shared_gpus import RESOURCE

SERVED: Final = (RESOURCE, *GPU_RESOURCES)
"""Names of resources by which containers ask for GPUs, or for parts of them."""


@dataclass(frozen=True, slots=True)
class PlacedGpus:
    """The GPUs that a task's pod is given.

    Attributes:
        order: the allocation to write.
        uuids: of the GPUs, in the order of the places.
        memory_bytes: its part of each of them.
    """

    order: AllocateClaim
    uuids: tuple[str, ...]
    memory_bytes: int


def decide_places(
    known: KnownDevices, pod: Pod, node: str, places: Sequence[int], asked: Asked
) -> PlacedGpus | None:
    """The GPUs at places of a node; they count from now on. ``None``: they are not free yet.

    Args:
        known: devices and claims.
        pod: of the task.
        node: where it goes.
        places: that the core chose.
        asked: of each GPU.

    Raises:
        LookupError: the pod asks for no GPUs by name.
        PodRefused: ``bad_quantity``.
    """
    if known.left_over(pod.metadata.uid):
        return None
    gpus, uses = known.inventory.shared_gpus(node), known.uses(node)
    found = devices_at(places, gpus, uses, known.left(node), asked)
    if found is None:
        return None
    special = _claim(pod, known.task_class, places, asked)
    meta, name = pod.metadata, special.claim.metadata.name
    matched = _matched(places, found, asked)
    given = tuple(given_to(ask, device) for ask, device in matched)
    known.note_decided(meta.uid, node, {(meta.namespace, name): given})
    order = AllocateClaim(
        namespace=meta.namespace,
        claim=name,
        claim_uid="",
        pod=meta.name,
        pod_uid=meta.uid,
        allocation=allocation_of(special.claim, matched, node, known.classes, meta.uid),
        special=special,
    )
    memory = min(dict(one.consumed).get(MEMORY, 0) for one in given)
    return PlacedGpus(order, tuple(one.uuid for one in found), memory)


def _matched(places: Sequence[int], found: Sequence[NodeDevice], asked: Asked) -> Match:
    return [
        (RequestedDevices(0, request_of(place), (), 1, capacity=asked, place=place), device)
        for place, device in zip(places, found, strict=True)
    ]


def _claim(pod: Pod, of_class: str, places: Sequence[int], asked: Asked) -> ExtendedClaim:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    asking = [(one.name, name) for one in containers for name in amounts_of(one, SERVED)]
    if not asking:
        raise LookupError(f"no container of the pod {pod.metadata.name} asks for {RESOURCE}")
    capacity = CapacityRequests({name: written(nano) for name, nano in asked})
    requests = tuple(
        ClaimRequest(
            name=request_of(place),
            exactly=DeviceRequest(device_class_name=of_class, capacity=capacity),
        )
        for place in places
    )
    mappings = tuple(
        {"containerName": container, "resourceName": name, "requestName": request_of(place)}
        for container, name in asking
        for place in places
    )
    spec = ResourceClaimSpec(devices=ClaimDevices(requests=requests))
    return ExtendedClaim(claim_of_pod(pod, spec), mappings, NOTHING)
