"""Binding a pod to a node: the one write that gives away a device.

The binding names the pod's uid, so it can hit no other pod of that name, and the version that was
decided on, so a pod that changed meanwhile is decided on again. The API server binds a pod once
only. The binding carries the epoch of the scheduler: a policy of the cluster refuses an epoch that
is not the leader's. After a lost answer the pod is read until its state is known: a place is never
given back that may have been taken.

Before it, ``prepare`` writes where the volumes of the pod's claims are to be made.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import (
    SELECTED_NODE,
    BindVolume,
    Decision,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from carrel_scheduler.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from carrel_schema.names import COUNTED, DEVICES, EPOCH

BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


async def prepare(client: KubeClient, decision: Decision) -> None:
    """Write one decision about a claim. Raises ``KubeError``."""
    if isinstance(decision, BindVolume):
        await client.patch(PERSISTENT_VOLUMES, decision.volume, _claimed(decision))
        return
    body = {"metadata": {"annotations": {SELECTED_NODE: decision.node}}}
    await client.patch(PERSISTENT_VOLUME_CLAIMS, decision.claim, body, decision.namespace)


def _claimed(decision: BindVolume) -> dict[str, Any]:
    return {
        "metadata": {
            "resourceVersion": decision.version,
            "annotations": {BY_CONTROLLER: "yes"},
        },
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": PERSISTENT_VOLUME_CLAIMS.kind,
                "namespace": decision.namespace,
                "name": decision.claim,
                "uid": decision.claim_uid,
            }
        },
    }


NO_LEASE_YET = "no params found"
"""The API server's answer while its policies do not know of the lease yet."""
CONFLICT_PAUSES: Final = Pauses(0.02, 1.0, 7)
"""Pauses between tries for a task's pod that others write at the same moment."""
_MOST_DIGITS = 4
_encode = msgspec.json.Encoder().encode


class NotBound(Exception):  # noqa: N818 - an outcome to handle
    """A pod was not bound, for certain.

    Attributes:
        final: asking again would be answered alike.
        fenced: another scheduler leads.
        already: it was bound before.
    """

    def __init__(
        self, text: str, *, final: bool, fenced: bool = False, already: bool = False
    ) -> None:
        super().__init__(text)
        self.final, self.fenced, self.already = final, fenced, already


@dataclass(frozen=True, slots=True)
class BindTarget:
    """A pod and the node to which it is bound.

    Attributes:
        namespace, name, uid: of the pod.
        node: the node's name.
        devices: indices of the node's GPUs; ``None``: the binding names none.
        decided: an external pod as it was decided on. ``None``: a task's pod, which is bound
            whatever becomes of it meanwhile, but not if it was bound before.
        counted: whom it counts for from now on (``pods.labels.CountedGrouping``).
        gpus: annotations that say which GPUs it shares (``shared_gpus.reservation.told``).
    """

    namespace: str
    name: str
    uid: str
    node: str
    devices: Sequence[int] | None = ()
    decided: Pod | None = None
    counted: str = ""
    gpus: Mapping[str, str] = field(default_factory=dict)


async def bind(client: KubeClient, target: BindTarget, epoch: int) -> None:
    """Bind a pod; returns once it is bound to this node. Raises ``NotBound``."""
    version = "" if target.decided is None else target.decided.metadata.resource_version
    pauses, maybe_ours = iter(CONFLICT_PAUSES), target.decided is not None
    while True:
        body = _binding(target, version, epoch)
        try:
            await client.post_sub(PODS, target.name, "binding", body, target.namespace)
        except (Conflict, Unavailable) as error:
            maybe_ours |= isinstance(error, Unavailable) or error.retried
            found = await _read(client, target)
            if found.spec.node_name == target.node and maybe_ours:
                return
            version = _to_try_again(target, version, found, error)
            if target.decided is None and isinstance(error, Conflict):
                pause = next(pauses, None)
                if pause is None:
                    text = f"pod {target.name} is written by others all the time"
                    raise NotBound(text, final=False) from error
                await asyncio.sleep(pause)
        except NotFound as error:
            raise NotBound(error.message, final=True) from error
        except TooManyRequests as error:
            raise NotBound(error.message, final=False) from error
        except (Forbidden, Invalid) as error:
            fenced = EPOCH in error.message
            unready = NO_LEASE_YET in error.message
            final = not (fenced or unready)
            raise NotBound(error.message, final=final, fenced=fenced) from error
        except KubeError as error:
            raise NotBound(str(error), final=False) from error
        else:
            return


def devices_text(devices: Sequence[int]) -> str:
    """GPUs in the annotation's form."""
    return ",".join(map(str, devices))


def read_devices(text: str | None) -> tuple[int, ...] | None:
    """GPUs from the annotation; ``None`` if it is missing or invalid."""
    if text is None:
        return None
    parts = text.split(",") if text else []
    if not all(part.isdecimal() and len(part) <= _MOST_DIGITS for part in parts):
        return None
    return tuple(int(part) for part in parts)


def read_slots(text: str) -> int:
    """The slots of a MIG instance from the annotation; 0 if it is missing or invalid."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def annotations(target: BindTarget, epoch: int) -> dict[str, str]:
    """The annotations that the binding adds to the pod."""
    return {
        **({} if target.devices is None else {DEVICES: devices_text(target.devices)}),
        EPOCH: str(epoch),
        **({COUNTED: target.counted} if target.counted else {}),
        **target.gpus,
    }


def _binding(target: BindTarget, version: str, epoch: int) -> bytes:
    return _encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": target.name,
                "uid": target.uid,
                **({"resourceVersion": version} if version else {}),
                "annotations": annotations(target, epoch),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": target.node},
        }
    )


async def _read(client: KubeClient, target: BindTarget) -> Pod:
    """The pod now, asked for until there is an answer. Raises ``NotBound`` when it was deleted."""
    while True:
        try:
            pod = await client.get(PODS, target.name, target.namespace, type=Pod)
        except NotFound as gone:
            raise NotBound(gone.message, final=True) from gone
        except (Unavailable, TooManyRequests):
            continue  # the client paused before it gave up; only an answer says what became of it
        if pod.metadata.uid != target.uid:
            raise NotBound(f"pod {target.name} was made anew", final=True)
        return pod


def _to_try_again(target: BindTarget, version: str, found: Pod, error: KubeError) -> str:
    """The version to bind, after a refusal or a lost answer, of a pod that is not bound there.

    Raises ``NotBound``: it is elsewhere, not to be bound any more, or not what was decided on.
    """
    meta = found.metadata
    if found.spec.node_name:
        text = f"pod {target.name} was bound to {found.spec.node_name} by somebody else"
        raise NotBound(text, final=True, already=True)
    if meta.deletion_timestamp is not None:
        raise NotBound(error.message, final=False)
    if target.decided is not None and not _asks_the_same(target.decided, found):
        raise NotBound(f"pod {target.name} changed since it was decided on", final=False)
    told_only = bool(version) and meta.resource_version != version
    if isinstance(error, Conflict) and target.decided is not None and not told_only:
        raise NotBound(error.message, final=False)
    return meta.resource_version if version else ""


def _asks_the_same(before: Pod, now: Pod) -> bool:
    """Whether only the status of the pod changed, for example by its reason."""
    one, other = before.metadata, now.metadata
    return (before.spec, one.labels, one.annotations, one.owner_references) == (
        now.spec,
        other.labels,
        other.annotations,
        other.owner_references,
    )
