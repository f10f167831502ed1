"""Nodes as columns: slots that are reused, names in a list, ranks by name for ties.

Slot numbers follow the history of events, so nothing may be decided by them: ties between nodes go
by ``rank``, the place of the name in alphabetical order.
"""

import numpy as np

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.layers import Bools, Counts, Layer
from carrel_scheduler.core.resources import MILLI

MOST_DEVICES = 64


class NodeColumns:
    """Capacity and room of all nodes.

    Attributes:
        slots: name -> slot; ``names``: slot -> name, empty for a slot without a node.
        devices: (N,) number of GPUs.
        capacity: (2, N) millicores and MiB.
        usable: (D, N) the device exists and is not broken.
        schedulable: (N,) may take new work.
        free, releasing, promised: the three layers of room.
    """

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.devices: Counts = np.zeros(0, np.int64)
        self.capacity: Counts = np.zeros((2, 0), np.int64)
        self.usable: Bools = np.zeros((1, 0), np.bool_)
        self.schedulable: Bools = np.zeros(0, np.bool_)
        self.free = Layer.empty(1, 0)
        self.releasing = Layer.empty(1, 0)
        self.promised = Layer.empty(1, 0)
        self._spare: list[int] = []
        self._rank: Counts | None = None

    def copy(self) -> "NodeColumns":
        """An independent copy."""
        twin = NodeColumns()
        twin.slots, twin.names, twin._spare = dict(self.slots), list(self.names), list(self._spare)
        twin.devices, twin.capacity = self.devices.copy(), self.capacity.copy()
        twin.usable, twin.schedulable = self.usable.copy(), self.schedulable.copy()
        twin.free, twin.releasing = self.free.copy(), self.releasing.copy()
        twin.promised, twin._rank = self.promised.copy(), self._rank
        return twin

    @property
    def rank(self) -> Counts:
        """(N,) place of each node's name in alphabetical order; empty slots come last."""
        if self._rank is None:
            rank = np.full(len(self.schedulable), len(self.schedulable), np.int64)
            for place, name in enumerate(sorted(self.slots)):
                rank[self.slots[name]] = place
            self._rank = rank
        return self._rank

    def slot(self, name: str) -> int:
        """The slot of a node; ``InvalidEvent`` when there is none of that name."""
        slot = self.slots.get(name)
        if slot is None:
            raise InvalidEvent("unknown_node", "node", name, "the name of a known node")
        return slot

    def set(self, event: NodeSet) -> None:
        """Add a node or change it; what its tasks hold stays held."""
        _check_node(event)
        known = event.name in self.slots
        if known:
            self._check_shrink(event)
        slot = self.slots[event.name] if known else self._new_slot(event.name, event.devices)
        self._grow(event.devices, len(self.names))
        before = int(self.devices[slot])
        if event.devices > before:
            self.free.devices[before : event.devices, slot] = MILLI
        else:
            self.free.devices[event.devices : before, slot] = 0
        capacity = np.array([event.cpu_milli, event.memory_mib], np.int64)
        self.free.host[:, slot] += capacity - self.capacity[:, slot]
        self.capacity[:, slot] = capacity
        self.devices[slot] = event.devices
        self.schedulable[slot] = event.schedulable
        self.usable[:, slot] = False
        self.usable[: event.devices, slot] = True
        self.usable[sorted(event.broken_devices), slot] = False

    def drop(self, name: str) -> None:
        """Forget a node on which nothing is placed."""
        slot = self.slots.pop(name)
        self.names[slot] = ""
        self.devices[slot] = 0
        self.capacity[:, slot] = 0
        self.usable[:, slot] = False
        self.schedulable[slot] = False
        for layer in (self.free, self.releasing, self.promised):
            layer.devices[:, slot] = 0
            layer.host[:, slot] = 0
        self._spare.append(slot)
        self._rank = None

    def _check_shrink(self, event: NodeSet) -> None:
        slot = self.slots[event.name]
        gone = self.free.devices[event.devices : int(self.devices[slot]), slot]
        if bool((gone != MILLI).any()):
            raise InvalidEvent(
                "device_in_use",
                "devices",
                event.devices,
                "devices in use can be reported broken, not left out",
            )

    def _new_slot(self, name: str, devices: int) -> int:
        if self._spare:
            slot = self._spare.pop()
            self.names[slot] = name
        else:
            slot = len(self.names)
            self.names.append(name)
        self.slots[name] = slot
        self._grow(devices, len(self.names))
        self._rank = None
        return slot

    def _grow(self, devices: int, nodes: int) -> None:
        rows, columns = self.usable.shape
        if devices <= rows and nodes <= columns:
            return
        rows = max(rows, devices)
        columns = columns if nodes <= columns else max(nodes, 2 * columns, 8)
        usable, schedulable = np.zeros((rows, columns), np.bool_), np.zeros(columns, np.bool_)
        usable[: self.usable.shape[0], : self.usable.shape[1]] = self.usable
        schedulable[: len(self.schedulable)] = self.schedulable
        counts, capacity = np.zeros(columns, np.int64), np.zeros((2, columns), np.int64)
        counts[: len(self.devices)] = self.devices
        capacity[:, : self.capacity.shape[1]] = self.capacity
        self.usable, self.schedulable = usable, schedulable
        self.devices, self.capacity = counts, capacity
        self.free = self.free.grown(rows, columns)
        self.releasing = self.releasing.grown(rows, columns)
        self.promised = self.promised.grown(rows, columns)
        self._rank = None


def _check_node(event: NodeSet) -> None:
    if not event.name:
        raise InvalidEvent("bad_name", "name", event.name, "a name that is not empty")
    if not 0 <= event.devices <= MOST_DEVICES:
        raise InvalidEvent("bad_amount", "devices", event.devices, f"0 to {MOST_DEVICES} devices")
    for name, value in (("cpu_milli", event.cpu_milli), ("memory_mib", event.memory_mib)):
        if value < 0:
            raise InvalidEvent("bad_amount", name, value, "an amount that is not negative")
    foreign = sorted(d for d in event.broken_devices if not 0 <= d < event.devices)
    if foreign:
        raise InvalidEvent("unknown_device", "broken_devices", foreign, "devices of this node")
