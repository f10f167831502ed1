"""One layer of room: an amount per device and per node, as NumPy columns.

Device columns are device-major, (D, N) int16 in thousandths of a GPU: reductions over the devices
of all nodes are then sums of D contiguous rows. CPU (millicores) and memory (MiB) are the two rows
of a (2, N) int64 array. The state keeps three layers: what is free, what is being released, what
is promised; a cycle works on copies of them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Milli = npt.NDArray[np.int16]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one task takes of one node.

    Attributes:
        node: the node's slot.
        devices: the indices of its devices.
        share: thousandths of each of these devices.
        cpu, memory: millicores and MiB.
    """

    node: int
    devices: tuple[int, ...]
    share: int
    cpu: int
    memory: int


class Layer:
    """An amount of GPU, CPU and memory per node."""

    __slots__ = ("devices", "host")

    def __init__(self, devices: Milli, host: Counts) -> None:
        self.devices = devices
        self.host = host

    @classmethod
    def empty(cls, devices: int, nodes: int) -> "Layer":
        """Nothing anywhere; ``devices`` rows, ``nodes`` columns."""
        return cls(np.zeros((devices, nodes), np.int16), np.zeros((2, nodes), np.int64))

    def copy(self) -> "Layer":
        """An independent copy: a few microseconds at thousands of nodes."""
        return Layer(self.devices.copy(), self.host.copy())

    def grown(self, devices: int, nodes: int) -> "Layer":
        """The same amounts with room for more devices and nodes."""
        larger = Layer.empty(devices, nodes)
        rows, columns = self.devices.shape
        larger.devices[:rows, :columns] = self.devices
        larger.host[:, :columns] = self.host
        return larger

    def add(self, print_: Footprint) -> None:
        """Add a task's footprint."""
        for device in print_.devices:
            self.devices[device, print_.node] += print_.share
        self.host[0, print_.node] += print_.cpu
        self.host[1, print_.node] += print_.memory

    def subtract(self, print_: Footprint) -> None:
        """Take a task's footprint away."""
        for device in print_.devices:
            self.devices[device, print_.node] -= print_.share
        self.host[0, print_.node] -= print_.cpu
        self.host[1, print_.node] -= print_.memory
