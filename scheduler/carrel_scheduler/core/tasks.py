"""Placed tasks as a struct of arrays: one row per task, rows reused.

The workload-level facts stand beside each task (project, priority, victim), so that questions over
all tasks are vector expressions: "what would be free if all preemptible work of these projects
went" is one look-up and a few additions.
"""

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.layers import Counts, Footprint

NOBODY = -1


class TaskColumns:
    """All tasks that hold room.

    Attributes:
        node: (T,) slot of the node, -1 for an unused row.
        mask: (T,) bit d set when the task holds device d.
        share: (T,) thousandths of each of these devices.
        host: (2, T) millicores and MiB.
        victim: (T,) slot of the project while the task may be evicted (preemptible and not
            stopping already), else -1.
        stopping: (T,) it was told to stop and still holds its room.
        priority: (T,) of its workload.
        owners: row -> (uid, index).
    """

    def __init__(self) -> None:
        self.node: npt.NDArray[np.int64] = np.full(0, NOBODY, np.int64)
        self.mask: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.share: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self.host: Counts = np.zeros((2, 0), np.int64)
        self.victim: npt.NDArray[np.int64] = np.full(0, NOBODY, np.int64)
        self.stopping: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)
        self.priority: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.owners: list[tuple[str, int]] = []
        self._prints: list[Footprint | None] = []
        self._spare: list[int] = []

    def copy(self) -> "TaskColumns":
        """An independent copy."""
        twin = TaskColumns()
        twin.node, twin.mask, twin.share = self.node.copy(), self.mask.copy(), self.share.copy()
        twin.host, twin.victim = self.host.copy(), self.victim.copy()
        twin.stopping, twin.priority = self.stopping.copy(), self.priority.copy()
        twin.owners, twin._prints = list(self.owners), list(self._prints)
        twin._spare = list(self._spare)
        return twin

    def put(self, owner: tuple[str, int], print_: Footprint, *, victim: int, priority: int) -> int:
        """Add a task; returns its row."""
        if not self._spare:
            self._grow()
        row = self._spare.pop()
        self.node[row] = print_.node
        self.mask[row] = sum(1 << device for device in print_.devices)
        self.share[row] = print_.share
        self.host[0, row], self.host[1, row] = print_.cpu, print_.memory
        self.victim[row] = victim
        self.priority[row] = priority
        self.owners[row] = owner
        self._prints[row] = print_
        return row

    def drop(self, row: int) -> None:
        """Forget a task."""
        self.node[row] = NOBODY
        self.mask[row] = 0
        self.share[row] = 0
        self.host[:, row] = 0
        self.victim[row] = NOBODY
        self.stopping[row] = False
        self.owners[row] = ("", NOBODY)
        self._prints[row] = None
        self._spare.append(row)

    def footprint(self, row: int) -> Footprint:
        """What the task of this row takes."""
        print_ = self._prints[row]
        if print_ is None:
            raise KeyError(row)
        return print_

    def rows_on(self, node: int) -> list[int]:
        """Rows of the tasks on a node, by row."""
        return [int(row) for row in np.flatnonzero(self.node == node)]

    def _grow(self) -> None:
        old = len(self.owners)
        new = max(16, 2 * old)
        more = new - old
        self.node = np.concatenate([self.node, np.full(more, NOBODY, np.int64)])
        self.mask = np.concatenate([self.mask, np.zeros(more, np.uint64)])
        self.share = np.concatenate([self.share, np.zeros(more, np.int16)])
        self.host = np.concatenate([self.host, np.zeros((2, more), np.int64)], axis=1)
        self.victim = np.concatenate([self.victim, np.full(more, NOBODY, np.int64)])
        self.stopping = np.concatenate([self.stopping, np.zeros(more, np.bool_)])
        self.priority = np.concatenate([self.priority, np.zeros(more, np.int64)])
        self.owners += [("", NOBODY)] * more
        self._prints += [None] * more
        self._spare += range(new - 1, old - 1, -1)
