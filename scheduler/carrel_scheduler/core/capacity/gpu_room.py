"""How many tasks of every kind of GPU need fit on a few nodes: look-up tables, summed over devices.

Needs of one share or of whole devices are additive: the free thousandths of each device select a
row of counts by kind, and so does the number of whole free devices. The few kinds for which that is
not so (shares of several devices, memory, MIG) are counted one by one by ``device_choice``.
"""

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.capacity.eligible import Eligible
from carrel_scheduler.core.devices.classes import Form, GpuKind
from carrel_scheduler.core.devices.device_choice import capacity
from carrel_scheduler.core.devices.shares import share_table
from carrel_scheduler.core.layers import Counts, Layer, Milli
from carrel_scheduler.core.nodes.nodes import MOST_DEVICES, NodeColumns
from carrel_scheduler.core.resources import MILLI

ANY = 32767
"""So many tasks fit where no GPU is asked for, and at most so many are told."""

MOST_KNOWN = 4096
"""So many states of a node's devices are kept with what they hold."""

Table = npt.NDArray[np.int16]


class GpuKinds:
    """Kinds by number, and the counts of all of them on a few nodes."""

    def __init__(self) -> None:
        self._numbers: dict[GpuKind, int] = {}
        self._by_share = np.zeros((MILLI + 1, 0), np.uint16)
        self._by_whole = np.zeros((MOST_DEVICES + 1, 0), np.uint16)
        self._special: list[tuple[int, GpuKind]] = []
        self._known: dict[bytes, Table] = {}

    @property
    def has_special(self) -> bool:
        """Whether some kinds do not follow from the free thousandths of the devices."""
        return bool(self._special)

    def row(self, devices: Milli) -> Table:
        """(K,) ``table`` for one node with so much free, (D,), where no kind is special."""
        key = devices.tobytes()
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            counts = self._by_share.take(devices, 0).sum(0, dtype=np.uint16)
            counts += self._by_whole[int((devices == MILLI).sum())]
            found = self._known[key] = np.minimum(counts, ANY).view(np.int16)
        return found

    def number(self, kind: GpuKind) -> int:
        """The number of a kind, new if need be."""
        number = self._numbers.get(kind)
        if number is not None:
            return number
        number = self._numbers[kind] = len(self._numbers)
        self._known.clear()
        share = np.zeros(MILLI + 1, np.uint16)
        whole = np.zeros(MOST_DEVICES + 1, np.uint16)
        if kind.form is Form.NONE:
            whole[:] = ANY
        elif kind.form is Form.WHOLE:
            whole = (np.arange(MOST_DEVICES + 1) // kind.amount).astype(np.uint16)
        elif kind.form is Form.SHARE and kind.devices == 1:
            share = share_table(kind.amount)
        else:
            self._special.append((number, kind))
        self._by_share = np.column_stack((self._by_share, share))
        self._by_whole = np.column_stack((self._by_whole, whole))
        return number

    def table(self, view: Layer, nodes: Counts, columns: NodeColumns, eligible: Eligible) -> Table:
        """(n, K) counts by node and kind, at most ``ANY``."""
        devices = view.devices.take(nodes, 1)
        found = self._by_share.take(devices, 0).sum(0, dtype=np.uint16)
        found += self._by_whole.take((devices == MILLI).sum(0), 0)
        if self._special:
            slots, memory = view.slots.take(nodes, 1), columns.gpu_memory.take(nodes)
            models = eligible.models(nodes)
            for number, kind in self._special:
                each = capacity(kind, devices, slots, memory, models)
                found[:, number] = np.minimum(each, ANY)
        np.minimum(found, ANY, out=found)
        table: Table = found.view(np.int16)
        return table
