"""Terminating pods: evictions with a grace period and a reason, and writes that must succeed.

The DisruptionTarget condition is written after the eviction, which writes one of its own. A
PodDisruptionBudget may refuse an eviction; the caller tries again later. Tasks of workloads get the
same condition and are ended by their engine.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.kubernetes.notifications import PodNotice, timestamp
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import Conflict, NotFound, TooManyRequests
from carrel_scheduler.kube.metadata import Metadata, PartialObject
from carrel_scheduler.kube.resources import PODS

PAUSES: Final = Pauses(0.05, 2.0, 6)


async def unless_gone(
    client: KubeClient, pod: Metadata | ObjectMeta, write: Callable[[], Awaitable[Any]]
) -> bool:
    """Repeat a write until it succeeds; returns false if the pod is gone.

    Raises:
        KubeError: the write is refused, or conflicts with others again and again.
    """
    for pause in PAUSES:
        try:
            await write()
        except NotFound:
            return False
        except Conflict:
            if await _read(client, pod) is None:
                return False
            await asyncio.sleep(pause)
        else:
            return True
    await write()
    return True


async def _read(client: KubeClient, pod: Metadata | ObjectMeta | PodNotice) -> Metadata | None:
    """The metadata of the pod with this uid; ``None`` if it is gone."""
    try:
        found = await client.get(PODS, pod.name, pod.namespace, PartialObject)
    except NotFound:
        return None
    return found.metadata if found.metadata.uid == pod.uid else None


DISRUPTION_TARGET: Final = "DisruptionTarget"


class Protected(Exception):  # noqa: N818 - an outcome to handle
    """A disruption budget did not let a pod be evicted."""


async def evict(
    client: KubeClient, victim: PodNotice, grace_seconds: float, *, now: Callable[[], float]
) -> None:
    """Evict a pod for the reason in ``victim``; returns once it is terminating, or gone.

    Raises:
        Protected: a budget protects the pod at present.
        Conflict: the pod was changed at that moment, and goes on.
        KubeError: any other refusal.
    """
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": {
            "gracePeriodSeconds": int(grace_seconds),
            "preconditions": {"uid": victim.uid},
        },
    }
    try:
        await client.post_sub(PODS, victim.name, "eviction", body, victim.namespace)
    except TooManyRequests as error:
        raise Protected(f"a disruption budget protects pod {victim.name}") from error
    except NotFound:
        return
    except Conflict:
        found = await _read(client, victim)
        if found is not None and found.deletion_timestamp is None:
            raise
        return
    with suppress(NotFound, Conflict):  # it is gone already
        await report_disruption(client, victim, now())


async def report_disruption(client: KubeClient, notice: PodNotice, now: float) -> None:
    """Write the condition of a pod that is about to be evicted. Raises ``KubeError``."""
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": notice.token,
        "message": notice.message,
        "lastTransitionTime": timestamp(now),
    }
    body = {"metadata": {"uid": notice.uid}, "status": {"conditions": [condition]}}
    how = PatchKind.STRATEGIC
    await client.patch(PODS, notice.name, body, notice.namespace, sub="status", how=how)
