"""Devices of nodes, from their drivers' resource slices.

Counted are devices of one node in complete pools. Parts of others (``consumesCounters``) are there
while enough of their counters is left, devices that several claims share
(``allowMultipleAllocations``) while enough of their capacity is. Devices of GPU drivers are the
GPUs of their node, unless a device plugin offers GPUs there, too: these are the same ones. Of a GPU
that is shared all that is given is a part.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from carrel_scheduler.core.mig.models import is_profile
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.kubernetes.pods.devices import capacity, counters
from carrel_scheduler.engines.kubernetes.pods.devices.capacity import Asked, SharedCapacity
from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts
from carrel_scheduler.engines.kubernetes.pods.devices.expressions import context_of, selects
from carrel_scheduler.engines.kubernetes.pods.devices.types import ResourceSlice, SliceDevice
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.selectors import HARD

if TYPE_CHECKING:
    import cel

GPU_DRIVERS: Final = ("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com")
"""Drivers whose devices are GPUs, unless the installation names others."""
PROFILE: Final = "profile"
"""Attribute of devices that are MIG instances."""
UUID: Final = "uuid"
"""Attribute of devices of NVIDIA's driver, by which programs and the limiter know them."""
DeviceId = tuple[str, str, str]
"""Driver, pool and name."""
_PoolId = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """A device that was given to a claim, with what that consumes of it if it is shared.

    ``place``: of a share that a task of Carrel's own has, the number by which the core knows it.
    """

    id: DeviceId
    consumed: Asked = ()
    place: int | None = None


@dataclass(eq=False)
class NodeDevice:
    """A device of a node.

    Attributes:
        takes: of the counters that it shares with others.
        part_milli: which part of the whole it is.
        consumables: its capacities, if several claims share it.
    """

    id: DeviceId
    node: str
    device: SliceDevice
    takes: Amounts = field(default_factory=dict)
    part_milli: int = MILLI
    consumables: Mapping[str, SharedCapacity] = field(default_factory=dict)
    _selected: dict[str, bool] = field(default_factory=dict)

    @property
    def shared(self) -> bool:
        """Whether several claims may have parts of it at once."""
        return self.device.allow_multiple_allocations

    @property
    def profile(self) -> str:
        """The profile of a MIG instance; empty for other devices."""
        attribute = self.device.attributes.get(PROFILE)
        found = "" if attribute is None else attribute.string or ""
        return found if is_profile(found) else ""

    @property
    def uuid(self) -> str:
        """The UUID by which programs know it; empty where its driver does not say it."""
        attribute = self.device.attributes.get(UUID)
        return "" if attribute is None else attribute.string or ""

    @property
    def closed(self) -> bool:
        """Whether a taint keeps all work away."""
        return any(taint.effect in HARD for taint in self.device.taints)

    def given(self, asked: Asked) -> DeviceAllocation | None:
        """The device as a request gets it; ``None``: it has not so much."""
        if not self.shared:
            return DeviceAllocation(self.id) if capacity.has(self.device, asked) else None
        consumed = capacity.consumption(self.consumables, asked)
        return None if consumed is None else DeviceAllocation(self.id, consumed)

    def takes_for(self, given: DeviceAllocation) -> Amounts:
        """The amounts that an allocation takes: of counters, or of the device's own capacity."""
        return self._own(dict(given.consumed)) if self.shared else self.takes

    @cached_property
    def capacity(self) -> Amounts:
        """All of its capacity, if it is shared."""
        return self._own({name: one.total for name, one in self.consumables.items()})

    def _own(self, amounts: Mapping[str, int]) -> Amounts:
        driver, pool, name = self.id
        return {(driver, pool, f"device {name}", key): one for key, one in amounts.items()}

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

    def uuid_of(self, device: DeviceId) -> str:
        """The UUID by which programs know a device; empty where its driver does not say it."""
        found = self._by_id.get(device)
        return "" if found is None else found.uuid

    def is_gpu(self, device: DeviceId) -> bool:
        """Whether a device is a GPU, or a part of one."""
        return device[0] in self._gpu_drivers

    def gpu_milli(self, given: DeviceAllocation) -> int:
        """The part of a GPU that was given, in thousandths; 0 for other devices."""
        found = self._by_id.get(given.id)
        if not self.is_gpu(given.id):
            return 0
        if found is None:
            return MILLI
        if not found.shared:
            return found.part_milli
        return counters.part_milli(found.takes_for(given), found.capacity)

    def is_whole_gpu(self, given: DeviceAllocation) -> bool:
        """Whether what was given is a GPU that nobody else can have a part of."""
        found = self._by_id.get(given.id)
        part = bool(given.consumed) if found is None else found.shared or bool(found.profile)
        return not part and self.gpu_milli(given) == MILLI

    def left(self, node: str, given: Iterable[DeviceAllocation]) -> Amounts:
        """The rest of a node's counters and shared devices beside these allocations."""
        left: dict[counters.Counter, int] = {}
        for pool in self._nodes.get(node, {}):
            left |= self._totals[pool]
        for there in self.of_node(node):
            left |= there.capacity
        once: set[DeviceId] = set()
        for one in given if left else ():
            device = self._by_id.get(one.id)
            if device is None or device.node != node or one.id in once:
                continue
            if not device.shared:
                once.add(one.id)
            elif not one.consumed:  # whoever gave it did not say how much
                left = counters.less(left, device.capacity)
                continue
            left = counters.less(left, device.takes_for(one))
        return left

    def gpus(self, node: str) -> list[NodeDevice]:
        """The whole GPUs of a node that take work: without a taint that keeps all work away."""
        return [
            one
            for one in self.of_node(node)
            if self.is_whole_gpu(DeviceAllocation(one.id)) and not one.closed
        ]

    def shared_gpus(self, node: str) -> list[NodeDevice]:
        """The GPUs of a node that claims have parts of, and that take work."""
        return [
            one
            for one in self.of_node(node)
            if one.shared and self.is_gpu(one.id) and not one.closed
        ]

    def instances(self, node: str) -> list[NodeDevice]:
        """The MIG instances that may be made of a node's GPUs, or are there, and take work."""
        return [
            one
            for one in self.of_node(node)
            if one.profile and one.takes and self.is_gpu(one.id) and not one.closed
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
    """The devices of a complete pool; those whose amounts mean nothing are left out.

    So are devices that are shared and take counters, too: nobody says which share takes them.
    """
    for one in slices:
        for device in one.spec.devices if one.spec.node_name else ():
            shared = device.allow_multiple_allocations
            if shared and device.consumes_counters:
                continue
            try:
                takes = counters.taken(pool, device, there)
                has = capacity.consumables(device) if shared else {}
            except PodRefused:
                continue
            if takes is None or (device.consumes_counters and not takes):
                continue
            part = counters.part_milli(takes, there)
            yield NodeDevice((*pool, device.name), one.spec.node_name, device, takes, part, has)
