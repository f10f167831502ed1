"""Computation of the number of tasks of each class that fit on each node, as rows over classes.

A row is the minimum of the count by GPUs, two divisions for CPU and memory, and a mask of
eligible nodes. Shares of one device and whole devices are counted by look-up tables over the free
thousandths of each device; shares of several devices, GPU memory and MIG one by one
(``device_choice``). Divisions are done in float64, exact here: ``(a + 1/2) / b`` cannot round up
to the next integer for amounts below 2^52, and the half makes ``0 / 0`` (nothing asked, nothing
free) count as fitting.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.devices.classes import Classes, GpuForm, GpuKind
from carrel_scheduler.core.devices.device_choice import capacity
from carrel_scheduler.core.devices.shares import share_table
from carrel_scheduler.core.layers import CPU, MEMORY, Bools, Counts, Layer, Milli
from carrel_scheduler.core.nodes.nodes import MOST_DEVICES, NodeColumns
from carrel_scheduler.core.resources import MILLI

ANY = 32767
"""The count where no GPU is asked for, and the largest count."""

MOST_KNOWN = 4096
"""The most states of a node's devices that are cached with their counts."""

Table = npt.NDArray[np.int16]


class GpuKinds:
    """Numbers for GPU kinds (form and amount), and the counts of all kinds on a few nodes."""

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
        if kind.types is not None:
            self._special.append((number, kind))
        elif kind.form is GpuForm.NONE:
            whole[:] = ANY
        elif kind.form is GpuForm.WHOLE:
            whole = (np.arange(MOST_DEVICES + 1) // kind.amount).astype(np.uint16)
        elif kind.form is GpuForm.SHARE and kind.devices == 1:
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
                own = columns.of_types(kind.types, devices, nodes)
                each = capacity(kind, own, slots, memory, models)
                found[:, number] = np.minimum(each, ANY)
        np.minimum(found, ANY, out=found)
        table: Table = found.view(np.int16)
        return table


UNKNOWN_ROW = 1 << 30
NEVER_MADE = -1
NOTHING_ASKED = 1e-9
HALF = 0.5
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int16]


class _ByClass(NamedTuple):
    """Columns of ``ClassNeeds`` for some classes, in the order of ``class_ids``."""

    class_ids: Counts
    cpu: Floats
    memory: Floats
    kind: Counts
    mask: Counts


class ClassNeeds:
    """The resource requests of classes, as columns over class numbers, and the masks of nodes."""

    def __init__(self, classes: Classes, nodes: NodeColumns, eligible: Eligible) -> None:
        self._classes, self._nodes, self._eligible = classes, nodes, eligible
        self._kinds = GpuKinds()
        self._cpu: Floats = np.zeros(0)
        self._memory: Floats = np.zeros(0)
        self._kind: Counts = np.zeros(0, np.int64)
        self._mask: list[int] = []
        self._mask_column: Counts = np.zeros(0, np.int64)
        self._mask_ids: dict[object, int] = {}
        self._mask_class: list[int] = []
        self._mask_version: list[int] = []
        self._allowed: Bools = np.zeros((0, 0), np.bool_)
        self._extended: list[int] = []
        self._last: _ByClass | None = None

    def mask_of(self, class_id: int) -> int:
        """The number of the mask of a class."""
        self._grow()
        return self._mask[class_id]

    def masks_of(self, class_ids: Counts) -> list[int]:
        """The numbers of these classes' masks, without duplicates, ascending."""
        self._grow()
        return np.flatnonzero(np.bincount(self._mask_column.take(class_ids))).tolist()

    def host_needs(self, class_id: int) -> list[tuple[int, int]]:
        """(host row, amount) of all that is asked for; a row out of range where unknown."""
        request, known = self._classes.request(class_id), self._nodes.extended
        asked = [(CPU, request.cpu_milli), (MEMORY, request.memory_mib)]
        asked += [(known.get(name, UNKNOWN_ROW), amount) for name, amount in request.extended]
        return [(row, amount) for row, amount in asked if amount]

    def follow(self, masks: list[int]) -> Counts:
        """Bring these masks up to date; returns the nodes for which an existing mask changed."""
        width = len(self._nodes.schedulable)
        self._grow()
        if self._allowed.shape[0] < width or self._allowed.shape[1] < len(self._mask_class):
            wider = np.zeros((width, 2 * len(self._mask_class)), np.bool_)
            n, m = self._allowed.shape
            wider[:n, :m] = self._allowed
            self._allowed = wider
        changed = np.zeros(width, np.bool_)
        for mask in masks:
            if self._mask_version[mask] != self._nodes.version:
                request = self._classes.request(self._mask_class[mask])
                current = self._eligible.of(request)
                if self._mask_version[mask] != NEVER_MADE:
                    changed |= current != self._allowed[:, mask]
                self._allowed[:, mask] = current
                self._mask_version[mask] = self._nodes.version
        return np.flatnonzero(changed)

    def rows(self, view: Layer, nodes: Counts, class_ids: Counts) -> Rows:
        """(n, c) counts of classes on nodes; masks of the classes are current."""
        by_class = self._gathered(class_ids)
        cpu, memory = view.host[CPU].take(nodes), view.host[MEMORY].take(nodes)
        by_host = (cpu + HALF)[:, None] / by_class.cpu
        np.minimum(by_host, (memory + HALF)[:, None] / by_class.memory, out=by_host)
        np.minimum(by_host, ANY, out=by_host)
        found: Rows = by_host.astype(np.int16)
        gpus = self._kinds.table(view, nodes, self._nodes, self._eligible)
        np.minimum(found, gpus.take(by_class.kind, 1), out=found)
        found *= self._allowed.take(nodes, 0).take(by_class.mask, 1)
        if self._extended:
            self._limit_extended(found, view, nodes, class_ids)
        return found

    def row(self, view: Layer, node: int, class_ids: Counts) -> Rows:
        """(c,) ``rows`` of one node."""
        if self._extended or self._kinds.has_special:
            found: Rows = self.rows(view, np.array([node]), class_ids)[0]
            return found
        by_class = self._gathered(class_ids)
        by_host = (view.host.item(CPU, node) + HALF) / by_class.cpu
        np.minimum(by_host, (view.host.item(MEMORY, node) + HALF) / by_class.memory, out=by_host)
        np.minimum(by_host, ANY, out=by_host)
        found = by_host.astype(np.int16)
        gpus = self._kinds.row(view.devices[:, node])
        np.minimum(found, gpus.take(by_class.kind), out=found)
        found *= self._allowed[node].take(by_class.mask)
        return found

    def _gathered(self, class_ids: Counts) -> "_ByClass":
        """The needs of these classes; kept for an array that is asked for again and again."""
        kept = self._last
        if kept is None or kept.class_ids is not class_ids:
            kept = self._last = _ByClass(
                class_ids,
                self._cpu.take(class_ids),
                self._memory.take(class_ids),
                self._kind.take(class_ids),
                self._mask_column.take(class_ids),
            )
        return kept

    def _limit_extended(self, found: Rows, view: Layer, nodes: Counts, class_ids: Counts) -> None:
        for place in np.flatnonzero(np.isin(class_ids, self._extended)).tolist():
            for row, amount in self.host_needs(int(class_ids[place])):
                known = row < len(view.host)
                there = view.host[row].take(nodes) // amount if known else 0
                found[:, place] = np.minimum(found[:, place], there)

    def _grow(self) -> None:
        known, total = len(self._mask), len(self._classes)
        if known == total:
            return
        cpu, memory, kinds = [], [], []
        for class_id in range(known, total):
            request = self._classes.request(class_id)
            cpu.append(request.cpu_milli or NOTHING_ASKED)
            memory.append(request.memory_mib or NOTHING_ASKED)
            kinds.append(self._kinds.number(self._classes.kinds[class_id]))
            self._mask.append(self._mask_number(class_id))
            if request.extended:
                self._extended.append(class_id)
        self._cpu = np.append(self._cpu, cpu)
        self._memory = np.append(self._memory, memory)
        self._kind = np.append(self._kind, np.array(kinds, np.int64))
        self._mask_column = np.array(self._mask, np.int64)

    def _mask_number(self, class_id: int) -> int:
        key = self._eligible.key(self._classes.request(class_id))
        number = self._mask_ids.get(key)
        if number is None:
            number = self._mask_ids[key] = len(self._mask_class)
            self._mask_class.append(class_id)
            self._mask_version.append(NEVER_MADE)
        return number
