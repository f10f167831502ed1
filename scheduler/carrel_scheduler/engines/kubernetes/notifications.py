"""Conditions and events of pods, why one waits and what happened to it; and events of nodes.

Both are bounded: so many in a second for the whole cluster, only the latest reason of a pod, and
never the same twice. A reason that is outdated before it is written is left out.
"""

import hashlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import AlreadyExists, Conflict, Invalid, KubeError, NotFound
from carrel_scheduler.kube.resources import EVENTS, PODS

log = logging.getLogger(__name__)

REPORTER: Final = "carrel.dev/scheduler"
UNSCHEDULABLE: Final = "Unschedulable"
NOTE_LENGTH: Final = 1024


@dataclass(frozen=True, slots=True)
class PodNotice:
    """A reason for a pod, for its condition or an event.

    Attributes:
        namespace, name, uid: of the pod.
        token: in CamelCase; ``message``: a sentence.
    """

    namespace: str
    name: str
    uid: str
    token: str
    message: str

    @property
    def regarding(self) -> dict[str, Any]:
        """The pod as an event names it."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }


@dataclass(frozen=True, slots=True)
class NodeNotice:
    """An event about a node, named as kubelets name theirs, so that describing it shows both."""

    name: str
    token: str
    message: str

    @property
    def uid(self) -> str:
        """The node's name, as kubelets have it in their events."""
        return self.name

    @property
    def namespace(self) -> str:
        """The namespace of events about objects without one."""
        return "default"

    @property
    def regarding(self) -> dict[str, Any]:
        """The node as an event names it."""
        return {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.uid}


async def report_pending(
    client: KubeClient, notice: PodNotice, *, now: float, instance: str, scales_up: bool = True
) -> None:
    """Write the condition and the event; a pod that is gone is left out.

    ``scales_up``: the reason of the condition is the one for which autoscalers add nodes by
    themselves; else it is the notice's own. Raises ``KubeError`` for refusals.
    """
    try:
        await _condition(client, notice, now, UNSCHEDULABLE if scales_up else notice.token)
        await record_event(client, notice, now=now, instance=instance)
    except (NotFound, Conflict) as error:
        log.debug("pod %s is gone already: %s", notice.name, error)


async def nominate(client: KubeClient, notice: PodNotice, node: str) -> None:
    """Record the node where capacity is being freed for a pod."""
    body = {"metadata": {"uid": notice.uid}, "status": {"nominatedNodeName": node}}
    try:
        await client.patch(PODS, notice.name, body, notice.namespace, sub="status")
    except (NotFound, Conflict, Invalid) as error:
        log.debug("pod %s is gone, or bound, already: %s", notice.name, error)


async def _condition(client: KubeClient, notice: PodNotice, now: float, reason: str) -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": reason,
        "message": notice.message,
        "lastTransitionTime": timestamp(now),
    }
    body = {"metadata": {"uid": notice.uid}, "status": {"conditions": [condition]}}
    how = PatchKind.STRATEGIC
    await client.patch(PODS, notice.name, body, notice.namespace, sub="status", how=how)


async def record_event(
    client: KubeClient,
    notice: PodNotice | NodeNotice,
    *,
    now: float,
    instance: str,
    warning: bool = True,
) -> None:
    """Write an event; the same reason again counts up the event that is there."""
    name = _event_name(notice)
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    body: dict[str, Any] = {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": name, "namespace": notice.namespace},
        "eventTime": at,
        "reportingController": REPORTER,
        "reportingInstance": instance[:128],
        "action": "Scheduling",
        "reason": notice.token,
        "regarding": notice.regarding,
        "note": notice.message[:NOTE_LENGTH],
        "type": "Warning" if warning else "Normal",
    }
    try:
        await client.create(EVENTS, body, notice.namespace)
    except AlreadyExists:
        again = {"series": {"count": 2, "lastObservedTime": at}}
        await client.patch(EVENTS, name, again, notice.namespace, how=PatchKind.MERGE)
    except KubeError as error:
        log.info("no event was written for %s: %s", notice.name, error)


def _event_name(notice: PodNotice | NodeNotice) -> str:
    """The same for the same object and sentence, so that nothing is written twice."""
    digest = hashlib.sha256(f"{notice.uid} {notice.token} {notice.message}".encode()).hexdigest()
    return f"{notice.name[:200]}.{digest[:16]}"


def timestamp(now: float) -> str:
    """Epoch seconds in the form of conditions."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
