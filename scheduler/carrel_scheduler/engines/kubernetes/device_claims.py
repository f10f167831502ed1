"""Writes about claims for devices: allocating one to a pod, and taking it back.

An allocation is written as Kubernetes' scheduler writes it: the finalizer that keeps an allocated
claim, then devices and pod in one write of the status. Each names the version that was read, so a
claim that somebody else uses, or that was made anew, is not touched. When the pod has ended,
Kubernetes' controller frees the devices.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from carrel_scheduler.engines.kubernetes.pods.devices.claims import AllocateClaim, ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    FINALIZER,
    RESOURCE_CLAIMS,
    AllocationResult,
    ResourceClaim,
)
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, NotFound

MOST_TRIES: Final = 5


class NotAllocated(Exception):  # noqa: N818 - an outcome to handle
    """A claim is not the one that was decided on, or in use by somebody else."""


async def allocate(client: KubeClient, order: AllocateClaim) -> None:
    """Write the devices of a claim's allocation, and reserve the claim for its pod.

    Raises:
        NotAllocated: it is gone, made anew, being deleted, or in use.
        KubeError: as the API server says.
    """
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
    body = {
        "metadata": {"resourceVersion": order.version},
        "status": {"allocation": None, "reservedFor": None},
    }
    try:
        await client.patch(RESOURCE_CLAIMS, order.claim, body, order.namespace, sub="status")
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
    body["status"] = {"allocation": order.allocation, "reservedFor": [pod]}
    await client.patch(RESOURCE_CLAIMS, order.claim, body, order.namespace, sub="status")


def _of_version(claim: ResourceClaim, **metadata: Any) -> dict[str, Any]:
    meta = claim.metadata
    return {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, **metadata}}


def _is_ours(claim: ResourceClaim, order: AllocateClaim) -> bool:
    wanted = msgspec.convert(_plain(order.allocation), AllocationResult)
    users = [one.uid for one in claim.status.reserved_for]
    return claim.status.allocation == wanted and users == [order.pod_uid]


def _plain(allocation: Mapping[str, Any]) -> dict[str, Any]:
    return {"devices": {"results": allocation["devices"]["results"]}}
