"""Items: what a claim can buy. An item is one more place on a node and the units that it costs.

A node on which a task needs everything that victims hold has one item. Elsewhere the places of a
node come one after another, each on the devices that are cheapest to free; where millicores or MiB
are still short, further tasks of the node go, those first that free most for their cost. Places
that cost relatively less than the one before are joined with it, so that the cost per place never
falls along a node, and the cheapest items of all nodes are always beginnings of their nodes' lists.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.preemption.search.board import Board
from carrel_scheduler.core.preemption.search.claims import Bools, Claim, Ints
from carrel_scheduler.core.preemption.search.places import Places


@dataclass(slots=True)
class Items:
    """Items sorted by node, and on a node in the order in which they are taken.

    Attributes:
        node: (I,) where.
        gain: (I,) tasks that it makes room for.
        start: (I + 1,) where an item's units begin in ``unit``.
        unit: (L,) units; a unit on several nodes stands in several items.
        cost: (I,) of its units, as given.
        tie: (I,) which of two equals is taken first.
        later: (I,) items that follow another item of their node.
        forced: no node has a choice of victims, so what holds for items holds for all sets.
    """

    node: Ints
    gain: Ints
    start: Ints
    unit: Ints
    cost: Ints
    tie: Ints
    later: Bools
    forced: bool
    width: int = 0
    """Units of every item, where all have the same number, else 0."""

    def sums(self, values: Ints) -> Ints:
        """(I,) sums of a column of losses, (L,), over the units of every item."""
        if not len(values):
            return np.zeros(len(self.node), np.int64)
        if self.width:
            return np.asarray(np.add.reduceat(values, self.start[:-1]))
        sums: Ints = np.add.reduceat(values, np.minimum(self.start[:-1], len(values) - 1))
        sums[self.start[1:] == self.start[:-1]] = 0
        return sums

    def units(self, chosen: Ints) -> Ints:
        """Units of the items ``chosen``, each once, ascending."""
        units = self.unit.take(self.losses(chosen))
        flags = np.zeros(int(units.max(initial=-1)) + 1, np.bool_)
        flags[units] = True
        return np.flatnonzero(flags)

    def owners(self, chosen: Ints) -> Ints:
        """For each of ``losses``, the place in ``chosen`` of the item that it belongs to."""
        count = self.width or self.start.take(chosen + 1) - self.start.take(chosen)
        return np.arange(len(chosen)).repeat(count)

    def losses(self, chosen: Ints) -> Ints:
        """Indices into ``unit`` of the items ``chosen``, item by item."""
        if self.width:
            return np.asarray(chosen[:, None] * self.width + np.arange(self.width)).ravel()
        begin, count = (
            self.start.take(chosen),
            self.start.take(chosen + 1) - self.start.take(chosen),
        )
        ends = np.cumsum(count)
        total = int(ends[-1]) if len(ends) else 0
        return np.asarray(np.arange(total) + np.repeat(begin - (ends - count), count))


def least(key: Ints, tie: Ints, count: int) -> Ints:
    """Ascending indices of the ``count`` least keys, 0 < count <= len(key), by tie if equal."""
    last = np.partition(key, count - 1)[count - 1]
    chosen = key < last
    equal = np.flatnonzero(key == last)
    missing = count - int(np.count_nonzero(chosen))
    if missing < len(equal):
        equal = equal[np.argsort(tie.take(equal), kind="stable")[:missing]]
    chosen[equal] = True
    return np.flatnonzero(chosen)


def cheapest(key: Ints, items: Items, need: int) -> Ints | None:
    """Items of least key that gain ``need`` places, ascending; ``None`` if all are too few."""
    if (items.gain == 1).all():
        if len(key) <= need:
            return np.arange(len(key)) if len(key) == need else None
        return least(key, items.tie, need)
    order = np.lexsort((items.tie, key / items.gain))
    enough = int(np.searchsorted(np.cumsum(items.gain.take(order)), need))
    return np.sort(order[: enough + 1]) if enough < len(order) else None


def itemise(claim: Claim, board: Board, fits: Ints, base: Ints, weight: Ints) -> Items:
    """All items of a claim.

    Args:
        claim: what is wanted.
        board: the victims.
        fits: (N,) tasks that fit with everybody gone.
        base: (N,) tasks that fit already.
        weight: (U,) what a unit is worth for the choice between victims of one node.
    """
    nodes = np.flatnonzero(fits > base)
    whole = len(nodes) == len(fits)
    spots = board.start if whole else None
    if spots is None:
        count = board.start.take(nodes + 1) - board.start.take(nodes)
        spots = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(count, out=spots[1:])
        within = np.arange(int(spots[-1])) + np.repeat(board.start.take(nodes) - spots[:-1], count)
        rows = board.rows.take(within)
    else:
        rows = board.rows
    unit = rows if board.alone else board.victims.unit.take(rows)
    if board.alone and _forced(claim, board, nodes, fits, rows):
        gain = np.ones(len(nodes), np.int64)
        items = Items(nodes, gain, spots, unit, gain, gain, gain > 1, forced=True)
    else:
        items = _listed(claim, board, nodes, rows, spots, unit, fits, base, weight)
    count = np.diff(items.start)
    if len(count) and count[0] > 0 and bool((count == count[0]).all()):
        items.width = int(count[0])
    items.cost = items.sums(board.victims.cost.take(items.unit))
    latest = np.zeros(len(items.node), np.int64)
    if len(items.unit):
        order = board.victims.order.take(items.unit)
        latest = np.maximum.reduceat(order, np.minimum(items.start[:-1], len(order) - 1))
        latest[items.start[1:] == items.start[:-1]] = -1
    items.tie = latest * len(fits) + board.ground.rank.take(items.node)
    return items


def _forced(claim: Claim, board: Board, nodes: Ints, fits: Ints, rows: Ints) -> bool:
    """Whether every node has one place, and that needs every device that can be cleared."""
    if not claim.width or claim.size * 2 <= 1000 or (fits.take(nodes) > 1).any():
        return False
    usable = np.count_nonzero(board.devices >= claim.size, axis=0).take(nodes)
    exact = claim.size == 1000 and bool((board.victims.mask.take(rows) != 0).all())
    covered = bool((np.count_nonzero(board.devices, axis=0).take(nodes) == claim.width).all())
    return exact and covered and bool((usable == claim.width).all())


def _listed(
    claim: Claim, board: Board, nodes: Ints, rows: Ints, spots: Ints, unit: Ints,
    fits: Ints, base: Ints, weight: Ints,
) -> Items:  # fmt: skip
    """Items of nodes on which there is a choice."""
    at = np.repeat(np.arange(len(nodes)), np.diff(spots))
    place = Places(claim, board, nodes, rows, at, weight.take(unit))
    want = np.minimum(fits.take(nodes), base.take(nodes) + claim.tasks)
    step, levels = place.fill(base.take(nodes), want)
    return _join(nodes, at, unit, step, levels, weight.take(unit))


def _join(nodes: Ints, at: Ints, unit: Ints, step: Ints, levels: Ints, weight: Ints) -> Items:
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
    return Items(
        nodes[node], gain[item, node], start, unit[goes[by_item]], zero, zero, later, forced=False
    )
