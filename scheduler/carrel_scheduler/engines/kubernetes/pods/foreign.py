"""What pods that are not Carrel's use on each node, kept as they come and go.

Amounts are summed exactly and rounded once. A pod that cannot be read counts as one pod: whoever
placed it has understood it, and it is not ours to refuse.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.errors import PodRefused
from carrel_scheduler.engines.kubernetes.pods.needs import PODS, Nanos, total_of
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO
from carrel_scheduler.engines.kubernetes.pods.types import Pod

NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


class ForeignUse:
    """Sums by node."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Nanos]] = {}
        self._nodes: dict[str, Nanos] = {}

    def put(self, pod: Pod) -> set[str]:
        """Note a pod as it is now; the nodes whose use changed.

        A pod that has no node, or has ended, uses nothing; a terminating one still does.
        """
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.ended or not node:
            return self.drop(uid)
        total = _total(pod)
        if self._pods.get(uid) == (node, total):
            return set()
        changed = self.drop(uid)
        self._pods[uid] = (node, total)
        self._add(node, total, 1)
        return changed | {node}

    def drop(self, uid: str) -> set[str]:
        """Forget a pod; the node whose use changed."""
        found = self._pods.pop(uid, None)
        if found is None:
            return set()
        node, total = found
        self._add(node, total, -1)
        return {node}

    def of(self, node: str) -> Mapping[str, int]:
        """Resource -> billionths in use on the node."""
        return self._nodes.get(node, NOTHING)

    def _add(self, node: str, total: Nanos, sign: int) -> None:
        sums = self._nodes.setdefault(node, {})
        for name, nano in total.items():
            sums[name] = sums.get(name, 0) + sign * nano
        if not sums.get(PODS):
            del self._nodes[node]


def _total(pod: Pod) -> Nanos:
    try:
        return total_of(pod)
    except PodRefused:
        return {PODS: NANO}
