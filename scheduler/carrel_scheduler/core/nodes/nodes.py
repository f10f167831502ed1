"""Nodes as columns: slots that are reused, names in a list, ranks by name for ties.

Slot numbers follow the history of events, so nothing may be decided by them: ties between nodes go
by ``rank``, the place of the name in alphabetical order. ``version`` changes with everything that
decides where tasks may run (names, labels, taints, devices), so that masks may be cached by it.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.layers import CPU, HOST_ROWS, MEMORY, Bools, Counts, Layer, Milli, Slots
from carrel_scheduler.core.mig import full_slots
from carrel_scheduler.core.resources import MILLI, Triple

MOST_DEVICES = 64
Scalar = TypeVar("Scalar", bound=np.generic)


class NodeColumns:
    """Capacity and free capacity of all nodes.

    Attributes:
        slots: name -> slot; ``names``: slot -> name, empty for a slot without a node.
        facts: slot -> the last ``NodeSet``.
        hardware: (MiB of a GPU, MIG model) -> how many nodes have such GPUs.
        devices: (N,) number of GPUs; ``gpu_memory``: (N,) MiB of each, 0 unknown.
        capacity: (H, N) host resources; ``extended``: name -> host row.
        counted: (N,) thousandths of GPUs that countable resources are, beside the devices.
        amounts_version: changes with the amounts of nodes, as ``version`` does with the rest.
        usable: (D, N) the device exists and is not broken.
        types: (D, N) the number of the device's type, 0 on nodes whose devices are alike.
        schedulable: (N,) may take new work: neither switched off nor draining.
        draining: slots of the nodes that are being drained.
        mig: (N,) MIG instances are made here as needed.
        instances_only: (N,) whole devices are not given out here.
        divided, profiled: (N,) see ``NodeSet``: ``profiled`` where it has ``profiles``.
        free, releasing, reserved: the three layers of capacity. ``free.slots`` has a bit set for
            each free memory slot, the other two for each slot concerned.
    """

    def __init__(self) -> None:
        self.version = self.amounts_version = 0
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.facts: list[NodeSet | None] = []
        self.hardware: Counter[tuple[int, str]] = Counter()
        self.draining: set[int] = set()
        self.extended: dict[str, int] = {}
        self.devices: Counts = np.zeros(0, np.int64)
        self.gpu_memory: Counts = np.zeros(0, np.int64)
        self.capacity: Counts = np.zeros((HOST_ROWS, 0), np.int64)
        self.counted: Counts = np.zeros(0, np.int64)
        self.usable: Bools = np.zeros((1, 0), np.bool_)
        self.types: Slots = np.zeros((1, 0), np.uint8)
        self._type_numbers: dict[str, int] = {}
        self.schedulable: Bools = np.zeros(0, np.bool_)
        self.mig: Bools = np.zeros(0, np.bool_)
        self.instances_only: Bools = np.zeros(0, np.bool_)
        self.divided: Bools = np.zeros(0, np.bool_)
        self.profiled: Bools = np.zeros(0, np.bool_)
        self.free = Layer.empty(1, 0)
        self.releasing = Layer.empty(1, 0)
        self.reserved = Layer.empty(1, 0)
        self._spare: list[int] = []
        self._rank: Counts | None = None
        self._total: tuple[int, Triple] | None = None

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
        """The slot of a node. Raises ``InvalidEvent`` for an unknown name."""
        slot = self.slots.get(name)
        if slot is None:
            raise InvalidEvent("unknown_node", "node", name, "the name of a known node")
        return slot

    def fact(self, slot: int) -> NodeSet:
        """The last reported facts of the node in this slot."""
        fact = self.facts[slot]
        if fact is None:
            raise KeyError(slot)
        return fact

    def total(self, counted_on: Callable[[Bools], int]) -> Triple:
        """GPU thousandths, millicores and MiB of the cluster, which fair shares divide.

        Of schedulable nodes all, of others what tasks hold there. Counted anew when nodes changed,
        or some take no work: what tasks hold changes without the nodes.

        Args:
            counted_on: thousandths of GPUs beside devices that tasks hold on some nodes, (N,).
        """
        version = self.version + self.amounts_version
        if self._total is not None and self._total[0] == version:
            return self._total[1]
        closed = ~self.schedulable
        gpu = int((self.usable.sum(axis=0) * ~closed).sum()) * MILLI
        gpu += int((self.counted * ~closed).sum())
        cpu, memory = (self.capacity[:2] * ~closed).sum(axis=1)
        if closed.any():
            used = (self.capacity[:2] - self.free.host[:2]) * closed
            cpu, memory = cpu + used[0].sum(), memory + used[1].sum()
            held = self.usable & closed & (self.free.devices < MILLI)
            gpu += int(held.sum()) * MILLI + counted_on(closed)
        total = gpu, int(cpu), int(memory)
        every = np.count_nonzero(self.schedulable) == len(self.slots)
        self._total = (version, total) if every else None
        return total

    def empty_slots(self) -> Slots:
        """(D, N) bits of memory slots when nothing runs; 0 where no MIG instances are made."""
        found = np.zeros(self.usable.shape, np.uint8)
        for slot in np.flatnonzero(self.mig).tolist():
            fact = self.fact(slot)
            found[: fact.devices, slot] = empty_slots_of(fact)
        return found

    def host_row(self, name: str) -> int:
        """The host row of an extended resource, new if need be."""
        row = self.extended.get(name)
        if row is None:
            row = self.extended[name] = HOST_ROWS + len(self.extended)
            self._grow(self.usable.shape[0], self.usable.shape[1], row + 1)
        return row

    def set(self, event: NodeSet) -> None:
        """Add a node or change it; what its tasks hold stays held."""
        _check_node(event)
        rows = [self.host_row(name) for name, _ in event.extended]
        known = event.name in self.slots
        if known:
            self._check_change(event)
        slot = self.slots[event.name] if known else self._new_slot(event.name, event.devices)
        self._grow(event.devices, len(self.names), len(self.capacity))
        self._set_devices(event, slot)
        capacity = np.zeros(len(self.capacity), np.int64)
        capacity[[CPU, MEMORY]] = event.cpu_milli, event.memory_mib
        capacity[rows] = [amount for _, amount in event.extended]
        before = self.capacity[:, slot]
        if self.counted[slot] != event.counted_milli or (capacity != before).any():
            self.amounts_version += 1
        self.free.host[:, slot] += capacity - before
        self.capacity[:, slot] = capacity
        self.counted[slot] = event.counted_milli
        self.gpu_memory[slot] = event.gpu_memory_mib
        self.schedulable[slot] = event.schedulable and not event.draining
        if _elsewhere(self.facts[slot], event):
            self.version += 1
        self._tell(slot, event)

    def _tell(self, slot: int, fact: NodeSet | None) -> None:
        old = self.facts[slot]
        for node, change in ((old, -1), (fact, 1)):
            if node is not None:
                self.hardware[node.gpu_memory_mib, node.mig_model] += change
        if old is not None:
            self.hardware = +self.hardware
        self.facts[slot] = fact
        self.draining.discard(slot)
        if fact is not None and fact.draining:
            self.draining.add(slot)

    def _set_devices(self, event: NodeSet, slot: int) -> None:
        before = int(self.devices[slot])
        self.mig[slot] = bool(event.mig_model)
        self.instances_only[slot] = event.instances_only
        self.divided[slot], self.profiled[slot] = event.divided, bool(event.profiles)
        if event.devices > before:
            self.free.devices[before : event.devices, slot] = MILLI
            self.free.slots[before : event.devices, slot] = empty_slots_of(event)[before:]
        else:
            self.free.devices[event.devices : before, slot] = 0
            self.free.slots[event.devices : before, slot] = 0
        self.devices[slot] = event.devices
        self.usable[:, slot] = False
        self.usable[: event.devices, slot] = True
        self.usable[sorted(event.broken_devices), slot] = False
        self.types[:, slot] = 0
        for device, name in enumerate(event.types):
            number = self._type_numbers.setdefault(name, len(self._type_numbers) + 1)
            self.types[device, slot] = number

    def of_types(
        self, types: frozenset[str] | None, devices: Milli, nodes: Counts | None = None
    ) -> Milli:
        """Free thousandths of devices of these types only, 0 of others.

        Args:
            types: that will do, on nodes whose devices are unlike; ``None``: all.
            devices: (D, N) or, of some nodes, (D, n) thousandths.
            nodes: their slots; ``None``: all.
        """
        if types is None or not self._type_numbers:
            return devices
        numbers = [0, *(self._type_numbers[one] for one in types if one in self._type_numbers)]
        there = self.types if nodes is None else self.types.take(nodes, 1)
        found: Milli = devices * np.isin(there, numbers)
        return found

    def drop(self, name: str) -> None:
        """Forget a node on which nothing is placed."""
        slot = self.slots.pop(name)
        self.names[slot] = ""
        self._tell(slot, None)
        self.devices[slot] = self.gpu_memory[slot] = self.counted[slot] = 0
        self.capacity[:, slot] = 0
        self.usable[:, slot] = False
        self.types[:, slot] = 0
        self.schedulable[slot] = self.mig[slot] = self.instances_only[slot] = False
        self.divided[slot] = self.profiled[slot] = False
        for layer in (self.free, self.releasing, self.reserved):
            layer.devices[:, slot] = layer.slots[:, slot] = 0
            layer.host[:, slot] = 0
        self._spare.append(slot)
        self._rank = None
        self.version += 1

    def _check_change(self, event: NodeSet) -> None:
        slot = self.slots[event.name]
        free = self.free.devices[: int(self.devices[slot]), slot]
        if bool((free[event.devices :] != MILLI).any()):
            expected = "devices in use can be reported broken, not left out"
            raise InvalidEvent("device_in_use", "devices", event.devices, expected)
        if event.mig_model != self.fact(slot).mig_model and bool((free != MILLI).any()):
            expected = "the mode of a node changes when none of its GPUs is in use"
            raise InvalidEvent("device_in_use", "mig_model", event.mig_model, expected)

    def _new_slot(self, name: str, devices: int) -> int:
        if self._spare:
            slot = self._spare.pop()
            self.names[slot] = name
        else:
            slot = len(self.names)
            self.names.append(name)
            self.facts.append(None)
        self.slots[name] = slot
        self._grow(devices, len(self.names), len(self.capacity))
        self._rank = None
        return slot

    def reserve(self, nodes: int, devices: int) -> None:
        """Allocate columns for so many nodes at once, before a bulk load."""
        self._grow(devices, nodes, len(self.capacity))

    def _grow(self, devices: int, nodes: int, rows: int) -> None:
        d, n = self.usable.shape
        if devices <= d and nodes <= n and rows <= len(self.capacity):
            return
        devices = max(devices, d)
        nodes = n if nodes <= n else max(nodes, 2 * n, 8)
        rows = max(rows, len(self.capacity))
        flags = ("schedulable", "mig", "instances_only", "divided", "profiled")
        for name in ("devices", "gpu_memory", "counted", *flags):
            setattr(self, name, _widened(getattr(self, name), (nodes,)))
        self.usable = _widened(self.usable, (devices, nodes))
        self.types = _widened(self.types, (devices, nodes))
        self.capacity = _widened(self.capacity, (rows, nodes))
        self.free = self.free.grown(devices, nodes, rows)
        self.releasing = self.releasing.grown(devices, nodes, rows)
        self.reserved = self.reserved.grown(devices, nodes, rows)
        self._rank = None
        self.version += 1


def _widened(old: npt.NDArray[Scalar], shape: tuple[int, ...]) -> npt.NDArray[Scalar]:
    new = np.zeros(shape, old.dtype)
    new[tuple(slice(0, length) for length in old.shape)] = old
    return new


def _elsewhere(old: NodeSet | None, new: NodeSet) -> bool:
    """Whether the change may decide where tasks may run."""
    return old is None or (
        (old.labels, old.taints, old.schedulable, old.draining, old.gpu_memory_mib)
        != (new.labels, new.taints, new.schedulable, new.draining, new.gpu_memory_mib)
        or (old.devices, old.mig_model, old.undivided, old.broken_devices, old.types)
        != (new.devices, new.mig_model, new.undivided, new.broken_devices, new.types)
        or (old.instances_only, old.profiles, old.divided)
        != (new.instances_only, new.profiles, new.divided)
    )


def empty_slots_of(fact: NodeSet) -> list[int]:
    """The memory slots of each device as bits, when nothing runs; 0 where no instances are made."""
    full = full_slots(fact.mig_model) if fact.mig_model else 0
    return [0 if device in fact.undivided else full for device in range(fact.devices)]


def _check_node(event: NodeSet) -> None:
    if not event.name:
        raise InvalidEvent("bad_name", "name", event.name, "a name that is not empty")
    if not 0 <= event.devices <= MOST_DEVICES:
        raise InvalidEvent("bad_amount", "devices", event.devices, f"0 to {MOST_DEVICES} devices")
    amounts: Iterable[tuple[str, int]] = (
        ("cpu_milli", event.cpu_milli),
        ("memory_mib", event.memory_mib),
        ("gpu_memory_mib", event.gpu_memory_mib),
        ("counted_milli", event.counted_milli),
        *event.extended,
    )
    for name, value in amounts:
        if value < 0:
            raise InvalidEvent("bad_amount", name, value, "an amount that is not negative")
    if event.types and len(event.types) != event.devices:
        expected = f"one for each of {event.devices} devices, or none"
        raise InvalidEvent("bad_amount", "types", event.types, expected)
    foreign = sorted(d for d in event.broken_devices if not 0 <= d < event.devices)
    if foreign:
        raise InvalidEvent("unknown_device", "broken_devices", foreign, "devices of this node")
