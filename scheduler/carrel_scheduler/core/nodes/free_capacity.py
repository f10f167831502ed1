"""Free capacity in one cycle: an overlay of the node columns on which moves are tried and undone.

Three layers (free, releasing, reserved) are copied from the state; two views follow from them:

    soon = free + releasing - reserved      for new work, once terminating tasks have ended
    idle = min(free, soon)                  for new work at once

Reservations use what is being released first. A reservation may also lie on what still runs: that
capacity is then nobody else's when it becomes free. Amounts are integers, so undoing a move is
exact. ``log`` lists the nodes of all moves.
"""

from collections.abc import Iterable

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts, Footprint, Layer
from carrel_scheduler.core.nodes.nodes import NodeColumns

MANY_PARTS = 8
"""The fraction of changed nodes (one in so many) from which all are derived again."""


class FreeCapacity:
    """The capacity of every node that is idle, being released, or reserved.

    Attributes:
        idle, soon: the two views; nothing on nodes that take no new work, and on broken devices.
            Never below zero. ``slots`` are bits of free memory slots.
        log: slots of nodes in the order of the moves.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self.nodes = nodes
        self.free = nodes.free.copy()
        self.releasing = nodes.releasing.copy()
        self.reserved = nodes.reserved.copy()
        self.open: Bools = nodes.usable & nodes.schedulable
        self.idle = Layer.empty(0, 0)
        self.soon = Layer.empty(0, 0)
        self.log: list[int] = []
        self._derive_all()
        self.idle.changes = self.soon.changes = self.log

    # Moves of one task

    def bind(self, place: Footprint) -> None:
        """A task takes free capacity."""
        self.free.subtract(place)
        self._derive(place)

    def unbind(self, place: Footprint) -> None:
        """The opposite of ``bind``."""
        self.free.add(place)
        self._derive(place)

    def evict(self, place: Footprint) -> None:
        """Evict a running task in the overlay: its allocation counts as being released."""
        self.releasing.add(place)
        self._derive(place)

    def keep(self, place: Footprint) -> None:
        """The opposite of ``evict``."""
        self.releasing.subtract(place)
        self._derive(place)

    def reserve(self, place: Footprint) -> None:
        """Reserve capacity, free or being released, for pending work."""
        self.reserved.add(place)
        self._derive(place)

    def unreserve(self, place: Footprint) -> None:
        """The opposite of ``reserve``."""
        self.reserved.subtract(place)
        self._derive(place)

    # Moves of many tasks at once

    def evict_many(
        self,
        node: Counts,
        mask: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
        share: Counts,
        host: Counts,
        slots: Counts,
    ) -> None:
        """Evict many tasks at once, as ``evict`` does.

        Args:
            node: (t,) their nodes.
            mask: (t,) bits of their devices.
            share: (t,) thousandths of each device.
            host: (2, t) millicores and MiB.
            slots: (t,) bits of MIG instances.
        """
        self._add_many(self.releasing, node, mask, share, host, slots)

    def keep_many(
        self,
        node: Counts,
        mask: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
        share: Counts,
        host: Counts,
        slots: Counts,
    ) -> None:
        """The opposite of ``evict_many``."""
        self._add_many(self.releasing, node, mask, -share, -host, slots, freed=False)

    def reserve_many(
        self,
        node: Counts,
        mask: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
        share: Counts,
        host: Counts,
    ) -> None:
        """Reserve capacity for many tasks; arguments as for ``evict_many``."""
        self._add_many(self.reserved, node, mask, share, host, np.zeros(0, np.int64))

    def _add_many(
        self,
        layer: Layer,
        node: Counts,
        mask: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
        share: Counts,
        host: Counts,
        slots: Counts,
        *,
        freed: bool = True,
    ) -> None:
        """``freed``: whether the slots become free, or are in use again."""
        columns = layer.devices.shape[1]
        if not slots.any() and bool((np.bitwise_count(mask) == 1).all()):
            device = np.bitwise_count(mask - np.uint64(1)).astype(np.int64)
            spots = device * columns + node
            amounts = np.bincount(spots, weights=share, minlength=layer.devices.size)
            layer.devices += amounts.reshape(layer.devices.shape).astype(np.int16)
        else:
            self._add_device_by_device(layer, node, mask, share, slots, freed=freed)
        for row in range(len(host)):
            layer.host[row] += np.bincount(node, weights=host[row], minlength=columns).astype(
                np.int64
            )
        self._derive_many(np.flatnonzero(np.bincount(node)))

    def _add_device_by_device(
        self,
        layer: Layer,
        node: Counts,
        mask: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
        share: Counts,
        slots: Counts,
        *,
        freed: bool,
    ) -> None:
        columns = layer.devices.shape[1]
        for device in range(len(layer.devices)):
            there = (mask >> np.uint64(device)) & np.uint64(1)
            amount = np.bincount(node, weights=there * share, minlength=columns)
            layer.devices[device] += amount.astype(np.int16)
            if slots.any():
                bits = (slots.astype(np.uint64) * there).astype(np.uint8)
                if freed:
                    np.bitwise_or.at(layer.slots[device], node, bits)
                else:
                    np.bitwise_and.at(layer.slots[device], node, ~bits)

    # Questions

    def usable(self, place: Footprint) -> int:
        """The number of devices of a place that are usable again once it is free."""
        return sum(self.open.item(device, place.node) for device in place.devices)

    def has(self, places: Iterable[Footprint], *, soon: bool) -> bool:
        """Whether all these places are idle, or with ``soon`` idle or coming, at the same time."""
        view = self.soon if soon else self.idle
        devices: dict[tuple[int, int], int] = {}
        slots: dict[tuple[int, int], int] = {}
        host: dict[tuple[int, int], int] = {}
        for place in places:
            if not self.nodes.schedulable[place.node]:
                return False
            for device in place.devices:
                key = (device, place.node)
                devices[key] = devices.get(key, 0) + place.share
                if slots.get(key, 0) & place.slots:
                    return False
                slots[key] = slots.get(key, 0) | place.slots
            for row, amount in enumerate(place.host):
                host[row, place.node] = host.get((row, place.node), 0) + amount
        return (
            all(int(view.devices[key]) >= share for key, share in devices.items())
            and all(int(view.slots[key]) & bits == bits for key, bits in slots.items())
            and all(int(view.host[key]) >= amount for key, amount in host.items() if amount)
        )

    def overdrawn(self, places: Iterable[Footprint]) -> list[int]:
        """The amounts by which devices and nodes of places are overcommitted by reservations."""
        free, releasing, reserved = self.free, self.releasing, self.reserved
        found = []
        for place in places:
            node = place.node
            for rows, layers in (
                (place.devices, (free.devices, releasing.devices, reserved.devices)),
                (range(len(place.host)), (free.host, releasing.host, reserved.host)),
            ):
                now, coming, gone = (layer[:, node] for layer in layers)
                found += [max(0, int(gone[r]) - int(now[r]) - int(coming[r])) for r in rows]
        return found

    # Derived columns

    def _derive_all(self) -> None:
        free, releasing, reserved = self.free, self.releasing, self.reserved
        soon = free.devices + releasing.devices
        soon -= reserved.devices
        np.maximum(soon, 0, out=soon)
        soon *= self.open
        idle = np.minimum(free.devices, soon)
        host = free.host + releasing.host
        host -= reserved.host
        np.maximum(host, 0, out=host)
        host *= self.nodes.schedulable
        idle_host = np.minimum(np.maximum(free.host, 0), host)
        slots = (free.slots | releasing.slots) & ~reserved.slots
        slots *= self.open
        self.soon = Layer(soon, host, slots)
        self.idle = Layer(idle, idle_host, slots & free.slots)

    def _derive_many(self, nodes: Counts) -> None:
        """Derive the views of these nodes again; of all, where that is less work."""
        if len(nodes) * MANY_PARTS > len(self.nodes.schedulable):
            idle, soon = self.idle, self.soon
            self._derive_all()
            for kept, new in ((idle, self.idle), (soon, self.soon)):
                kept.devices[:], kept.host[:], kept.slots[:] = new.devices, new.host, new.slots
            self.idle, self.soon = idle, soon
        else:
            self._derive_some(nodes)
        self.log += nodes.tolist()

    def _derive_some(self, nodes: Counts) -> None:
        """Derive the views of these nodes again."""
        free, releasing, reserved = self.free, self.releasing, self.reserved
        soon = free.devices.take(nodes, 1) + releasing.devices.take(nodes, 1)
        soon -= reserved.devices.take(nodes, 1)
        np.maximum(soon, 0, out=soon)
        is_open = self.open.take(nodes, 1)
        soon *= is_open
        host = free.host.take(nodes, 1) + releasing.host.take(nodes, 1)
        host -= reserved.host.take(nodes, 1)
        np.maximum(host, 0, out=host)
        host *= self.nodes.schedulable.take(nodes)
        self.soon.devices[:, nodes] = soon
        self.idle.devices[:, nodes] = np.minimum(free.devices.take(nodes, 1), soon)
        self.soon.host[:, nodes] = host
        self.idle.host[:, nodes] = np.minimum(np.maximum(free.host.take(nodes, 1), 0), host)
        if self.nodes.mig.any():
            free_slots = free.slots.take(nodes, 1)
            slots = (free_slots | releasing.slots.take(nodes, 1)) & ~reserved.slots.take(nodes, 1)
            slots *= is_open
            self.soon.slots[:, nodes] = slots
            self.idle.slots[:, nodes] = slots & free_slots

    def _derive(self, place: Footprint) -> None:
        """Derive the views again where a task's footprint lies."""
        node = place.node
        self.log.append(node)
        if not self.nodes.schedulable.item(node):
            return
        self._derive_devices(place)
        free, releasing, reserved = self.free.host, self.releasing.host, self.reserved.host
        soon_host, idle_host = self.soon.host, self.idle.host
        for row, amount in enumerate(place.host):
            if amount:
                here = free.item(row, node)
                soon = here + releasing.item(row, node) - reserved.item(row, node)
                soon_host[row, node] = soon = max(0, soon)
                here = max(0, here)
                idle_host[row, node] = min(soon, here)

    def _derive_devices(self, place: Footprint) -> None:
        node, is_open = place.node, self.open
        free, releasing = self.free.devices, self.releasing.devices
        reserved = self.reserved.devices
        soon_devices, idle_devices = self.soon.devices, self.idle.devices
        for device in place.devices:
            if is_open.item(device, node):
                here = free.item(device, node)
                soon = here + releasing.item(device, node) - reserved.item(device, node)
                soon_devices[device, node] = soon = max(0, soon)
                idle_devices[device, node] = min(soon, here)
                if place.slots:
                    self._derive_slots(device, node)

    def _derive_slots(self, device: int, node: int) -> None:
        bits = self.free.slots.item(device, node)
        later = bits | self.releasing.slots.item(device, node)
        later &= ~self.reserved.slots.item(device, node)
        self.soon.slots[device, node] = later
        self.idle.slots[device, node] = later & bits
