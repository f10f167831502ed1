"""Extended resources that a DeviceClass stands for: the special claim of a pod that asks for them.

A class may name an extended resource (``extendedResourceName``), and each has one by itself
(``deviceclass.resource.kubernetes.io/<class>``). Where no device plugin offers that resource, a
pod that asks for it is given devices of the class by a claim that its scheduler makes: one for all
its containers, with a request for each, and the mapping of containers to requests in its status.
An init container uses devices of containers that come after it; of several init containers that
need more, the largest number counts. Names are those that Kubernetes' own scheduler gives.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    ClaimDevices,
    ClaimRequest,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    ResourceClaim,
    ResourceClaimSpec,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO, parsed
from carrel_scheduler.engines.kubernetes.pods.resource_requests import requested
from carrel_scheduler.engines.kubernetes.pods.types import Container, ObjectMeta, Owner, Pod

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
MARK: Final = "resource.kubernetes.io/extended-resource-claim"
LONGEST_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """The claim that a pod's extended resources come to.

    Attributes:
        claim: as it is to be made; one that is not there yet.
        mappings: container, resource and request, as the pod's status has them.
        names: the resources that devices serve.
    """

    claim: ResourceClaim
    mappings: tuple[Mapping[str, str], ...]
    names: frozenset[str]


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The class of each extended resource: of several that name it the newest, then the first."""
    found: dict[str, str] = {}
    newest = sorted(classes, key=lambda one: one.metadata.name, reverse=True)
    newest.sort(key=_created)
    for one in newest:
        found[f"{IMPLICIT}{one.metadata.name}"] = one.metadata.name
        if one.spec.extended_resource_name:
            found[one.spec.extended_resource_name] = one.metadata.name
    return found


def _created(one: DeviceClass) -> float:
    at = one.metadata.creation_timestamp
    return 0.0 if at is None else at.timestamp()


Selectors = Mapping[str, tuple[DeviceSelector, ...]]


def special_claim(
    pod: Pod, backed: Mapping[str, str], selectors: Selectors = MappingProxyType({})
) -> ExtendedClaim | None:
    """The claim for a pod's extended resources; ``None`` if it asks for none of these.

    Args:
        pod: the pod.
        backed: the class of each extended resource that devices serve.
        selectors: which devices of it serve a resource; none: all.

    Raises:
        PodRefused: ``bad_quantity``.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    asked = [amounts_of(one, backed) for one in containers]
    names = sorted({name for amounts in asked for name in amounts})
    if not names:
        return None
    requests: list[ClaimRequest] = []
    mappings: list[Mapping[str, str]] = []
    for name in names:
        exactly = DeviceRequest(device_class_name=backed[name], selectors=selectors.get(name, ()))
        one = _ExtendedResource(name, exactly, containers, len(pod.spec.init_containers), asked)
        requests += one.requests()
        mappings += one.mappings
    requests.sort(key=lambda request: request.name)
    devices = ClaimDevices(requests=tuple(requests))
    claim = claim_of_pod(pod, ResourceClaimSpec(devices=devices))
    return ExtendedClaim(claim, tuple(mappings), frozenset(names))


def claim_of_pod(pod: Pod, spec: ResourceClaimSpec) -> ResourceClaim:
    """The claim that is made for a pod's extended resources."""
    return ResourceClaim(metadata=_metadata(pod), spec=spec)


def amounts_of(container: Container, names: Collection[str]) -> dict[str, int]:
    """The numbers of devices that a container asks for, by these names."""
    given = (*container.resources.requests, *container.resources.limits)
    if not any(name in names for name in given):
        return {}
    found = requested(container.resources, f"{container.name}.resources")
    return {name: nano // NANO for name, nano in found.items() if name in names and nano >= NANO}


class _ExtendedResource:
    """The requests of all containers for one resource."""

    def __init__(
        self,
        name: str,
        exactly: DeviceRequest,
        containers: Sequence[Container],
        inits: int,
        asked: Sequence[Mapping[str, int]],
    ) -> None:
        self._name, self._exactly = name, exactly
        self._containers, self._inits, self._asked = containers, inits, asked
        self.mappings: list[dict[str, str]] = []

    def requests(self) -> list[ClaimRequest]:
        """The requests; ``mappings`` are known then."""
        amounts = [one.get(self._name, 0) for one in self._asked]
        short = [index for index in range(self._inits) if not _stays(self._containers[index])]
        kept = {
            index: (self._request_name(index), amount)
            for index, amount in enumerate(amounts)
            if amount and index not in short
        }
        for index, (request, _) in kept.items():
            self._map(index, request)
        own: list[tuple[int, str]] = []
        early: list[tuple[int, str]] = []
        for index in short:
            lacking = amounts[index]
            for later, (request, amount) in kept.items():
                if later >= index and lacking > 0:
                    early.append((index, request))
                    lacking -= amount
            if amounts[index] and lacking > 0:
                own.append((lacking, self._request_name(index)))
                early.append((index, self._request_name(index)))
        largest = max(own, key=lambda one: one[0], default=None)
        replaced = {name for _, name in own}
        for index, request in early:
            self._map(index, largest[1] if largest and request in replaced else request)
        found = [] if largest is None else [self._request(largest[1], largest[0])]
        return [*found, *(self._request(name, amount) for name, amount in kept.values())]

    def _map(self, index: int, request: str) -> None:
        container = self._containers[index].name
        self.mappings.append(
            {"containerName": container, "resourceName": self._name, "requestName": request}
        )

    def _request(self, name: str, count: int) -> ClaimRequest:
        exactly = msgspec.structs.replace(self._exactly, count=count)
        return ClaimRequest(name=name, exactly=exactly)

    def _request_name(self, index: int) -> str:
        resources = self._containers[index].resources
        keys = sorted(resources.requests or resources.limits)
        place = keys.index(self._name) if self._name in keys else 0
        return f"container-{index}-request-{place}"


def _stays(container: Container) -> bool:
    return container.restart_policy == "Always"


def _metadata(pod: Pod) -> ObjectMeta:
    meta = pod.metadata
    ending = f"-extended-resources-{hashlib.sha256(meta.uid.encode()).hexdigest()[:8]}"
    return ObjectMeta(
        name=f"{meta.name[: LONGEST_NAME - len(ending)]}{ending}",
        namespace=meta.namespace,
        annotations={MARK: "true"},
        owner_references=(Owner("v1", "Pod", meta.name, meta.uid, controller=True),),
    )


def is_special(claim: ResourceClaim) -> bool:
    """Whether a scheduler made the claim for extended resources of its owner."""
    return claim.metadata.annotations.get(MARK) == "true"


def offered_by_plugins(allocatable: Mapping[str, str]) -> frozenset[str]:
    """The extended resources that a node has some of."""
    named = {name: amount for name, amount in allocatable.items() if "/" in name}
    return frozenset(name for name, nano in parsed(named, "allocatable").items() if nano > 0)


def manifest(special: ExtendedClaim) -> dict[str, Any]:
    """The claim as it is made."""
    found: dict[str, Any] = msgspec.to_builtins(
        {"metadata": special.claim.metadata, "spec": special.claim.spec}
    )
    return found
