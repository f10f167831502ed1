"""Pods of our own tasks: which pod a task is, and those that somebody else has end.

Our own work is heard of through the engine, which tells of ends. What others begin is seen here as
it begins: a node that is drained, another scheduler that needs the room. The pod then has its grace
period, in which its owner can still be told.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.external import Disruption
from carrel_scheduler.engines.kubernetes.eviction import DISRUPTION_TARGET
from carrel_scheduler.engines.kubernetes.external_pods.members import PodRef
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.names import TASK

BY_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "EvictionByEvictionAPI": "it was evicted",
        "PreemptionByScheduler": "another scheduler needed its room",
        "DeletionByTaintManager": "its node was taken out of service",
    }
)
"""Reasons of Kubernetes' own parts in the condition of a pod that they have end."""


class OwnPods:
    """See the module."""

    def __init__(self) -> None:
        self._pods: dict[TaskId, PodRef] = {}
        self._tasks: dict[str, TaskId] = {}
        self._told: set[str] = set()
        self._disruptions: list[Disruption] = []

    def see(self, pod: Pod) -> None:
        """A pod with a task's label appeared or changed."""
        meta = pod.metadata
        try:
            task = TaskId.parse(meta.labels.get(TASK, ""))
        except ValueError:
            return
        self._pods[task] = PodRef(meta.namespace, meta.name, meta.uid)
        self._tasks[meta.uid] = task
        if meta.deletion_timestamp is None or pod.ended or meta.uid in self._told:
            return
        for condition in pod.status.conditions:
            how = BY_OTHERS.get(condition.reason, "")
            if condition.type == DISRUPTION_TARGET and condition.status == "True" and how:
                self._told.add(meta.uid)
                self._disruptions.append(Disruption(task, pod.spec.node_name, how))

    def gone(self, uid: str) -> None:
        """A pod is no more."""
        self._told.discard(uid)
        task = self._tasks.pop(uid, None)
        if task is not None and self._pods[task].uid == uid:
            del self._pods[task]

    def of(self, task: TaskId) -> PodRef | None:
        """The pod of a task, if there is one."""
        return self._pods.get(task)

    def disruptions(self) -> list[Disruption]:
        """Those that began since this was last asked."""
        found, self._disruptions = self._disruptions, []
        return found
