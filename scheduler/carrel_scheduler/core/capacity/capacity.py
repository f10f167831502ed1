"""Capacity counts: the number of tasks of each class that fit on each node now.

For classes with waiting tasks, and a few that had some lately, the answer is kept: a row for each
node, so that a node that changed is counted for all classes at once (``class_needs``) and written
in one piece. The choice of a node reads the column of one class; columns that were asked for are
kept too, and follow the nodes that were written since. Any other view is counted directly. Counts
stop at ``MOST`` per node.
"""

from collections.abc import Iterable

import numpy as np

from carrel_scheduler.core.capacity.counts import ANY, ClassNeeds, Rows
from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.devices import device_choice
from carrel_scheduler.core.devices.classes import Classes, GpuForm
from carrel_scheduler.core.layers import Bools, Counts, Layer
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.resources import MILLI

MOST = ANY
"""A larger count of tasks on one node is told as this many."""

NO_COLUMN = -1
ROWS_AT_ONCE = 512
FEW = 4
"""The number of nodes up to which counting one by one is faster than as arrays."""
FOLLOWED = 512
"""A column is read anew when more nodes were written since it was last asked for."""
MOST_WRITTEN = 1 << 16
KEPT = 64
"""The number of columns that are kept without waiting work, for the next of the same class."""


class Capacity:
    """Counts per node and class in the view of idle capacity, and direct counts in any view."""

    def __init__(self, classes: Classes, nodes: NodeColumns, eligible: Eligible) -> None:
        self._classes, self._nodes, self._eligible = classes, nodes, eligible
        self._needs = ClassNeeds(classes, nodes, eligible)
        self._of_column: list[int] = []
        self._columns: dict[int, int] = {}
        self._idle: dict[int, int] = {}
        self._column_ids: Counts = np.zeros(0, np.int64)
        self._column_of: Counts = np.full(0, NO_COLUMN, np.int64)
        self._rows: Rows = np.zeros((0, 0), np.int16)
        self._kept: dict[int, tuple[int, Rows]] = {}
        self._written: Counts = np.zeros(0, np.int64)
        self._writes = 0
        self._totals: Counts = np.zeros(0, np.int64)
        self._stale: list[int] = []
        self._tried: list[int] = []
        self._version = -1
        self._view: Layer | None = None
        self._seen_by: Layer | None = None
        self._plain_known: dict[int, tuple[int, Bools, list[tuple[int, int]]]] = {}

    def mark(self, node: int) -> None:
        """The idle capacity of a node changed."""
        self._stale.append(node)

    def mark_many(self, nodes: Iterable[int]) -> None:
        """Mark that the idle capacity of these nodes changed."""
        self._stale += nodes

    def mark_tried(self, nodes: Iterable[int]) -> None:
        """Mark that an overlay changed the capacity of these nodes; ends with ``forget_tried``."""
        nodes = list(nodes)
        self._stale += nodes
        self._tried += nodes

    def forget_tried(self) -> None:
        """End an overlay: recount the nodes that it changed."""
        self._stale += self._tried
        self._tried.clear()
        self._seen_by = None

    def sees(self, view: Layer) -> bool:
        """Whether the last ``sync`` was with this very view, and no other overlay began since."""
        return self._seen_by is view

    def follows(self, view: Layer) -> bool:
        """Whether nothing was marked since the last ``sync`` with this very view."""
        return self._seen_by is view and not self._stale

    def sync(self, view: Layer) -> None:
        """Bring rows and totals up to date with the view of idle capacity."""
        if self._seen_by is not view:
            self._stale += self._tried
        self._view = self._seen_by = view
        width = view.devices.shape[1]
        fresh = self._follow_classes(width)
        if fresh or self._version != self._nodes.version:
            self._version = self._nodes.version
            used = sorted({self._needs.mask_of(c) for c in (*self._columns, *self._idle)})
            self._stale += self._needs.follow(used).tolist()
        if self._stale:
            self._write(view, list(dict.fromkeys(self._stale)))
            self._stale.clear()
        for column in fresh:
            counts = self.counts(view, self._of_column[column])
            self._rows[: len(counts), column] = counts
            self._totals[column] = int(counts.sum())
            self._kept.pop(column, None)

    def column(self, class_id: int) -> Rows:
        """(N,) counts of a class as of the last ``sync``. Do not change it."""
        column = self._columns.get(class_id)
        if column is None:
            if self._view is None:
                raise RuntimeError("sync comes first")
            return self.counts(self._view, class_id).astype(np.int16)
        seen, kept = self._kept.get(column, (0, None))
        if kept is None or self._writes - seen > FOLLOWED:
            kept = self._rows[:, column].copy()
        elif seen < self._writes:
            nodes = self._written[seen : self._writes]
            kept[nodes] = self._rows[nodes, column]
        self._kept[column] = self._writes, kept
        return kept

    def rows(self, nodes: Counts) -> Rows:
        """(n, C) counts of all ``classes`` on some nodes as of the last ``sync``."""
        return self._rows[nodes, : len(self._column_ids)]

    def total(self, class_id: int) -> int:
        """The sum of ``column``."""
        column = self._columns.get(class_id)
        return int(self.column(class_id).sum()) if column is None else int(self._totals[column])

    @property
    def classes(self) -> Counts:
        """(C,) the class of each column, also of those that are kept though nobody waits."""
        return self._column_ids

    @property
    def totals(self) -> Counts:
        """(C,) ``total`` by column, as of the last ``sync``. Do not change it."""
        return self._totals[: len(self._column_ids)]

    def columns_of(self, class_ids: Counts) -> Counts:
        """Columns of classes with waiting tasks, -1 for others; valid until classes change."""
        return self._column_of.take(class_ids)

    def counts(self, view: Layer, class_id: int, nodes: Counts | None = None) -> Counts:
        """The number of tasks of one class that fit on each node in a view.

        Args:
            view: capacity on all nodes.
            class_id: of the tasks.
            nodes: slots to ask about; ``None`` all.

        Returns:
            (N,) or (n,) int64, at most ``MOST`` each.
        """
        needs, slots, columns = self._needs, view.slots, self._nodes
        devices, host = view.devices, view.host
        memory, mask = columns.gpu_memory, self._eligible.of(self._classes.request(class_id))
        if nodes is not None:
            devices, slots, host = devices.take(nodes, 1), slots.take(nodes, 1), host.take(nodes, 1)
            memory, mask = memory.take(nodes), mask.take(nodes)
        models = self._eligible.models(nodes)
        kind = self._classes.kinds[class_id]
        devices = columns.of_types(kind.types, devices, nodes)
        found = np.minimum(device_choice.capacity(kind, devices, slots, memory, models), MOST)
        for row, amount in needs.host_needs(class_id):
            if row >= len(host):
                return np.zeros_like(found)
            found = np.minimum(found, host[row] // amount)
        found *= mask
        return found

    def recount(self, counts: Counts, view: Layer, class_id: int, nodes: set[int]) -> None:
        """Bring ``counts`` of a view, (N,), up to date on some nodes; it is changed in place."""
        kind = self._classes.kinds[class_id]
        plain = kind.form in (GpuForm.NONE, GpuForm.WHOLE) and kind.types is None
        if len(nodes) > FEW or not plain:
            some = np.array(sorted(nodes), np.int64)
            counts[some] = self.counts(view, class_id, some)
            return
        mask, needs = self._plain(class_id)
        rows = len(view.host)
        for node in nodes:
            found = MOST
            if not mask.item(node):
                found = 0
            elif kind.form is GpuForm.WHOLE:
                found = min(found, view.devices[:, node].tolist().count(MILLI) // kind.amount)
            for row, amount in needs:
                found = min(found, view.host.item(row, node) // amount if row < rows else 0)
            counts[node] = found

    def _plain(self, class_id: int) -> tuple[Bools, list[tuple[int, int]]]:
        """The nodes on which a class may run and its host requests, cached until nodes change."""
        known = self._plain_known.get(class_id)
        if known is None or known[0] != self._nodes.version:
            mask = self._eligible.of(self._classes.request(class_id))
            known = self._nodes.version, mask, self._needs.host_needs(class_id)
            self._plain_known[class_id] = known
        return known[1:]

    def counts_many(self, view: Layer, class_ids: Counts, nodes: Counts) -> Counts:
        """(n, c) how many tasks of many classes fit on some nodes in a view."""
        self._needs.follow(self._needs.masks_of(class_ids))
        return self._needs.rows(view, nodes, class_ids).astype(np.int64)

    def _write(self, view: Layer, nodes: list[int]) -> None:
        used = len(self._of_column)
        self._note(nodes)
        if len(nodes) == 1:
            row = self._rows[nodes[0], :used]
            new = self._needs.row(view, nodes[0], self._column_ids)
            self._totals[:used] += new - row
            row[:] = new
            return
        for start in range(0, len(nodes), ROWS_AT_ONCE):
            some = np.array(nodes[start : start + ROWS_AT_ONCE], np.int64)
            new = self._needs.rows(view, some, self._column_ids)
            difference = new - self._rows[some, :used]
            self._totals[:used] += difference.sum(0, dtype=np.int64)
            self._rows[some, :used] = new

    def _note(self, nodes: list[int]) -> None:
        """Record the written nodes, so that each kept column recounts them when it is read."""
        if self._writes + len(nodes) > len(self._written):
            self._written = np.zeros(MOST_WRITTEN + len(nodes), np.int64)
            self._writes = 0
            self._kept.clear()
        self._written[self._writes : self._writes + len(nodes)] = nodes
        self._writes += len(nodes)

    def _follow_classes(self, width: int) -> list[int]:
        """Give columns to classes that now have waiting tasks; returns the columns to fill."""
        fresh: list[int] = []
        changed = self._classes.take_changed()
        for class_id in changed:
            column = self._columns.get(class_id)
            if column is not None and not self._classes.waiting[class_id]:
                self._idle[class_id] = self._columns.pop(class_id)
            elif column is None and self._classes.waiting[class_id]:
                kept = self._idle.pop(class_id, None)
                if kept is None:
                    fresh.append(self._new_column(class_id))
                else:
                    self._columns[class_id] = kept
        if changed:
            self._column_ids = np.array(self._of_column, np.int64)
            self._column_of = np.full(len(self._classes), NO_COLUMN, np.int64)
            self._column_of[list(self._columns)] = list(self._columns.values())
        self._widen(width, len(self._of_column))
        return fresh

    def _new_column(self, class_id: int) -> int:
        if len(self._idle) >= KEPT:
            column = self._idle.pop(next(iter(self._idle)))  # of whom nobody has waited for longest
            self._of_column[column] = class_id
        else:
            column = len(self._of_column)
            self._of_column.append(class_id)
        self._columns[class_id] = column
        return column

    def _widen(self, nodes: int, columns: int) -> None:
        n, c = self._rows.shape
        if nodes <= n and columns <= c:
            return
        nodes, columns = max(nodes, n), c if columns <= c else max(columns, 2 * c, 16)
        self._kept.clear()
        rows = np.zeros((nodes, columns), np.int16)
        rows[:n, :c] = self._rows
        totals = np.zeros(columns, np.int64)
        totals[:c] = self._totals
        self._rows, self._totals = rows, totals
