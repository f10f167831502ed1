"""Writes about claims for devices: allocating one to a pod, and taking it back.

An allocation is written as Kubernetes' scheduler writes it: the finalizer that keeps an allocated
claim, then devices and pod in one write of the status. Each names the version that was read, so a
claim that somebody else uses, or that was made anew, is not touched. Drivers may prepare devices
before the pod is bound, such as by attaching them to its node: they say so in the claim's status.
When the pod has ended, Kubernetes' controller frees the devices.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.kubernetes.pods.devices.allocation import preparation_of
from carrel_scheduler.engines.kubernetes.pods.devices.extended import (
    ExtendedClaim,
    is_special,
    manifest,
)
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim, ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    FINALIZER,
    RESOURCE_CLAIMS,
    AllocationResult,
    ResourceClaim,
)
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from carrel_scheduler.kube.resources import PODS

MOST_TRIES: Final = 5
PREPARATION_SECONDS: Final = 600.0
"""How long drivers may take to prepare devices, as with Kubernetes' own scheduler."""
PREPARATION_PAUSES: Final = Pauses(0.25, 5.0)


class NotAllocated(Exception):  # noqa: N818 - an outcome to handle
    """A claim is not the one that was decided on, or in use by somebody else."""


class NotPrepared(NotAllocated):
    """A driver has not prepared a device for its pod."""


async def allocate(client: KubeClient, order: AllocateClaim) -> AllocateClaim:
    """Write the devices of a claim's allocation, and reserve the claim for its pod.

    Returns the order with the claim's uid.

    Raises:
        NotAllocated: it is gone, made anew, being deleted, or in use.
        KubeError: as the API server says.
    """
    if order.special is not None:
        order = await _make_special(client, order, order.special)
    await _allocate(client, order)
    if order.special is not None:
        await _tell_pod(client, order, order.special)
    return order


async def await_preparation(
    client: KubeClient,
    order: AllocateClaim,
    seconds: float = PREPARATION_SECONDS,
    ended: asyncio.Event | None = None,
) -> None:
    """Wait until drivers have prepared the devices of an allocated claim.

    Raises:
        NotPrepared: one of them could not be prepared, or not in so many seconds, or not before
            ``ended`` was set.
        NotAllocated: the claim is gone, or is freed.
        KubeError: as the API server says.
    """
    loop, tries, ended = asyncio.get_running_loop(), 0, ended or asyncio.Event()
    until = loop.time() + seconds
    while order.prepared_before:
        try:
            found = preparation_of(await _read(client, order))
        except (Unavailable, TooManyRequests):
            pass  # the client paused before it gave up
        else:
            if found.failed:
                raise NotPrepared(found.failed)
            if not found.awaited:
                return
            if loop.time() >= until:
                raise NotPrepared(f"{found.awaited} after {seconds:g} s")
        with suppress(TimeoutError):
            async with asyncio.timeout(PREPARATION_PAUSES.after(tries)):
                await ended.wait()
            raise NotPrepared("its pod was ended before its devices were prepared")
        tries += 1


async def _make_special(
    client: KubeClient, order: AllocateClaim, special: ExtendedClaim
) -> AllocateClaim:
    """Make the claim for a pod's extended resources, or find that of an earlier try."""
    try:
        made = await client.create(
            RESOURCE_CLAIMS, manifest(special), order.namespace, type=ResourceClaim
        )
    except AlreadyExists:
        made = await client.get(RESOURCE_CLAIMS, order.claim, order.namespace, type=ResourceClaim)
        owner = made.metadata.controller
        if not is_special(made) or owner is None or owner.uid != order.pod_uid:
            raise NotAllocated(f"resource claim {order.claim} is somebody else's") from None
        if made.spec != special.claim.spec:
            raise NotAllocated(f"resource claim {order.claim} asks for something else") from None
    return replace(order, claim_uid=made.metadata.uid)


async def _tell_pod(client: KubeClient, order: AllocateClaim, special: ExtendedClaim) -> None:
    """Write which request of the claim serves which container, for the node to read."""
    told = {"resourceClaimName": order.claim, "requestMappings": list(special.mappings)}
    body = {"metadata": {"uid": order.pod_uid}, "status": {"extendedResourceClaimStatus": told}}
    await client.patch(PODS, order.pod, body, order.namespace, sub="status")


async def _allocate(client: KubeClient, order: AllocateClaim) -> None:
    for _ in range(MOST_TRIES):
        claim = await _read(client, order)
        if claim.status.allocation is not None or claim.status.reserved_for:
            if _is_ours(claim, order):
                return  # an earlier try was done, its answer was lost
            raise NotAllocated(f"resource claim {order.claim} was allocated by somebody else")
        try:
            await _write(client, order, claim)
        except Conflict:
            continue
        return
    raise NotAllocated(f"resource claim {order.claim} is written by others all the time")


async def release(client: KubeClient, order: ReleaseClaim) -> None:
    """Undo the allocation of a claim whose pod was not bound.

    Does nothing where the claim is gone or has changed. Raises ``KubeError``.
    """
    if order.special:
        await _delete_special(client, order)
        return
    body = {
        "metadata": {"resourceVersion": order.version},
        "status": {"allocation": None, "reservedFor": None},
    }
    try:
        await client.patch(RESOURCE_CLAIMS, order.claim, body, order.namespace, sub="status")
    except (Conflict, NotFound):
        return


async def _delete_special(client: KubeClient, order: ReleaseClaim) -> None:
    """Delete a claim that was made for extended resources: nobody uses it."""
    try:
        claim = await client.get(RESOURCE_CLAIMS, order.claim, order.namespace, type=ResourceClaim)
        if claim.metadata.uid != order.special:
            return
        if FINALIZER in claim.metadata.finalizers:
            kept = [one for one in claim.metadata.finalizers if one != FINALIZER]
            body = _of_version(claim, finalizers=kept)
            await client.patch(RESOURCE_CLAIMS, order.claim, body, order.namespace)
        await client.delete(RESOURCE_CLAIMS, order.claim, order.namespace, uid=order.special)
    except (Conflict, NotFound):
        return


async def _read(client: KubeClient, order: AllocateClaim) -> ResourceClaim:
    name = order.claim
    try:
        claim = await client.get(RESOURCE_CLAIMS, name, order.namespace, type=ResourceClaim)
    except NotFound as error:
        raise NotAllocated(f"resource claim {name} was deleted") from error
    if claim.metadata.uid != order.claim_uid:
        raise NotAllocated(f"resource claim {name} was made anew")
    if claim.metadata.deletion_timestamp is not None:
        raise NotAllocated(f"resource claim {name} is being deleted")
    return claim


async def _write(client: KubeClient, order: AllocateClaim, claim: ResourceClaim) -> None:
    if FINALIZER not in claim.metadata.finalizers:
        body = _of_version(claim, finalizers=[*claim.metadata.finalizers, FINALIZER])
        claim = await client.patch(
            RESOURCE_CLAIMS, order.claim, body, order.namespace, type=ResourceClaim
        )
    pod = {"resource": "pods", "name": order.pod, "uid": order.pod_uid}
    body = _of_version(claim)
    allocation = dict(order.allocation)
    if order.prepared_before:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        allocation["allocationTimestamp"] = now
    body["status"] = {"allocation": allocation, "reservedFor": [pod]}
    await client.patch(RESOURCE_CLAIMS, order.claim, body, order.namespace, sub="status")


def _of_version(claim: ResourceClaim, **metadata: Any) -> dict[str, Any]:
    meta = claim.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, **metadata}}


def _is_ours(claim: ResourceClaim, order: AllocateClaim) -> bool:
    wanted = msgspec.convert(_plain(order.allocation), AllocationResult)
    users = [one.uid for one in claim.status.reserved_for]
    there = claim.status.allocation
    return there is not None and _given(there) == _given(wanted) and users == [order.pod_uid]


def _given(allocation: AllocationResult) -> list[tuple[str, ...]]:
    """The devices and shares of such; how much these are is written in more than one way."""
    return [
        (one.request, one.driver, one.pool, one.device, one.share_id)
        for one in allocation.devices.results
    ]


def _plain(allocation: Mapping[str, Any]) -> dict[str, Any]:
    return {"devices": {"results": allocation["devices"]["results"]}}
