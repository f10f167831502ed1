"""The pods of ``benchmarks.kubernetes bind``: alone, in gangs, or with a part of a GPU.

A GPU is shared by means of a reservation pod, whose node says which GPU it got. There are no real
nodes in the benchmark, so their answers are simulated, and the writes of them are not the
scheduler's.
"""

import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from benchmarks import kubernetes_cluster
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import FINDS, GPU
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import ChangeKind
from carrel_scheduler.kube.resources import PODS
from carrel_scheduler.kube.writes import Writer
from carrel_schema.names import RESERVATIONS_NAMESPACE

PROJECTS: Final = ("vision", "speech")
NAMESPACES: Final = tuple(f"carrel-{name}" for name in PROJECTS)
GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
MEMORY_MIB: Final = 81_920


@dataclass(frozen=True, slots=True)
class Load:
    """Pods to bind.

    Attributes:
        pods: so many.
        gang_size: so many of them start together; 1: each by itself.
        share: the part of a GPU that each asks for; empty: a whole one.
    """

    pods: int
    gang_size: int = 1
    share: str = ""

    @classmethod
    def gangs(cls, text: str) -> "Load":
        """Read ``3000x3``: so many gangs of so many pods. Raises ``ValueError``."""
        count, _, size = text.partition("x")
        return cls(pods=int(count) * int(size), gang_size=int(size))

    def for_peer(self) -> "Load":
        """The same for a scheduler that knows no parts of GPUs."""
        return replace(self, share="")

    def namespace(self, number: int) -> str:
        """The namespace of a pod; the pods of a gang are in one namespace."""
        return NAMESPACES[number // self.gang_size % len(NAMESPACES)]

    def pod(self, number: int, name: str, scheduler: str) -> dict[str, Any]:
        """The object of a pod."""
        made = kubernetes_cluster.pod(name, scheduler)
        if self.share:
            resources = made["spec"]["containers"][0]["resources"]
            del resources["limits"], resources["requests"][GPU]
            made["metadata"]["annotations"] = {"carrel.dev/gpu-share": self.share}
        if self.gang_size > 1:
            made["metadata"]["labels"] = {GROUP_NAME: f"gang-{number // self.gang_size}"}
            made["metadata"]["annotations"] = {GROUP_SIZE: str(self.gang_size)}
        return made


class ReservationAnswers:
    """Simulates the nodes of reservation pods: each runs once it is bound, and names its GPU.

    Attributes:
        written: how many answers were written.
    """

    def __init__(self, client: KubeClient, feed: Feed[Pod]) -> None:
        self._client, self._feed = client, feed
        self._answered: set[tuple[str, bool]] = set()
        self.written = 0

    async def run(self) -> None:
        """Watch for ever."""
        heard = self._feed.subscribe()
        answers = []
        async with Writer(8) as writer:
            while changes := await heard.batch():
                answers += [
                    writer.submit(partial(self._answer, change.object))
                    for change in changes
                    if change.kind is not ChangeKind.SYNCED and self._is_new(change.object)
                ]

    def _is_new(self, pod: Pod) -> bool:
        """Whether a reservation was bound, or is to end, since it was last looked at."""
        meta = pod.metadata
        if meta.namespace != RESERVATIONS_NAMESPACE or not pod.spec.node_name:
            return False
        state = (meta.uid, meta.deletion_timestamp is not None)
        known = state in self._answered
        self._answered.add(state)
        return not known

    async def _answer(self, pod: Pod) -> None:
        meta = pod.metadata
        self.written += 1
        if meta.deletion_timestamp is not None:
            await self._client.delete(
                PODS, meta.name, meta.namespace, uid=meta.uid, grace_seconds=0
            )
            return
        found = {"exitCode": 0, "message": f"GPU-{uuid.uuid4()}, {MEMORY_MIB}"}
        usual = {"image": "none", "imageID": "none", "restartCount": 0, "ready": True}
        status = {
            "phase": "Running",
            "initContainerStatuses": [{"name": FINDS, **usual, "state": {"terminated": found}}],
        }
        how = PatchKind.STRATEGIC
        body = {"status": status}
        await self._client.patch(PODS, meta.name, body, meta.namespace, sub="status", how=how)
