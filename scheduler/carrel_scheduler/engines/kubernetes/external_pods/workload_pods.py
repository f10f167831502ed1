"""Pods of workloads' tasks: which pod a task is, disruptions by others, and their announcement.

The engine reports how tasks end. What others begin is seen here as it begins: a node that is
drained, another scheduler that needs the capacity. The pod then has its grace period, in which its
owner can still be warned.

Before a task is evicted its pod gets a condition and an event, as external pods do, so that
``kubectl describe pod`` shows the reason.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.external import Disruption
from carrel_scheduler.engines.kubernetes import notifications
from carrel_scheduler.engines.kubernetes.eviction import DISRUPTION_TARGET, report_disruption
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import PodRef
from carrel_scheduler.engines.kubernetes.notifications import PodNotice
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_schema.names import TASK
from carrel_schema.objects import ReasonInfo

BY_OTHERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "EvictionByEvictionAPI": "it was evicted",
        "PreemptionByScheduler": "another scheduler needed its resources",
        "DeletionByTaintManager": "its node was taken out of service",
        "GpuReservationLost": "the pod that held its GPU is gone",
    }
)
"""Reasons of Kubernetes' own parts in the condition of a pod that they have end."""


class TaskPodIndex:
    """See the module."""

    def __init__(self) -> None:
        self._pods: dict[TaskId, PodRef] = {}
        self._tasks: dict[str, TaskId] = {}
        self._told: set[str] = set()
        self._bound: set[str] = set()
        self._disruptions: list[Disruption] = []

    def see(self, pod: Pod) -> bool:
        """A pod with a task's label appeared or changed; whether it was not known as bound."""
        meta = pod.metadata
        try:
            task = TaskId.parse(meta.labels.get(TASK, ""))
        except ValueError:
            return False
        self._note_disruption(pod, task)
        new = meta.uid not in self._bound
        if new and pod.spec.node_name:
            self._bound.add(meta.uid)
        self._pods[task] = PodRef(meta.namespace, meta.name, meta.uid)
        self._tasks[meta.uid] = task
        return new

    def _note_disruption(self, pod: Pod, task: TaskId) -> None:
        meta = pod.metadata
        if meta.deletion_timestamp is None or pod.ended or meta.uid in self._told:
            return
        for condition in pod.status.conditions:
            how = BY_OTHERS.get(condition.reason, "")
            if condition.type == DISRUPTION_TARGET and condition.status == "True" and how:
                self._told.add(meta.uid)
                self._disruptions.append(Disruption(task, pod.spec.node_name, how))

    def gone(self, uid: str) -> None:
        """A pod was deleted."""
        self._told.discard(uid)
        self._bound.discard(uid)
        task = self._tasks.pop(uid, None)
        if task is not None and self._pods[task].uid == uid:
            del self._pods[task]

    def of(self, task: TaskId) -> PodRef | None:
        """The pod of a task, if there is one."""
        return self._pods.get(task)

    def task_of(self, uid: str) -> TaskId | None:
        """The task of a pod."""
        return self._tasks.get(uid)

    def disruptions(self) -> list[Disruption]:
        """The disruptions that began since the last call."""
        found, self._disruptions = self._disruptions, []
        return found


log = logging.getLogger(__name__)


class DisruptionAnnouncer:
    """See ``workloads.reconcile.executor.Announcer``.

    Args:
        client: of the API server.
        pods: which pod a task is.
        now: epoch seconds.
        instance: the name of this process, for events.
    """

    def __init__(
        self, client: KubeClient, pods: TaskPodIndex, now: Callable[[], float], instance: str
    ) -> None:
        self._client, self._pods = client, pods
        self._now, self._instance = now, instance

    async def announce(self, task: TaskId, why: ReasonInfo) -> None:
        """Write it; names of other projects' work are left out: all who see pods read it."""
        pod = self._pods.of(task)
        if pod is None:
            return
        message = str(why.data.get("sentence_without_names", why.sentence))
        notice = PodNotice(pod.namespace, pod.name, pod.uid, why.token, message)
        try:
            await report_disruption(self._client, notice, self._now())
            await notifications.record_event(
                self._client, notice, now=self._now(), instance=self._instance
            )
        except KubeError as error:
            log.info("pod %s did not get the condition of its eviction: %s", pod.name, error)
