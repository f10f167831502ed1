"""On which nodes claims are in use: a volume of one node can be shown to pods of that node only."""

from collections import Counter
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.places.volumes import claims_of
from carrel_scheduler.engines.kubernetes.pods.types import Pod

NOWHERE: Final[frozenset[str]] = frozenset()
Key = tuple[str, str]
"""Namespace and name of a claim."""


class Attached:
    """Counts placed pods by claim and node. ``version`` changes with the nodes of a claim."""

    def __init__(self) -> None:
        self.version = 0
        self._pods: dict[str, tuple[str, tuple[Key, ...]]] = {}
        self._nodes: dict[Key, Counter[str]] = {}

    def put(self, pod: Pod, node: str = "") -> None:
        """A pod is on a node, or will be; one that ended uses nothing."""
        uid, node = pod.metadata.uid, node or pod.spec.node_name
        if pod.ended or not node or not pod.spec.volumes:
            self.drop(uid)
            return
        new = node, tuple((pod.metadata.namespace, name) for name in claims_of(pod))
        if self._pods.get(uid) == new:
            return
        self.drop(uid)
        if new[1]:
            self._pods[uid] = new
            self._count(*new, 1)

    def drop(self, uid: str) -> None:
        """A pod is gone from its node."""
        old = self._pods.pop(uid, None)
        if old is not None:
            self._count(*old, -1)

    def nodes(self, namespace: str, claim: str) -> frozenset[str]:
        """Where pods use a claim."""
        found = self._nodes.get((namespace, claim))
        return NOWHERE if found is None else frozenset(found)

    def _count(self, node: str, claims: tuple[Key, ...], change: int) -> None:
        for key in claims:
            counts = self._nodes.setdefault(key, Counter())
            before = counts[node]
            counts[node] = before + change
            if not counts[node]:
                del counts[node]
            if not counts:
                del self._nodes[key]
            if not before or not before + change:
                self.version += 1
