"""The nodes that serve requests for devices, now or once GPUs become free there."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from cachetools import LRUCache

from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import (
    DeviceAllocation,
    Inventory,
    NodeDevice,
)
from carrel_scheduler.engines.kubernetes.pods.devices.matching import (
    Match,
    RequestedDevices,
    match,
    taken_by,
)

MOST_KEPT: Final = 1000
Asks = tuple[RequestedDevices, ...]
DevicesOf = Callable[[str], list[NodeDevice]]


@dataclass(frozen=True, slots=True)
class ServingResult:
    """GPUs, and parts of such, that requests come to, and nodes that serve them.

    ``now`` have devices free, ``later`` when GPUs become free there.

    A node with so many free GPUs that the core would place the pod, but not the right ones, is
    neither.
    """

    gpus: int
    parts_milli: int
    now: frozenset[str]
    later: frozenset[str]


@dataclass(slots=True)
class _RequestAnswers:
    """Answers for equal requests, and for each node with the version that they are of."""

    version: int = -1
    served: ServingResult | None = None
    nodes: dict[str, tuple[tuple[int, int], tuple[int | None, int, bool]]] = field(
        default_factory=dict
    )


class ServingNodes:
    """Answers as things are; equal requests share one until something changes.

    Args:
        inventory: devices of all nodes.
        uses: counts how often the use of a node's devices changed.
        offered, free: devices of a node that claims may get at all, and now.
        left: what is left of its counters now.
    """

    def __init__(
        self,
        inventory: Inventory,
        uses: Counter[str],
        offered: DevicesOf,
        free: DevicesOf,
        left: Callable[[str], Amounts],
    ) -> None:
        self._inventory, self._uses = inventory, uses
        self._offered, self._free, self._left = offered, free, left
        self._kept: LRUCache[Asks, _RequestAnswers] = LRUCache(MOST_KEPT)

    def of(self, asks: Asks, version: int) -> ServingResult:
        """The nodes that serve these requests; ``version``: of claims and classes."""
        version += self._inventory.version
        kept = self._kept.get(asks)
        if kept is None:
            kept = self._kept[asks] = _RequestAnswers()
        if kept.version != version or kept.served is None:
            kept.version, kept.served = version, self._find(asks, kept)
        return kept.served

    def _find(self, asks: Asks, kept: _RequestAnswers) -> ServingResult:
        now: dict[str, tuple[int, int]] = {}
        later: dict[str, tuple[int, int]] = {}
        for node in self._inventory.nodes():
            version = self._uses[node], self._inventory.versions[node]
            known = kept.nodes.get(node)
            if known is None or known[0] != version:
                known = kept.nodes[node] = version, self._find_on(node, asks)
            gpus, part, free = known[1]
            if gpus is not None:
                (now if free else later)[node] = gpus, part
        if any(ask.every for ask in asks):
            _keep_largest(now, later)
        found = [*now.values(), *later.values()]
        most = max((gpus for gpus, _ in found), default=0)
        parts = max((part for _, part in found), default=0)
        return ServingResult(most, parts, frozenset(now), frozenset(later))

    def _find_on(self, node: str, asks: Asks) -> tuple[int | None, int, bool]:
        """The number of GPUs of requests on a node, their parts, and whether they are free.

        ``None``: the node does not serve them, or not as long as other GPUs are free there.
        """
        free = self._free(node)
        offered = self._offered(node)
        found = match(asks, free, self._left(node), offered)
        if found is not None:
            return self.count(found), self.parts(found), True
        found = match(asks, offered, self._inventory.left(node, ()))
        count = 0 if found is None else self.count(found)
        if found is not None and self.gpus(DeviceAllocation(one.id) for one in free) < count:
            return count, self.parts(found), False
        return None, 0, False

    def count(self, found: Match) -> int:
        """The number of the devices that are whole GPUs."""
        return self.gpus(taken_by(found))

    def parts(self, found: Match) -> int:
        """The size of the other devices, in thousandths of a GPU."""
        return self.parts_of(taken_by(found))

    def parts_of(self, devices: Iterable[DeviceAllocation]) -> int:
        """The size of those of the devices that are parts of GPUs, in thousandths."""
        whole, milli = self._inventory.is_whole_gpu, self._inventory.gpu_milli
        return sum(milli(one) for one in devices if not whole(one))

    def gpus(self, devices: Iterable[DeviceAllocation]) -> int:
        """The number of these devices that are whole GPUs."""
        return sum(self._inventory.is_whole_gpu(one) for one in devices)


def _keep_largest(now: dict[str, tuple[int, int]], later: dict[str, tuple[int, int]]) -> None:
    """Keep the nodes with the most GPUs where numbers differ: a pod asks for one number."""
    most = max((now or later).values(), default=(0, 0))
    for nodes in (now, later):
        for name in [name for name, found in nodes.items() if found != most]:
            del nodes[name]
