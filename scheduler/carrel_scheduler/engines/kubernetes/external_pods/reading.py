"""From a pod as the cluster shows it to what the loop hears of it.

A pod with our scheduler's name that a task of ours made is our own work and is heard of through the
engine: the label says so in the namespaces of projects, where only scheduler and Hub may write it.
One without such a label is a guest; every other pod that has a node is a stranger. A pod that runs
counts for whom it was bound for, whatever its labels say by now.
"""

from typing import Final

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.engines.kubernetes.binding import read_devices
from carrel_scheduler.engines.kubernetes.external_pods.members import Member, PodRef
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    MemberSeen,
    OwnSeen,
    PodGone,
    StrangerSeen,
)
from carrel_scheduler.engines.kubernetes.pods import labels
from carrel_scheduler.engines.kubernetes.pods.grouping import Grouper
from carrel_scheduler.engines.kubernetes.pods.labels import Grouped, Grouping
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.names import (
    DEVICES,
    NAMESPACE_PREFIX,
    SCHEDULER_NAME,
    TASK,
)

GRACE_SECONDS: Final = 30.0
_ENDED: Final = {"Succeeded": Outcome.SUCCEEDED, "Failed": Outcome.FAILED}
_SCHEDULED: Final = "PodScheduled"


class Reader:
    """Reads pods. The group of a pod is read once it is bound, before that whenever it changes."""

    def __init__(self, grouper: Grouper) -> None:
        self._grouper = grouper
        self._read: dict[str, Grouped] = {}

    async def seen(self, pod: Pod) -> MemberSeen | StrangerSeen | OwnSeen:
        """What a pod that appeared or changed is to the loop."""
        if pod.spec.scheduler_name != SCHEDULER_NAME:
            return StrangerSeen(pod)
        if TASK in pod.metadata.labels and pod.metadata.namespace.startswith(NAMESPACE_PREFIX):
            return OwnSeen(pod)
        try:
            return MemberSeen(_member(pod, await self._grouped(pod)))
        except PodRefused as error:
            if not pod.spec.node_name:
                return MemberSeen(_member(pod, Grouped(_nameless(pod)), error.sentence))
            was = labels.read_counted(pod.metadata.annotations)
            if was is None:
                return StrangerSeen(pod)
            return MemberSeen(_member(pod, Grouped(labels.as_counted(_nameless(pod), was))))

    def gone(self, pod: Pod) -> PodGone:
        """What a deleted pod is to the loop."""
        self._read.pop(pod.metadata.uid, None)
        return PodGone(pod.metadata.uid)

    async def _grouped(self, pod: Pod) -> Grouped:
        known = self._read.get(pod.metadata.uid)
        if known is None or not pod.spec.node_name:
            known = await self._grouper.group(pod)
            was = labels.read_counted(pod.metadata.annotations) if pod.spec.node_name else None
            if was is not None:
                known = Grouped(labels.as_counted(known.grouping, was), known.role)
            self._read[pod.metadata.uid] = known
        return known


def _member(pod: Pod, grouped: Grouped, refusal: str = "") -> Member:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    grace = spec.termination_grace_period_seconds
    return Member(
        ref=PodRef(meta.namespace, meta.name, meta.uid),
        grouping=grouped.grouping,
        pod=pod,
        role=grouped.role,
        node=spec.node_name,
        devices=read_devices(meta.annotations.get(DEVICES)) if spec.node_name else None,
        gated=bool(spec.scheduling_gates),
        ending=meta.deletion_timestamp is not None,
        outcome=_ENDED.get(status.phase),
        grace_seconds=GRACE_SECONDS if grace is None else float(grace),
        started_at=status.start_time.timestamp() if status.start_time else 0.0,
        told="" if spec.node_name else _told(pod),
        refusal=refusal,
    )


def _told(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == _SCHEDULED and condition.status == "False":
            return condition.message
    return ""


def _nameless(pod: Pod) -> Grouping:
    """A group for a pod that can not be understood: it is told so, and never queued."""
    meta = pod.metadata
    return Grouping(uid=meta.uid, name=meta.name, project=meta.namespace)
