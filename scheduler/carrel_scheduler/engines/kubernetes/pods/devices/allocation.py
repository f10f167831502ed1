"""Allocations of claims: read, and as Kubernetes' own scheduler writes them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from carrel_scheduler.engines.kubernetes.pods.devices.capacity import asked_of, written
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import DeviceAllocation, NodeDevice
from carrel_scheduler.engines.kubernetes.pods.devices.matching import (
    Match,
    RequestedDevices,
    given_to,
)
from carrel_scheduler.engines.kubernetes.pods.devices.orders import Key
from carrel_scheduler.engines.kubernetes.pods.devices.task_shares import place_of, share_id
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    AllocatedDevice,
    DeviceClass,
    ResourceClaim,
    SliceDevice,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import Pod, PodResourceClaim


def allocation_of(
    claim: ResourceClaim,
    matched: Match,
    node: str,
    classes: Mapping[str, DeviceClass],
    pod_uid: str,
) -> dict[str, Any]:
    """Devices, configuration and node of a claim.

    Args:
        claim: with its specification.
        matched: its requests and the devices that they are given.
        node: where these are.
        classes: by name.
        pod_uid: of the pod that it is for: shares of devices are named by it.
    """
    of = pod_uid, claim.metadata.namespace, claim.metadata.name
    results = [
        {"request": ask.request, "driver": one.id[0], "pool": one.id[1], "device": one.id[2]}
        | ({"tolerations": msgspec.to_builtins(ask.tolerations)} if ask.tolerations else {})
        | ({"adminAccess": True} if ask.admin else {})
        | (_share(ask, one, of, number) if one.shared and not ask.admin else {})
        | _conditions(one.device)
        for number, (ask, one) in enumerate(matched)
    ]
    config: list[dict[str, Any]] = []
    for ask in dict.fromkeys(ask for ask, _ in matched):
        its = classes[_class_of(claim, ask.request)]
        config += [
            {"source": "FromClass", "requests": [ask.request], **one} for one in its.spec.config
        ]
    config += [{"source": "FromClaim", **one} for one in claim.spec.devices.config]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": results, **({"config": config} if config else {})},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def _share(
    ask: RequestedDevices, device: NodeDevice, of: tuple[str, str, str], number: int
) -> dict[str, Any]:
    """The share of a device that others may have shares of, too."""
    consumed = dict(given_to(ask, device).consumed)
    return {
        "shareID": share_id(*of, str(number) if ask.place is None else ask.request),
        "consumedCapacity": {key: written(nano) for key, nano in consumed.items()},
    }


def _conditions(device: SliceDevice) -> dict[str, list[str]]:
    """The conditions of a device that is prepared before its pod is bound."""
    if not device.binding_conditions:
        return {}
    found = {"bindingConditions": list(device.binding_conditions)}
    if device.binding_failure_conditions:
        found["bindingFailureConditions"] = list(device.binding_failure_conditions)
    return found


@dataclass(frozen=True, slots=True)
class Preparation:
    """What drivers say of devices that they prepare before a pod is bound, in words.

    Attributes:
        awaited: a device that is not prepared yet; empty: none.
        failed: a device that cannot be prepared; empty: none.
    """

    awaited: str = ""
    failed: str = ""


def preparation_of(claim: ResourceClaim) -> Preparation:
    """The preparation of the devices of an allocated claim."""
    allocation = claim.status.allocation
    if allocation is None:
        return Preparation(failed=f"resource claim {claim.metadata.name} has no devices any more")
    says = {(one.driver, one.pool, one.device, one.share_id): one for one in claim.status.devices}
    awaited = ""
    for one in allocation.devices.results:
        status = says.get((one.driver, one.pool, one.device, one.share_id))
        found = {} if status is None else {each.type: each for each in status.conditions}
        true = {name for name, each in found.items() if each.status == "True"}
        if not one.binding_conditions:
            continue
        for name in one.binding_failure_conditions:
            if name in true:
                why = found[name].message or found[name].reason
                return Preparation(failed=f"device {one.device} cannot be prepared ({name}): {why}")
        lacking = [name for name in one.binding_conditions if name not in true]
        if lacking and not awaited:
            awaited = f"device {one.device} lacks the condition {lacking[0]}"
    return Preparation(awaited)


def _class_of(claim: ResourceClaim, name: str) -> str:
    """The class of a request, or of its alternative ``request/alternative``."""
    parent, _, alternative = name.partition("/")
    request = next(one for one in claim.spec.devices.requests if one.name == parent)
    of = request.exactly or next(one for one in request.first_available if one.name == alternative)
    return of.device_class_name


def key_of(claim: ResourceClaim) -> Key:
    """Namespace and name of a claim."""
    return claim.metadata.namespace, claim.metadata.name


def allocated_to(claim: ResourceClaim) -> Iterable[DeviceAllocation]:
    """The devices allocated to a claim; of one of which it has several shares, each of them."""
    if claim.status.allocation is None:
        return ()
    given = claim.status.allocation.devices.results
    return [_given(one, claim) for one in given if not one.admin_access]


def _given(one: AllocatedDevice, claim: ResourceClaim) -> DeviceAllocation:
    try:
        consumed = asked_of(one.consumed_capacity, one.device)
    except PodRefused:
        consumed = ()
    owner, place = claim.metadata.controller, None
    if owner is not None:
        place = place_of(one.request, one.share_id, owner.uid, *key_of(claim))
    return DeviceAllocation((one.driver, one.pool, one.device), consumed, place)


def claim_name(pod: Pod, use: PodResourceClaim) -> str | None:
    """The name of a claim: empty where none is needed, ``None`` while it is not made."""
    if use.resource_claim_name:
        return use.resource_claim_name
    made = {one.name: one for one in pod.status.resource_claim_statuses}
    return made[use.name].resource_claim_name if use.name in made else None


def is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether a claim belongs to a pod."""
    owner = claim.metadata.controller
    return owner is not None and owner.uid == pod.metadata.uid
