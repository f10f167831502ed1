"""Pods with a part of the memory of GPUs, node by node: what the agents of nodes are to limit.

It is what the scheduler wrote at the binding of each pod, which a policy of the installation lets
nobody else write. Of pods that others place anybody could write what they like. It does no I/O.
"""

from typing import Final

from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import visible_of
from carrel_scheduler.node.contract import MemoryLimit
from carrel_schema.names import GPU_MEMORY_MIB, SCHEDULER_NAME

_MOST_DIGITS: Final = 10
_NONE: Final[dict[str, tuple[MemoryLimit, ...]]] = {}


class MemoryParts:
    """Keeps the parts of pods that have a place and have not ended."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, tuple[MemoryLimit, ...]]] = {}
        self._at: dict[str, str] = {}

    def of(self, node: str) -> tuple[MemoryLimit, ...]:
        """The parts of the pods on a node."""
        return tuple(one for parts in self._nodes.get(node, _NONE).values() for one in parts)

    def take(self, pod: Pod, *, gone: bool) -> None:
        """Handle a pod's change or deletion from the watch."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        self._forget(uid)
        parts = () if gone or pod.ended or not node else parts_of(pod)
        if parts:
            self._nodes.setdefault(node, {})[uid] = parts
            self._at[uid] = node

    def _forget(self, uid: str) -> None:
        node = self._at.pop(uid, None)
        if node is not None:
            del self._nodes[node][uid]
            if not self._nodes[node]:
                del self._nodes[node]


def parts_of(pod: Pod) -> tuple[MemoryLimit, ...]:
    """The parts of a bound pod; none of whole GPUs, MIG instances, and pods that others place."""
    written = pod.metadata.annotations.get(GPU_MEMORY_MIB, "")
    if pod.spec.scheduler_name != SCHEDULER_NAME:
        return ()
    if not written.isdecimal() or len(written) > _MOST_DIGITS or not int(written):
        return ()
    return tuple(
        MemoryLimit(pod=pod.metadata.uid, device=uuid, memory_mib=int(written))
        for uuid in sorted(visible_of(pod))
    )
