"""Which of a node's tasks go for its first, second, ... further place.

All nodes at once: in every step each node that lacks room for its goal gives up the devices that
are cheapest to free, and then, where millicores or MiB are short, further tasks, those first that
free most for what they are worth.
"""

import numpy as np

from carrel_scheduler.core.layers import LARGEST
from carrel_scheduler.core.preemption.search.board import Board, cells
from carrel_scheduler.core.preemption.search.claims import Bools, Claim, Ints
from carrel_scheduler.core.preemption.search.fitting import fitting

STEPS = 16
"""A node's list is cut into at most so many steps."""


def _before(group: Ints, amount: Ints) -> Ints:
    """Running sums of ``amount`` before each entry within its group; groups lie together."""
    sums = np.cumsum(amount) - amount
    first = np.ones(len(group), np.bool_)
    first[1:] = group[1:] != group[:-1]
    return np.asarray(sums - np.maximum.accumulate(np.where(first, sums, 0)))


class Places:
    """The tasks of some nodes, the room there, and the step at which each task goes."""

    def __init__(
        self, claim: Claim, board: Board, nodes: Ints, rows: Ints, at: Ints, weight: Ints
    ) -> None:
        self.claim, self.at, self.weight = claim, at, weight
        victims, ground = board.victims, board.ground
        self.devices = ground.devices.take(nodes, axis=1).astype(np.int64)
        self.host = ground.host.take(nodes, axis=1)
        self.cpu, self.memory = victims.cpu_milli.take(rows), victims.memory_mib.take(rows)
        self.row, self.device = cells(victims, rows)
        self.share = victims.share.take(rows)
        self.step = np.zeros(len(rows), np.int64)

    def fill(self, base: Ints, want: Ints) -> tuple[Ints, Ints]:
        """Choose tasks for ever more places.

        Returns:
            (R,) the step at which a task goes, 0 for never, and (steps, M) the places on every
            node after each step, from step 0.
        """
        further = want - base
        most = int(further.max(initial=0))
        stride = -(-most // STEPS) if most > STEPS else 1
        levels, reached, step = [base], base, 0
        while (reached < want).any():
            step += 1
            goal = np.minimum(base + step * stride, want)
            self._clear_devices(step, goal)
            self._clear_host(step, goal)
            room = fitting(self.claim, self.devices, self.host)
            reached = np.maximum(np.minimum(room, want), goal)
            levels.append(np.minimum(room, want))
        return self.step, np.stack(levels)

    def _go(self, gone: Bools, step: int) -> None:
        """Take the tasks ``gone`` (R,) off their nodes."""
        self.step[gone] = step
        size = self.devices.shape
        for line, column in enumerate((self.cpu, self.memory)):
            self.host[line] += np.bincount(
                self.at[gone], weights=column[gone], minlength=size[1]
            ).astype(np.int64)
        held = gone[self.row]
        spot = self.device[held] * size[1] + self.at[self.row[held]]
        given = np.bincount(spot, weights=self.share[self.row[held]], minlength=size[0] * size[1])
        self.devices += given.astype(np.int64).reshape(size)

    def _clear_devices(self, step: int, goal: Ints) -> None:
        claim = self.claim
        if not claim.width:
            return
        for _ in range(1 + claim.width * int(goal.max(initial=0))):
            slots = np.minimum(self.devices // claim.size, goal)
            short = slots.sum(axis=0) < goal * claim.width
            if not short.any():
                return
            if not self._next_device(step, goal, slots, short):
                return

    def _next_device(self, step: int, goal: Ints, slots: Ints, short: Bools) -> bool:
        """On every node that is ``short`` clear one more slot on as many devices as are missing."""
        size, (width, nodes) = self.claim.size, self.devices.shape
        held = np.flatnonzero((self.step[self.row] == 0) & short[self.at[self.row]])
        if not len(held):
            return False
        row, node = self.row[held], self.at[self.row[held]]
        cell = self.device[held] * nodes + node
        worth = self.weight[row] // np.maximum(np.bincount(self.row)[row], 1)
        share = self.share[row]
        lack = (slots * size + size - self.devices).ravel().take(cell)
        by_worth = np.lexsort((share < lack, worth, cell))
        cell, row, worth, share, lack = (x[by_worth] for x in (cell, row, worth, share, lack))
        before = _before(cell, share)
        part = before < lack
        price = np.full(width * nodes, LARGEST)
        total = np.bincount(cell[part], weights=share[part], minlength=width * nodes)
        costs = np.bincount(cell[part], weights=worth[part], minlength=width * nodes)
        enough = cell[total[cell] >= lack]
        price[enough] = costs[enough].astype(np.int64)
        single = np.flatnonzero(share >= lack)
        best = np.full(width * nodes, LARGEST)
        np.minimum.at(best, cell[single], worth[single])
        alone = best < price
        chosen = self._cheapest(np.minimum(price, best).reshape(width, nodes), goal, slots, short)
        take = chosen.ravel()[cell] & part & ~alone[cell]
        winners = single[chosen.ravel()[cell[single]] & alone[cell[single]]]
        winners = winners[worth[winners] == best[cell[winners]]]
        _, once = np.unique(cell[winners], return_index=True)
        gone = np.zeros(len(self.step), np.bool_)
        gone[row[take]] = True
        gone[row[winners[once]]] = True
        if not gone.any():
            return False
        self._go(gone, step)
        return True

    def _cheapest(self, price: Ints, goal: Ints, slots: Ints, short: Bools) -> Bools:
        """(D, M) the cheapest devices of every node, as many as it lacks."""
        closed = LARGEST
        price = np.where((slots < goal) & short, price, closed)
        missing = np.where(short, goal * self.claim.width - slots.sum(axis=0), 0)
        rank = np.argsort(np.argsort(price, axis=0, kind="stable"), axis=0)
        return np.asarray((rank < missing) & (price < closed))

    def _clear_host(self, step: int, goal: Ints) -> None:
        needs = (self.claim.cpu_milli, self.claim.memory_mib)
        short = np.stack([goal * need for need in needs]) - self.host
        if not (short > 0).any():
            return
        lack = np.maximum(short, 0)
        here = np.flatnonzero((self.step == 0) & (lack > 0).any(axis=0)[self.at])
        frees = (self.cpu[here], self.memory[here])
        parts = [
            np.minimum(free, lack[line, self.at[here]]) * 1024
            // np.maximum(lack[line, self.at[here]], 1)
            for line, free in enumerate(frees)
        ]  # fmt: skip
        relief = parts[0] + parts[1]
        useful = relief > 0
        here, relief = here[useful], relief[useful]
        by_ratio = np.lexsort((self.weight[here] / relief, self.at[here]))
        here = here[by_ratio]
        gone = np.zeros(len(self.step), np.bool_)
        for line, column in enumerate((self.cpu, self.memory)):
            node = self.at[here]
            before = _before(node, column[here])
            gone[here[(before < lack[line, node]) & (column[here] > 0)]] = True
        if gone.any():
            self._go(gone, step)
