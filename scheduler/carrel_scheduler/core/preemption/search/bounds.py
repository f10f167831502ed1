"""Proofs of "no" before anything is tried, and upper bounds for many claims at once.

B0, nodes: with everybody gone each node has its largest room, and identical tasks only need a
count, so fewer places than tasks is a proof, and where no budget binds the count is reached.
B1, budgets: the devices free now and those that the tree of queues can lose at most, together.
B2, one queue: any choice of j places takes at least the j smallest amounts that the queue loses on
a place; it applies where every place needs all victims of its node.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.preemption.search.board import Board
from carrel_scheduler.core.preemption.search.claims import MANY, Claim, Ground, Impossible, Ints
from carrel_scheduler.core.preemption.search.purse import Purse, reach
from carrel_scheduler.core.resources import MILLI


def by_nodes(claim: Claim, places: Ints, domain: np.ndarray | None) -> Impossible | None:
    """B0: ``places`` (N,) tasks that fit with everybody gone, in one domain where one is asked."""
    if domain is None:
        have = int(np.minimum(places, claim.tasks).sum())
    else:
        have = int(per_domain(places, domain, claim.tasks).max(initial=0))
    return Impossible("nodes", have, claim.tasks) if have < claim.tasks else None


def per_domain(places: Ints, domain: np.ndarray, most: int) -> Ints:
    """(domains,) sums of places; nodes outside every domain do not count."""
    inside = np.flatnonzero((domain >= 0) & (places > 0))
    weights = np.minimum(places.take(inside), most)
    return np.bincount(domain.take(inside), weights=weights).astype(np.int64)


def by_budgets(claim: Claim, board: Board, places: Ints) -> Impossible | None:
    """B1: ``places`` (N,) tasks that fit on a node with everybody gone."""
    if not claim.width:
        return None
    need = claim.tasks * claim.width * claim.size
    suits = (board.devices >= claim.size) & (places > 0)
    free = int(np.where(suits, board.ground.devices, 0).sum(dtype=np.int64))
    have = free + reach(board.purse, board.caps)
    return Impossible("budgets", have, need) if have < need else None


def by_sums(claim: Claim, ground: Ground, purse: Purse) -> Impossible | None:
    """B1 before the victims are laid out: as if whatever is free could be used."""
    if not claim.width:
        return None
    need = claim.tasks * claim.width * claim.size
    free = int((ground.devices * ground.eligible).sum(dtype=np.int64))
    have = free + reach(purse, purse.caps)
    return Impossible("budgets", have, need) if have < need else None


def by_one_queue(loss: Ints, cap: Ints) -> Ints:
    """B2: how many places each queue allows at most.

    Args:
        loss: (q, places) what each queue loses on each place.
        cap: (q,) what it may lose.

    Returns:
        (q,) the largest j whose j smallest losses sum to at most the cap.
    """
    step = int(np.gcd.reduce(loss.ravel()[: 4 * loss.shape[1]])) or 1
    values = loss // step
    top = int(values.max(initial=0)) + 1
    if step * int(values.sum()) != int(loss.sum()) or top > 64:
        within = np.cumsum(np.sort(loss, axis=1), axis=1) <= cap[:, None]
        return np.asarray(within.sum(axis=1))
    queues = len(loss)
    spots = (np.arange(queues)[:, None] * top + values).ravel()
    counts = np.bincount(spots, minlength=queues * top).reshape(queues, top)
    before = np.zeros((queues, top), np.int64)
    np.cumsum((counts * np.arange(top) * step)[:, :-1], axis=1, out=before[:, 1:])
    room = np.maximum(cap[:, None] - before, 0) // (np.maximum(np.arange(top), 1) * step)
    room[:, 0] = counts[:, 0]
    return np.asarray(np.minimum(room, counts).sum(axis=1))


@dataclass(frozen=True, slots=True)
class Upper:
    """What any claim could get from one set of victims, by tables small enough to ask hundreds.

    Attributes:
        whole: (K, D + 1) tasks of g whole devices that fit, per class of nodes.
        cells: (K, 1001) devices with at least so many thousandths of room.
        rich: (K, D + 1, 2) most millicores and MiB on one node with at least g such devices.
        total: (K, D + 1, 2) millicores and MiB on all these nodes together.
    """

    whole: Ints
    cells: Ints
    rich: Ints
    total: Ints

    def tasks(
        self, width: Ints, size: Ints, cpu_milli: Ints, memory_mib: Ints, suits: np.ndarray | None
    ) -> Ints:
        """(C,) at most so many tasks of each class fit when everybody legal is gone.

        Args:
            width: (C,) devices of a task.
            size: (C,) thousandths on each.
            cpu_milli: (C,) millicores of a task.
            memory_mib: (C,) MiB of a task.
            suits: (C, K) which classes of nodes a class of tasks may use; ``None`` for all.
        """
        full = size == MILLI
        needs = np.where(full, np.minimum(width, self.whole.shape[1] - 1), 0)
        devices = self.whole.take(needs, axis=1)
        part = np.flatnonzero((width > 0) & ~full)
        if len(part):
            devices[:, part] = self._shares(size[part]) // width[part]
        devices[:, full & (width >= self.whole.shape[1])] = 0
        for line, need in enumerate((cpu_milli, memory_mib)):
            some = np.maximum(need, 1)
            fits = np.where(need > 0, self.total[:, :, line].take(needs, axis=1) // some, MANY)
            fits[self.rich[:, :, line].take(needs, axis=1) < need] = 0
            devices = np.minimum(devices, fits)
        if suits is not None:
            devices = np.where(suits.T, devices, 0)
        return np.asarray(devices.sum(axis=0))

    def _shares(self, size: Ints) -> Ints:
        """(K, c) shares of ``size`` that fit on all devices together."""
        kinds, place = np.unique(size, return_inverse=True)
        sums = [self.cells[:, each::each].sum(axis=1) for each in kinds]
        return np.stack(sums, axis=1).take(place, axis=1)


def upper(board: Board, kind: Ints | None = None, kinds: int = 1) -> Upper:
    """Tables of a set of victims; build once, ask for every class of claims.

    Args:
        board: the set over its ground.
        kind: (N,) class of a node; ``None`` where all are alike.
        kinds: number of classes.
    """
    width, eligible = len(board.devices), board.ground.eligible
    tables = Upper(
        np.zeros((kinds, width + 1), np.int64),
        np.zeros((kinds, MILLI + 1), np.int64),
        np.zeros((kinds, width + 1, 2), np.int64),
        np.zeros((kinds, width + 1, 2), np.int64),
    )
    for k in range(kinds):
        nodes = np.flatnonzero(eligible if kind is None else eligible & (kind == k))
        devices, host = board.devices.take(nodes, axis=1), board.host.take(nodes, axis=1)
        _fill(tables, k, devices, np.maximum(host, 0))
    return tables


def _fill(tables: Upper, k: int, devices: np.ndarray, host: Ints) -> None:
    width = len(devices)
    usable = np.count_nonzero(devices >= MILLI, axis=0)
    counts = np.bincount(usable, minlength=width + 1)
    at_least = np.cumsum(counts[::-1])[::-1]
    tables.whole[k, 0] = MANY
    for g in range(1, width + 1):
        tables.whole[k, g] = at_least[g::g].sum()
    rooms = np.bincount(np.clip(devices, 0, MILLI).ravel(), minlength=MILLI + 1)
    tables.cells[k] = np.cumsum(rooms[::-1])[::-1]
    by_usable = np.argsort(usable, kind="stable")
    first = np.searchsorted(usable.take(by_usable), np.arange(width + 1))
    for line in range(2):
        column = host[line].take(by_usable)
        tail = np.append(np.cumsum(column[::-1])[::-1], 0)
        best = np.append(np.maximum.accumulate(column[::-1])[::-1], 0)
        tables.total[k, :, line], tables.rich[k, :, line] = tail[first], best[first]
