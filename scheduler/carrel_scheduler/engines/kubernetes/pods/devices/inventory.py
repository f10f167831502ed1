"""Devices of nodes, from their drivers' resource slices.

Counted are devices of one node in complete pools that serve one claim each: those that are parts of
others (``consumesCounters``), are shared, or have to be prepared before a pod is bound are left
out. Devices of GPU drivers are the GPUs of their node, unless a device plugin offers GPUs there,
too: these are the same ones.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from carrel_scheduler.engines.kubernetes.pods.devices.expressions import context_of, selects
from carrel_scheduler.engines.kubernetes.pods.devices.types import Device, ResourceSlice
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
    """A device of a node."""

    id: DeviceId
    node: str
    device: Device
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
        """Whether a device is a GPU."""
        return device[0] in self._gpu_drivers

    def gpus(self, node: str) -> list[NodeDevice]:
        """The GPUs of a node that take work: those without a taint that keeps all work away."""
        return [
            one
            for one in self.of_node(node)
            if self.is_gpu(one.id) and not any(taint.effect in HARD for taint in one.device.taints)
        ]

    def _update(self, pool: _PoolId) -> None:
        before = self._pools.pop(pool, ())
        for device in before:
            self._by_id.pop(device.id, None)
            self._nodes.get(device.node, {}).pop(pool, None)
            if not self._nodes.get(device.node):
                self._nodes.pop(device.node, None)
        devices = self._pools[pool] = tuple(_devices(pool, self._slices[pool].values()))
        for device in devices:
            self._by_id[device.id] = device
            self._nodes.setdefault(device.node, {}).setdefault(pool, []).append(device)
        nodes = {device.node for device in (*before, *devices)}
        self.changed |= nodes
        self.versions.update(nodes)
        self.version += 1


def _devices(pool: _PoolId, slices: Iterable[ResourceSlice]) -> Iterable[NodeDevice]:
    """The devices of a complete pool."""
    newest = max((one.spec.pool.generation for one in slices), default=0)
    current = [one for one in slices if one.spec.pool.generation == newest]
    if not current or len(current) != current[0].spec.pool.resource_slice_count:
        return
    for one in sorted(current, key=lambda found: found.metadata.name):
        for device in one.spec.devices if one.spec.node_name else ():
            if not (
                device.consumes_counters
                or device.allow_multiple_allocations
                or device.binding_conditions
            ):
                yield NodeDevice((*pool, device.name), one.spec.node_name, device)
