"""How many tasks of a kind of GPU need fit on the devices of a node.

Two forms of the same counts: one kind on all nodes (reductions over device rows), and all kinds on
a few nodes (look-up tables by free thousandths, summed over devices). A need of k devices each
with room for c_d tasks holds ``min over j < k of (sum - sum of the j largest c) // (k - j)`` tasks:
any j devices together serve each task at most j times.
"""

import numpy as np
import numpy.typing as npt

from carrel_scheduler.decision.classes import Form, GpuKind, memory_share
from carrel_scheduler.decision.layers import Counts, Milli, Slots
from carrel_scheduler.decision.mig import profile_rows
from carrel_scheduler.decision.resources import MILLI

ANY = 32767
"""So many tasks fit where no GPU is asked for."""

Table = npt.NDArray[np.int16]


def memory_shares(memory_mib: int, gpu_memory: Counts) -> Milli:
    """(n,) thousandths of each node's GPUs that hold so much memory; above 1000: none do."""
    sizes, index = np.unique(gpu_memory, return_inverse=True)
    return np.array([memory_share(memory_mib, size) for size in sizes.tolist()], np.int16)[index]


def gpu_counts(
    kind: GpuKind, devices: Milli, slots: Slots, gpu_memory: Counts, models: Counts
) -> Counts:
    """How many tasks of one kind fit on each node.

    Args:
        kind: the need.
        devices: (D, n) free thousandths.
        slots: (D, n) bits of free memory slots.
        gpu_memory: (n,) MiB of each GPU.
        models: (n,) numbers of MIG models, 0 without MIG.
    """
    if kind.form is Form.NONE:
        return np.full(devices.shape[1], ANY, np.int64)
    if kind.form is Form.WHOLE:
        return _sums(devices == MILLI) // kind.amount
    if kind.form is Form.MIG:
        return _sums(profile_rows(kind.profile)[models, slots])
    if kind.form is Form.SHARE:
        each: Milli = devices // np.int16(kind.amount)
    else:
        each = devices // memory_shares(kind.amount, gpu_memory)
    if kind.devices == 1:
        return _sums(each)
    return _on_several(each.astype(np.int64), kind.devices)


def _sums(each: npt.NDArray[np.generic]) -> Counts:
    """(n,) over the devices."""
    found: Counts = each.sum(0, dtype=np.int64)
    return found


def _on_several(each: Counts, devices: int) -> Counts:
    if len(each) < devices:
        return np.zeros(each.shape[1], np.int64)
    each = np.sort(each, 0)[::-1]
    left = _sums(each)
    most: Counts = left // devices
    for j in range(1, devices):
        left = left - each[j - 1]
        np.minimum(most, left // (devices - j), out=most)
    return most


class GpuKinds:
    """Kinds by number, and the counts of all of them on a few nodes."""

    def __init__(self) -> None:
        self._numbers: dict[GpuKind, int] = {}
        self._by_share = np.zeros((MILLI + 1, 0), np.uint16)
        self._by_whole = np.zeros((65, 0), np.uint16)
        self._special: list[tuple[int, GpuKind]] = []

    def number(self, kind: GpuKind) -> int:
        """The number of a kind, new if need be."""
        number = self._numbers.get(kind)
        if number is not None:
            return number
        number = self._numbers[kind] = len(self._numbers)
        share = np.zeros(MILLI + 1, np.uint16)
        whole = np.zeros(65, np.uint16)
        if kind.form is Form.NONE:
            whole[:] = ANY
        elif kind.form is Form.WHOLE:
            whole = (np.arange(65) // kind.amount).astype(np.uint16)
        elif kind.form is Form.SHARE and kind.devices == 1:
            share = (np.arange(MILLI + 1) // kind.amount).astype(np.uint16)
        else:
            self._special.append((number, kind))
        self._by_share = np.column_stack((self._by_share, share))
        self._by_whole = np.column_stack((self._by_whole, whole))
        return number

    def table(self, devices: Milli, slots: Slots, gpu_memory: Counts, models: Counts) -> Table:
        """(n, K) counts by node and kind, at most ``ANY``; arguments as for ``gpu_counts``."""
        found = self._by_share.take(devices, 0).sum(0, dtype=np.uint16)
        found += self._by_whole.take((devices == MILLI).sum(0), 0)
        for number, kind in self._special:
            found[:, number] = gpu_counts(kind, devices, slots, gpu_memory, models)
        np.minimum(found, ANY, out=found)
        table: Table = found.view(np.int16)
        return table
