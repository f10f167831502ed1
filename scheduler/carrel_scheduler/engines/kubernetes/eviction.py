"""Terminating pods: evictions with a grace period and a reason, and writes that must succeed.

The DisruptionTarget condition is written after the eviction, which writes one of its own. A
PodDisruptionBudget may refuse an eviction; the caller tries again later. Tasks of workloads get the
same condition and are ended by their engine.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.notifications import Said, timestamp
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import Conflict, NotFound, TooManyRequests
from carrel_scheduler.kube.metadata import Metadata, PartialObject
from carrel_scheduler.kube.resources import PODS

PAUSES_SECONDS: Final = (0.05, 0.2, 0.5, 1.0, 2.0)


async def unless_gone(
    client: KubeClient, pod: Metadata, write: Callable[[], Awaitable[Any]]
) -> bool:
    """Do a write; false: that pod is gone, so there is nothing to be written.

    Raises:
        KubeError: the write is refused, or conflicts with others again and again.
    """
    for pause in PAUSES_SECONDS:
        try:
            await write()
        except NotFound:
            return False
        except Conflict:
            if not await _is_there(client, pod):
                return False
            await asyncio.sleep(pause)
        else:
            return True
    await write()
    return True


async def _is_there(client: KubeClient, pod: Metadata) -> bool:
    try:
        found = await client.get(PODS, pod.name, pod.namespace, PartialObject)
    except NotFound:
        return False
    return found.metadata.uid == pod.uid


log = logging.getLogger(__name__)

DISRUPTION_TARGET: Final = "DisruptionTarget"


class Protected(Exception):  # noqa: N818 - an outcome to handle
    """A disruption budget did not let a pod be evicted."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Which pod gives way, and why.

    Attributes:
        namespace, name, uid: of the pod.
        reason: token in CamelCase; ``message``: who wants the room and why.
        grace_seconds: for it to end in.
    """

    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    grace_seconds: float


async def evict(client: KubeClient, victim: Victim, *, now: Callable[[], float]) -> None:
    """Have a pod give way; returns once it was told to end, or is gone.

    Raises:
        Protected: a budget protects the pod at present.
        Conflict: the pod was changed at that moment, and goes on.
        KubeError: any other refusal.
    """
    try:
        await _evict(client, victim)
    except TooManyRequests as error:
        raise Protected(f"a disruption budget protects pod {victim.name}") from error
    except NotFound as error:
        log.debug("pod %s is gone already: %s", victim.name, error)
        return
    except Conflict as error:
        if await _goes_on(client, victim):
            raise
        log.debug("pod %s is gone already: %s", victim.name, error)
        return
    await _say_why(client, victim, now())


async def _goes_on(client: KubeClient, victim: Victim) -> bool:
    """Whether the pod is there and was not told to end: a conflict may be of the moment only."""
    try:
        found = await client.get(PODS, victim.name, victim.namespace, type=Pod)
    except NotFound:
        return False
    return found.metadata.uid == victim.uid and found.metadata.deletion_timestamp is None


async def _say_why(client: KubeClient, victim: Victim, now: float) -> None:
    said = Said(victim.namespace, victim.name, victim.uid, victim.reason, victim.message)
    try:
        await say_why(client, said, now)
    except (NotFound, Conflict) as error:
        log.debug("pod %s is gone already: %s", victim.name, error)


async def say_why(client: KubeClient, said: Said, now: float) -> None:
    """Write the condition of a pod that gives way. Raises ``KubeError``."""
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": said.token,
        "message": said.message,
        "lastTransitionTime": timestamp(now),
    }
    body = {"metadata": {"uid": said.uid}, "status": {"conditions": [condition]}}
    how = PatchKind.STRATEGIC
    await client.patch(PODS, said.name, body, said.namespace, sub="status", how=how)


async def _evict(client: KubeClient, victim: Victim) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": victim.name, "namespace": victim.namespace},
        "deleteOptions": {
            "gracePeriodSeconds": int(victim.grace_seconds),
            "preconditions": {"uid": victim.uid},
        },
    }
    await client.post_sub(PODS, victim.name, "eviction", body, victim.namespace)
