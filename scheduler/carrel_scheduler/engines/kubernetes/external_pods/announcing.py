"""Saying on a pod of ours why it is about to give way, before it is told to end.

``kubectl describe pod`` shows it as of others' pods: a condition, and an event.
"""

import logging
from collections.abc import Callable

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.kubernetes import notifications
from carrel_scheduler.engines.kubernetes.eviction import say_why
from carrel_scheduler.engines.kubernetes.external_pods.own_pods import OwnPods
from carrel_scheduler.engines.kubernetes.notifications import Said
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import KubeError
from carrel_schema.objects import ReasonInfo

log = logging.getLogger(__name__)


class Announcing:
    """See ``workloads.actor.Announcer``.

    Args:
        client: of the API server.
        pods: which pod a task is.
        now: epoch seconds.
        instance: the name of this process, for events.
    """

    def __init__(
        self, client: KubeClient, pods: OwnPods, now: Callable[[], float], instance: str
    ) -> None:
        self._client, self._pods = client, pods
        self._now, self._instance = now, instance

    async def announce(self, task: TaskId, why: ReasonInfo) -> None:
        """Say it; names of other projects' work are left out, since whoever sees pods reads it."""
        pod = self._pods.of(task)
        if pod is None:
            return
        message = str(why.data.get("sentence_without_names", why.sentence))
        said = Said(pod.namespace, pod.name, pod.uid, why.token, message)
        try:
            await say_why(self._client, said, self._now())
            await notifications.event(self._client, said, now=self._now(), instance=self._instance)
        except KubeError as error:
            log.info("pod %s is not told why it gives way: %s", pod.name, error)
