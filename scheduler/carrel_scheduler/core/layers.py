"""Amounts per device and per node, as NumPy columns.

Device columns are device-major, (D, N) int16 in thousandths of a GPU: reductions over the devices
of all nodes are then sums of D contiguous rows. Host resources are the rows of a (H, N) int64
array: millicores, MiB, then the extended resources in the order of ``NodeColumns.extended``. Memory
slots of GPUs with MIG instances are bits in a (D, N) uint8 array; such a device counts as many
thousandths as its slots are worth, so an empty one is a whole GPU either way.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Milli = npt.NDArray[np.int16]
Slots = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]

CPU, MEMORY = 0, 1
LARGEST: Final = (1 << 63) - 1
"""The largest amount."""
HOST_ROWS = 2


class Footprint(msgspec.Struct, frozen=True, gc=False):
    """The resources that one task takes on one node.

    Attributes:
        node: the node's slot.
        devices: the indices of its devices, ascending.
        share: thousandths of each of these devices.
        host: amounts by host row; shorter than the rows when the rest is not asked for.
        slots: bits of a MIG instance on its one device.
        counted: thousandths of GPUs beside these devices, see ``Request.counted_milli``.
    """

    node: int
    devices: tuple[int, ...]
    share: int
    host: tuple[int, ...]
    slots: int = 0
    counted: int = 0

    @property
    def amounts(self) -> tuple[int, int, int]:
        """The amounts that count against quotas: GPU thousandths, millicores, MiB."""
        gpu = self.share * len(self.devices) + self.counted
        return (gpu, self.host[CPU], self.host[MEMORY])


MANY_PARTS = 4
"""The fraction of nodes (one in so many) from which summing all of them is less work."""


def free_gpu(devices: Milli, nodes: Counts) -> Counts:
    """(n,) thousandths on all devices of some nodes together."""
    if len(nodes) * MANY_PARTS < devices.shape[1]:
        some: Counts = np.add.reduce(devices.take(nodes, 1), 0, dtype=np.int64)
        return some
    sums: npt.NDArray[np.uint16] = np.add.reduce(devices.view(np.uint16), 0, dtype=np.uint16)
    return sums.take(nodes).astype(np.int64)


class Layer:
    """An amount of everything on every node.

    Attributes:
        changes: slots of nodes in the order in which they changed, where somebody notes all of
            them; ``None`` where nobody does.
    """

    __slots__ = ("changes", "devices", "host", "slots")

    def __init__(self, devices: Milli, host: Counts, slots: Slots) -> None:
        self.devices = devices
        self.host = host
        self.slots = slots
        self.changes: list[int] | None = None

    @classmethod
    def empty(cls, devices: int, nodes: int, rows: int = HOST_ROWS) -> "Layer":
        """Empty layers of ``devices`` device rows, ``rows`` host rows and ``nodes`` columns."""
        return cls(
            np.zeros((devices, nodes), np.int16),
            np.zeros((rows, nodes), np.int64),
            np.zeros((devices, nodes), np.uint8),
        )

    def copy(self) -> "Layer":
        """An independent copy: a few microseconds at thousands of nodes."""
        return Layer(self.devices.copy(), self.host.copy(), self.slots.copy())

    def grown(self, devices: int, nodes: int, rows: int) -> "Layer":
        """The same amounts with capacity for more devices, nodes and host resources."""
        larger = Layer.empty(devices, nodes, rows)
        d, n = self.devices.shape
        larger.devices[:d, :n] = self.devices
        larger.slots[:d, :n] = self.slots
        larger.host[: len(self.host), :n] = self.host
        return larger

    def add(self, place: Footprint) -> None:
        """Add a task's footprint."""
        self._change(place, 1)
        if place.slots:
            for device in place.devices:
                self.slots[device, place.node] |= place.slots

    def subtract(self, place: Footprint) -> None:
        """Take a task's footprint away."""
        self._change(place, -1)
        if place.slots:
            for device in place.devices:
                self.slots[device, place.node] &= ~place.slots & 0xFF

    def _change(self, place: Footprint, sign: int) -> None:
        """Plain integers in and out: several times faster than sums of NumPy's."""
        node, share = place.node, sign * place.share
        devices, host = self.devices, self.host
        for device in place.devices:
            devices[device, node] = devices.item(device, node) + share
        for row, amount in enumerate(place.host):
            if amount:
                host[row, node] = host.item(row, node) + sign * amount
