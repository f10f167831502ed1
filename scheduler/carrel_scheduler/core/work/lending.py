"""What may be taken of each node, kept up to date so that a claim need not look at all tasks.

For every node there are the rows of its tasks, and for every node and queue how much the tasks hold
that may be stopped. Queues share a column with those whose slot is the same modulo ``COLUMNS``, so
what a set of queues could give on a node is an upper bound, exact where there are few queues.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.layers import Bools, Counts

if TYPE_CHECKING:
    from carrel_scheduler.core.work.tasks import TaskColumns

COLUMNS = 256
GPU, CPU = 0, 1


class Lending:
    """Rows by node, and what could be taken of it by queue.

    Attributes:
        rows: node -> rows of the tasks on it, in no order.
    """

    def __init__(self, tasks: "TaskColumns") -> None:
        """Count all tasks once; afterwards ``enter``, ``leave`` and ``lend`` tell what changes."""
        used = tasks.used()
        nodes = tasks.node.take(used)
        width = int(nodes.max(initial=-1)) + 1
        self.rows: list[list[int]] = [[] for _ in range(width)]
        for row, node in zip(used.tolist(), nodes.tolist(), strict=True):
            self.rows[node].append(row)
        self._held: npt.NDArray[np.int32] = np.zeros((2, COLUMNS, width), np.int32)
        lent = used[tasks.victim.take(used) >= 0]
        spot = tasks.victim.take(lent).astype(np.int64) % COLUMNS * width + tasks.node.take(lent)
        for kind, amount in ((GPU, tasks.gpu_of(lent)), (CPU, tasks.host[0].take(lent))):
            sums = np.bincount(spot, amount, COLUMNS * width).astype(np.int32)
            self._held[kind] = sums.reshape(COLUMNS, width)

    def enter(self, row: int, node: int) -> None:
        """A task came to a node."""
        if node >= len(self.rows):
            self._widen(max(node + 1, 2 * len(self.rows)))
        self.rows[node].append(row)

    def leave(self, row: int, node: int) -> None:
        """A task left its node."""
        self.rows[node].remove(row)

    def lend(self, queue: int, node: int, gpu: int, cpu: int) -> None:
        """So much more may be taken there of a queue, less where negative."""
        column = queue % COLUMNS
        self._held[GPU, column, node] += gpu
        self._held[CPU, column, node] += cpu

    def of(self, queues: Bools, nodes: int) -> Counts:
        """(2, N) thousandths of GPUs and millicores that these queues, (Q,), could give at most."""
        found = np.zeros((2, nodes), np.int64)
        columns = np.unique(np.flatnonzero(queues) % COLUMNS)
        width = min(nodes, self._held.shape[2])
        if len(columns):
            found[:, :width] = self._held[:, columns, :width].sum(axis=1, dtype=np.int32)
        return found

    def on(self, nodes: Counts) -> Counts:
        """Rows of the tasks on these nodes, ascending."""
        known = self.rows
        found = [row for node in nodes.tolist() if node < len(known) for row in known[node]]
        return np.sort(np.array(found, np.int64))

    def _widen(self, nodes: int) -> None:
        self.rows += [[] for _ in range(nodes - len(self.rows))]
        held = np.zeros((2, COLUMNS, nodes), np.int32)
        held[:, :, : self._held.shape[2]] = self._held
        self._held = held
