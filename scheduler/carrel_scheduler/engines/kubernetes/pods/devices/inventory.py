"""Devices of nodes, from their drivers' resource slices.

Counted are devices of one node in complete pools that serve one claim each: those that are shared,
or have to be prepared before a pod is bound, are left out. Parts of others (``consumesCounters``)
are there while enough of their counters is left. Devices of GPU drivers are the GPUs of their node,
unless a device plugin offers GPUs there, too: these are the same ones.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.kubernetes.pods.devices import counters
from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts
from carrel_scheduler.engines.kubernetes.pods.devices.expressions import context_of, selects
from carrel_scheduler.engines.kubernetes.pods.devices.types import Device, ResourceSlice
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.selectors import HARD

if TYPE_CHECKING:
    import cel

GPU_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com")
"""Drivers whose devices are GPUs, unless the installation names others."""
DeviceId = tuple[str, str, str]
"""Driver, pool and name."""
_PoolId = tuple[str, str]


@dataclass(eq=False)
class NodeDevice:
    """A device of a node.

    Attributes:
        takes: of the counters that it shares with others.
        part_milli: which part of the whole it is.
    """

    id: DeviceId
    node: str
    device: Device
    takes: Amounts = field(default_factory=dict)
    part_milli: int = MILLI
    _selected: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def _context(self) -> "cel.Context":
        return context_of(self.id[0], self.device)

    def is_selected(self, expressions: Iterable[str]) -> bool:
        """Whether all expressions are true for the device. Raises ``PodRefused``."""
        return all(self._selects(expression) for expression in expressions)

    def _selects(self, expression: str) -> bool:
        known = self._selected.get(expression)
        if known is None:
            known = self._selected[expression] = selects(expression, self._context)
        return known


class Inventory:
    """The devices of all nodes. ``version`` changes with them, ``versions`` with those of a node.

    Args:
        gpu_drivers: their devices are GPUs.
    """

    def __init__(self, gpu_drivers: Iterable[str] = GPU_DRIVERS) -> None:
        self.version = 0
        self.changed: set[str] = set()
        self.versions: Counter[str] = Counter()
        self._gpu_drivers = frozenset(gpu_drivers)
        self._slices: dict[_PoolId, dict[str, ResourceSlice]] = {}
        self._pools: dict[_PoolId, tuple[NodeDevice, ...]] = {}
        self._nodes: dict[str, dict[_PoolId, list[NodeDevice]]] = {}
        self._by_id: dict[DeviceId, NodeDevice] = {}
        self._totals: dict[_PoolId, Amounts] = {}

    def set_slice(self, one: ResourceSlice) -> None:
        """Handle a slice that is new or changed; it stays in its pool."""
        pool = (one.spec.driver, one.spec.pool.name)
        self._slices.setdefault(pool, {})[one.metadata.name] = one
        self._update(pool)

    def drop_slice(self, one: ResourceSlice) -> None:
        """A slice is gone."""
        pool = (one.spec.driver, one.spec.pool.name)
        self._slices.get(pool, {}).pop(one.metadata.name, None)
        self._update(pool)

    def nodes(self) -> Iterable[str]:
        """The nodes that offer devices."""
        return self._nodes

    def of_node(self, node: str) -> list[NodeDevice]:
        """The devices of a node, in order of their names."""
        return [device for devices in self._nodes.get(node, {}).values() for device in devices]

    def node_of(self, device: DeviceId) -> str:
        """The node of a device; empty for an unknown one."""
        found = self._by_id.get(device)
        return "" if found is None else found.node

    def is_gpu(self, device: DeviceId) -> bool:
        """Whether a device is a GPU, or a part of one."""
        return device[0] in self._gpu_drivers

    def gpu_milli(self, device: DeviceId) -> int:
        """Which part of a GPU a device is, in thousandths; 0 for other devices."""
        found = self._by_id.get(device)
        if not self.is_gpu(device):
            return 0
        return MILLI if found is None else found.part_milli

    def left(self, node: str, given: Iterable[DeviceId]) -> Amounts:
        """What is left of a node's counters beside devices that were given."""
        left: dict[counters.Counter, int] = {}
        for pool in self._nodes.get(node, {}):
            left |= self._totals[pool]
        if left:
            for one in given:
                if (device := self._by_id.get(one)) is not None and device.node == node:
                    left = counters.less(left, device.takes)
        return left

    def gpus(self, node: str) -> list[NodeDevice]:
        """The whole GPUs of a node that take work: without a taint that keeps all work away."""
        return [
            one
            for one in self.of_node(node)
            if self.gpu_milli(one.id) == MILLI
            and not any(taint.effect in HARD for taint in one.device.taints)
        ]

    def _update(self, pool: _PoolId) -> None:
        before = self._pools.pop(pool, ())
        for device in before:
            self._by_id.pop(device.id, None)
            self._nodes.get(device.node, {}).pop(pool, None)
            if not self._nodes.get(device.node):
                self._nodes.pop(device.node, None)
        current = _current(self._slices[pool].values())
        self._totals[pool] = there = _totals(pool, current)
        devices = self._pools[pool] = tuple(_devices(pool, current, there))
        for device in devices:
            self._by_id[device.id] = device
            self._nodes.setdefault(device.node, {}).setdefault(pool, []).append(device)
        nodes = {device.node for device in (*before, *devices)}
        self.changed |= nodes
        self.versions.update(nodes)
        self.version += 1


def _current(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """The slices of the newest generation, in order; none while some of them are not there."""
    there = list(slices)
    newest = max((one.spec.pool.generation for one in there), default=0)
    current = [one for one in there if one.spec.pool.generation == newest]
    if not current or len(current) != current[0].spec.pool.resource_slice_count:
        return []
    return sorted(current, key=lambda found: found.metadata.name)


def _totals(pool: _PoolId, slices: Iterable[ResourceSlice]) -> Amounts:
    try:
        return counters.totals(
            pool, (one for found in slices for one in found.spec.shared_counters)
        )
    except PodRefused:
        return counters.NONE


def _devices(
    pool: _PoolId, slices: Iterable[ResourceSlice], there: Amounts
) -> Iterable[NodeDevice]:
    """The devices of a complete pool; those whose counters mean nothing are left out."""
    for one in slices:
        for device in one.spec.devices if one.spec.node_name else ():
            if device.allow_multiple_allocations or device.binding_conditions:
                continue
            try:
                takes = counters.taken(pool, device, there)
            except PodRefused:
                continue
            if takes is None or (device.consumes_counters and not takes):
                continue
            part = counters.part_milli(takes, there)
            yield NodeDevice((*pool, device.name), one.spec.node_name, device, takes, part)
