"""Evict and spare units one at a time, with a running count of what fits and of what queues lose.

For small questions and for the last touch of large ones: plain integers, only the nodes that the
units lie on, looked up when a unit is first moved.
"""

import numpy as np

from carrel_scheduler.core.preemption.search.board import Board
from carrel_scheduler.core.preemption.search.claims import Bools, Claim, Ints
from carrel_scheduler.core.preemption.search.fitting import fitting_one

Task = tuple[int, tuple[int, ...], int, int, int]
"""Node, devices, share on each, millicores, MiB."""


class Trial:
    """A set of evicted units that grows and shrinks.

    Args:
        claim: what is wanted.
        board: the victims.
        base: (N,) tasks that fit with nobody gone.
        usable: (N,) flags of the nodes that count.
    """

    def __init__(self, claim: Claim, board: Board, base: Ints, usable: Bools) -> None:
        self.claim, self.board, self.base, self.usable = claim, board, base, usable
        self.total = int(base.sum())
        self.fits: dict[int, int] = {}
        self._room: dict[int, list[int]] = {}
        self._tasks: dict[int, list[Task]] = {}
        self._rows: Ints | None = None
        self._start: Ints | None = None

    @property
    def enough(self) -> bool:
        """Whether the whole claim fits."""
        return self.total >= self.claim.tasks

    def evict(self, unit: int) -> None:
        """Give back what the unit holds."""
        self._move(unit, 1)

    def spare(self, unit: int) -> None:
        """Undo its eviction."""
        self._move(unit, -1)

    def _move(self, unit: int, sign: int) -> None:
        tasks = self._tasks.get(unit)
        if tasks is None:
            tasks = self._tasks[unit] = self._look_up(unit)
        width = len(self.board.devices)
        for node, devices, share, cpu, memory in tasks:
            room = self._room[node]
            for device in devices:
                room[device] += sign * share
            room[width] += sign * cpu
            room[width + 1] += sign * memory
            fits = fitting_one(self.claim, room[:width], room[width], room[width + 1])
            self.total += fits - self.fits[node]
            self.fits[node] = fits

    def _look_up(self, unit: int) -> list[Task]:
        victims, ground = self.board.victims, self.board.ground
        tasks: list[Task] = []
        for row in self._rows_of(unit):
            node, mask = int(victims.node[row]), int(victims.mask[row])
            if not self.usable[node]:
                continue
            held = tuple(d for d in range(mask.bit_length()) if mask >> d & 1)
            cpu, memory = int(victims.cpu_milli[row]), int(victims.memory_mib[row])
            tasks.append((node, held, int(victims.share[row]), cpu, memory))
            if node not in self._room:
                self._room[node] = ground.devices[:, node].tolist() + ground.host[:, node].tolist()
                self.fits[node] = int(self.base[node])
        return tasks

    def _rows_of(self, unit: int) -> list[int]:
        if self.board.alone:
            return [unit]
        if self._rows is None or self._start is None:
            unit_of = self.board.victims.unit
            self._rows = np.argsort(unit_of, kind="stable")
            count = np.bincount(unit_of, minlength=len(self.board.victims.cost))
            self._start = np.append(0, np.cumsum(count))
        rows: list[int] = self._rows[self._start[unit] : self._start[unit + 1]].tolist()
        return rows


class Ledger:
    """What queues have lost so far, by the exact rule, with undo."""

    def __init__(self, board: Board) -> None:
        purse = board.purse
        self._parent = purse.tree.parent.tolist()
        self._queue, self._amounts = purse.queue, purse.amounts
        self._guarded = {
            queue: [(r, e) for r, e in enumerate(excess) if e > 0]
            for queue, excess in enumerate(purse.budgets.excess.tolist())
            if not purse.budgets.open[queue]
        }
        self._lost: dict[int, list[tuple[int, ...]]] = {}
        self._known: dict[int, tuple[tuple[int, ...], list[int]]] = {}

    def allows(self, unit: int) -> bool:
        """Whether the unit may go on top of those that went."""
        amounts, path = self._of(unit)
        for queue in path:
            lost = self._lost.get(queue)
            if not lost:
                continue
            for r, excess in self._guarded[queue]:
                column = [loss[r] for loss in lost]
                column.append(amounts[r])
                if sum(column) - max(column) < excess:
                    break
            else:
                return False
        return True

    def take(self, unit: int) -> None:
        """Note that the unit goes."""
        amounts, path = self._of(unit)
        for queue in path:
            self._lost.setdefault(queue, []).append(amounts)

    def give_back(self, unit: int) -> None:
        """Undo the latest `take`, which was of this unit."""
        for queue in self._of(unit)[1]:
            self._lost[queue].pop()

    def _of(self, unit: int) -> tuple[tuple[int, ...], list[int]]:
        """A unit's amounts and the queues on its path that guard a budget."""
        if unit not in self._known:
            path, queue = [], int(self._queue[unit])
            while queue >= 0:
                if queue in self._guarded:
                    path.append(queue)
                queue = self._parent[queue]
            self._known[unit] = (tuple(int(column[unit]) for column in self._amounts), path)
        return self._known[unit]
