"""Allocations of claims: read, and as Kubernetes' own scheduler writes them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from carrel_scheduler.engines.kubernetes.pods.devices.inventory import DeviceId
from carrel_scheduler.engines.kubernetes.pods.devices.matching import Match
from carrel_scheduler.engines.kubernetes.pods.devices.orders import Key
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    AllocatedDevice,
    DeviceClass,
    ResourceClaim,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod


def allocation_of(
    claim: ResourceClaim, matched: Match, node: str, classes: Mapping[str, DeviceClass]
) -> dict[str, Any]:
    """Devices, configuration and node of a claim.

    Args:
        claim: with its specification.
        matched: its requests and the devices that they are given.
        node: where these are.
        classes: by name.
    """
    results = [
        {"request": ask.request, "driver": one.id[0], "pool": one.id[1], "device": one.id[2]}
        | ({"tolerations": msgspec.to_builtins(ask.tolerations)} if ask.tolerations else {})
        for ask, one in matched
    ]
    config: list[dict[str, Any]] = []
    for ask in dict.fromkeys(ask for ask, _ in matched):
        of = classes[_class_of(claim, ask.request)]
        config += [
            {"source": "FromClass", "requests": [ask.request], **one} for one in of.spec.config
        ]
    config += [{"source": "FromClaim", **one} for one in claim.spec.devices.config]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": results, **({"config": config} if config else {})},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def _class_of(claim: ResourceClaim, name: str) -> str:
    """The class of a request, or of its alternative ``request/alternative``."""
    parent, _, alternative = name.partition("/")
    request = next(one for one in claim.spec.devices.requests if one.name == parent)
    of = request.exactly or next(one for one in request.first_available if one.name == alternative)
    return of.device_class_name


def key_of(claim: ResourceClaim) -> Key:
    """Namespace and name of a claim."""
    return claim.metadata.namespace, claim.metadata.name


def allocated_to(claim: ResourceClaim) -> Iterable[DeviceId]:
    """The devices allocated to a claim."""
    if claim.status.allocation is None:
        return ()
    return [_id(one) for one in claim.status.allocation.devices.results if not one.admin_access]


def _id(one: AllocatedDevice) -> DeviceId:
    return one.driver, one.pool, one.device


def is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether a claim belongs to a pod."""
    owner = claim.metadata.controller
    return owner is not None and owner.uid == pod.metadata.uid
