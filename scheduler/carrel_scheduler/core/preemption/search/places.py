"""Places: what a request can buy. An item is one more place on a node and the units that it costs.

A node on which a task needs everything that candidates hold has one item. Elsewhere the places of a
node come one after another, each on the devices that are cheapest to free; where millicores or MiB
are still short, further tasks of the node go, those first that free most for their cost. Places
that cost relatively less than the one before are joined with it, so that the cost per place never
falls along a node, and the cheapest items of all nodes are always beginnings of their nodes' lists.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.layers import LARGEST, Bools, Counts
from carrel_scheduler.core.preemption.search.model import GangRequest, Layout, cells, fitting
from carrel_scheduler.core.resources import MILLI

STEPS = 16
"""A node's list is cut into at most so many steps."""


@dataclass(slots=True)
class Places:
    """Items sorted by node, and on a node in the order in which they are taken.

    Attributes:
        node: (I,) where.
        gain: (I,) tasks that it frees capacity for.
        start: (I + 1,) where an item's units begin in ``unit``.
        unit: (L,) units; a unit on several nodes stands in several items.
        cost: (I,) of its units, as given.
        tie: (I,) which of two equals is taken first.
        later: (I,) items that follow another item of their node.
        forced: no node has a choice of victims, so what holds for items holds for all sets.
    """

    node: Counts
    gain: Counts
    start: Counts
    unit: Counts
    cost: Counts
    tie: Counts
    later: Bools
    forced: bool
    width: int = 0
    """Units of every item, where all have the same number, else 0."""

    def sums(self, values: Counts) -> Counts:
        """(I,) sums of a column of losses, (L,), over the units of every item."""
        if not len(values):
            return np.zeros(len(self.node), np.int64)
        if self.width:
            return np.asarray(np.einsum("ij->i", values.reshape(-1, self.width)))
        sums: Counts = np.add.reduceat(values, np.minimum(self.start[:-1], len(values) - 1))
        sums[self.start[1:] == self.start[:-1]] = 0
        return sums

    def units(self, chosen: Counts) -> Counts:
        """Units of the items ``chosen``, each once, ascending."""
        units = self.picker(chosen)(self.unit)
        flags = np.zeros(int(units.max(initial=-1)) + 1, np.bool_)
        flags[units] = True
        return np.flatnonzero(flags)

    def owners(self, chosen: Counts) -> Callable[[Counts], Counts]:
        """What gives for positions among picked entries the place in ``chosen`` of their item."""
        if self.width:
            return lambda positions: positions // self.width
        count = self.start.take(chosen + 1) - self.start.take(chosen)
        return np.arange(len(chosen)).repeat(count).take

    def picker(self, chosen: Counts) -> Callable[[Counts], Counts]:
        """What takes the entries of the items ``chosen``, item by item, out of a column of losses.

        Where all items have the same number of them, a column is a table with a row for each item,
        whose rows are copied as they are.
        """
        if self.width:
            return lambda column: column.reshape(-1, self.width).take(chosen, 0).ravel()
        losses = self._losses(chosen)
        return lambda column: column.take(losses)

    def _losses(self, chosen: Counts) -> Counts:
        """Indices into ``unit`` of the items ``chosen``, item by item."""
        begin, count = (
            self.start.take(chosen),
            self.start.take(chosen + 1) - self.start.take(chosen),
        )
        ends = np.cumsum(count)
        total = int(ends[-1]) if len(ends) else 0
        return np.asarray(np.arange(total) + np.repeat(begin - (ends - count), count))


def least(key: Counts, tie: Counts, count: int) -> Counts:
    """Ascending indices of the ``count`` least keys, 0 < count <= len(key), by tie if equal."""
    last = np.partition(key, count - 1)[count - 1]
    chosen = key < last
    equal = np.flatnonzero(key == last)
    missing = count - int(np.count_nonzero(chosen))
    if missing < len(equal):
        equal = equal[np.argsort(tie.take(equal), kind="stable")[:missing]]
    chosen[equal] = True
    return np.flatnonzero(chosen)


def cheapest(key: Counts, items: Places, need: int) -> Counts | None:
    """Places of least key that gain ``need`` places, ascending; ``None`` if all are too few."""
    if (items.gain == 1).all():
        return least(key, items.tie, need) if len(key) >= need else None
    order = np.lexsort((items.tie, key / items.gain))
    enough = int(np.searchsorted(np.cumsum(items.gain.take(order)), need))
    return np.sort(order[: enough + 1]) if enough < len(order) else None


def places_of(request: GangRequest, layout: Layout, fits: Counts, base: Counts) -> Places:
    """The items of a request: the places that evictions can make.

    Args:
        request: what is wanted.
        layout: the candidates.
        fits: (N,) tasks that fit with all candidates evicted.
        base: (N,) tasks that fit already.
    """
    nodes = np.flatnonzero(fits > base)
    whole = len(nodes) == len(fits)
    spots = layout.start if whole else None
    if spots is None:
        count = layout.start.take(nodes + 1) - layout.start.take(nodes)
        spots = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(count, out=spots[1:])
        within = np.arange(int(spots[-1])) + np.repeat(layout.start.take(nodes) - spots[:-1], count)
        rows = layout.rows.take(within)
    else:
        rows = layout.rows
    unit = layout.units_of(rows)
    if layout.candidates.alone and _forced(request, layout, nodes, rows):
        gain = np.ones(len(nodes), np.int64)
        items = Places(nodes, gain, spots, unit, gain, gain, gain > 1, forced=True)
    else:
        items = _listed(request, layout, nodes, rows, spots, unit, fits, base)
    count = np.diff(items.start)
    if len(count) and count[0] > 0 and bool((count == count[0]).all()):
        items.width = int(count[0])
    items.cost = items.sums(layout.candidates.cost.take(items.unit))
    latest = np.zeros(len(items.node), np.int64)
    if len(items.unit):
        order = layout.candidates.order.take(items.unit)
        latest = np.maximum.reduceat(order, np.minimum(items.start[:-1], len(order) - 1))
        latest[items.start[1:] == items.start[:-1]] = -1
    items.tie = latest * len(fits) + layout.free.rank.take(items.node)
    return items


def _forced(request: GangRequest, layout: Layout, nodes: Counts, rows: Counts) -> bool:
    """Whether every node has one place, and that needs every device that can be cleared."""
    if not request.width or request.size != MILLI:
        return False
    usable = np.count_nonzero(layout.devices == MILLI, axis=0).take(nodes)
    if (usable != request.width).any():
        return False
    covered = bool((np.count_nonzero(layout.devices, axis=0).take(nodes) == request.width).all())
    return covered and bool((layout.candidates.mask.take(rows) != 0).all())


def _listed(
    request: GangRequest, layout: Layout, nodes: Counts, rows: Counts, spots: Counts, unit: Counts,
    fits: Counts, base: Counts,
) -> Places:  # fmt: skip
    """Places on nodes with more than one choice."""
    at = np.repeat(np.arange(len(nodes)), np.diff(spots))
    place = _Filling(request, layout, nodes, rows, at, layout.candidates.cost.take(unit))
    want = np.minimum(fits.take(nodes), base.take(nodes) + request.tasks)
    step, levels = place.fill(base.take(nodes), want)
    return _join(nodes, at, unit, step, levels, layout.candidates.cost.take(unit))


def _join(
    nodes: Counts, at: Counts, unit: Counts, step: Counts, levels: Counts, weight: Counts
) -> Places:
    """Make items of steps, joining a step with the one before where the cost per place falls."""
    steps, count = len(levels) - 1, len(nodes)
    gain = np.diff(levels, axis=0)
    cost = np.bincount(
        (step - 1)[step > 0] * count + at[step > 0], weights=weight[step > 0],
        minlength=steps * count,
    ).astype(np.int64).reshape(steps, count)  # fmt: skip
    into = np.tile(np.arange(steps)[:, None], (1, count))
    for _ in range(steps):
        joined = False
        for k in range(steps - 1, 0, -1):
            falls = (gain[k] > 0) | (cost[k] > 0)
            falls &= (cost[k] * gain[k - 1] < cost[k - 1] * gain[k]) | (gain[k - 1] <= 0)
            if falls.any():
                joined = True
                cost[k - 1, falls] += cost[k, falls]
                gain[k - 1, falls] += gain[k, falls]
                cost[k, falls] = gain[k, falls] = 0
                move = (into == k) & falls
                into[move] = k - 1
        if not joined:
            break
    item, node = np.nonzero((gain > 0).T)[::-1]
    number = np.full((steps, count), -1)
    number[item, node] = np.arange(len(item))
    goes = np.flatnonzero(step > 0)
    owner = number[into[step[goes] - 1, at[goes]], at[goes]]
    goes, owner = goes[owner >= 0], owner[owner >= 0]
    by_item = np.argsort(owner, kind="stable")
    start = np.zeros(len(item) + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=len(item)), out=start[1:])
    later = np.zeros(len(node), np.bool_)
    later[1:] = node[1:] == node[:-1]
    zero = np.zeros(len(item), np.int64)
    return Places(
        nodes[node], gain[item, node], start, unit[goes[by_item]], zero, zero, later, forced=False
    )


def _before(group: Counts, amount: Counts) -> Counts:
    """Running sums of ``amount`` before each entry within its group; groups lie together."""
    sums = np.cumsum(amount) - amount
    first = np.ones(len(group), np.bool_)
    first[1:] = group[1:] != group[:-1]
    return np.asarray(sums - np.maximum.accumulate(np.where(first, sums, 0)))


class _Filling:
    """The tasks of some nodes, the capacity there, and the step at which each task goes."""

    def __init__(
        self,
        request: GangRequest,
        layout: Layout,
        nodes: Counts,
        rows: Counts,
        at: Counts,
        weight: Counts,
    ) -> None:
        self.request, self.at, self.weight = request, at, weight
        candidates, free = layout.candidates, layout.free
        self.devices = free.devices.take(nodes, axis=1).astype(np.int64)
        self.host = free.host.take(nodes, axis=1)
        self.cpu, self.memory = candidates.cpu_milli.take(rows), candidates.memory_mib.take(rows)
        self.row, self.device = cells(candidates, rows)
        self.share = candidates.share.take(rows)
        self.step = np.zeros(len(rows), np.int64)

    def fill(self, base: Counts, want: Counts) -> tuple[Counts, Counts]:
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
            count = fitting(self.request, self.devices, self.host)
            reached = np.maximum(np.minimum(count, want), goal)
            levels.append(np.minimum(count, want))
        return self.step, np.stack(levels)

    def _go(self, gone: Bools, step: int) -> None:
        """Remove the tasks ``gone`` (R,) from their nodes."""
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

    def _clear_devices(self, step: int, goal: Counts) -> None:
        request = self.request
        if not request.width:
            return
        for _ in range(1 + request.width * int(goal.max(initial=0))):
            slots = np.minimum(self.devices // request.size, goal)
            short = slots.sum(axis=0) < goal * request.width
            if not short.any():
                return
            if not self._next_device(step, goal, slots, short):
                return

    def _next_device(self, step: int, goal: Counts, slots: Counts, short: Bools) -> bool:
        """Clear one more slot on as many devices as are missing, on each node that is ``short``."""
        size, (width, nodes) = self.request.size, self.devices.shape
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

    def _cheapest(self, price: Counts, goal: Counts, slots: Counts, short: Bools) -> Bools:
        """(D, M) the cheapest devices of every node, as many as it lacks."""
        closed = LARGEST
        price = np.where((slots < goal) & short, price, closed)
        missing = np.where(short, goal * self.request.width - slots.sum(axis=0), 0)
        rank = np.argsort(np.argsort(price, axis=0, kind="stable"), axis=0)
        return np.asarray((rank < missing) & (price < closed))

    def _clear_host(self, step: int, goal: Counts) -> None:
        needs = (self.request.cpu_milli, self.request.memory_mib)
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
