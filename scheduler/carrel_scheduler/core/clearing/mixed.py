"""Room for unlike tasks: bounds on what must hold, then victims in order with the caller's test.

Whether unlike tasks fit is the caller's to say; it must not say less when more units go. Units are
taken by what they cost per thousandth of a GPU, or in the order of victims where no unit costs more
than another, until the tasks fit; then, from the latest on, whole blocks are spared that are not
needed, halved where they are. With such a test this spares what one by one would.
"""

from collections.abc import Callable, Sequence

import numpy as np

from carrel_scheduler.core.clearing.accumulate import in_order
from carrel_scheduler.core.clearing.board import Board
from carrel_scheduler.core.clearing.bounds import by_nodes
from carrel_scheduler.core.clearing.claims import (
    Bools,
    Claim,
    Impossible,
    Ints,
    NotFound,
)
from carrel_scheduler.core.clearing.fitting import fitting
from carrel_scheduler.core.resources import MILLI

Fits = Callable[[Ints], bool]


def clear_mixed(
    board: Board,
    classes: Sequence[tuple[Claim, Bools | None]],
    fits: Fits,
    steps: int = 200,
) -> Ints | Impossible | NotFound:
    """Units whose going makes room for tasks of several classes together.

    Args:
        board: the victims.
        classes: what is wanted, and on which nodes (N,); ``None`` for all of the board.
        fits: whether everything fits once the given units are gone.
        steps: how often ``fits`` is asked at most.

    Returns:
        Units in the order of victims, a proof that there are none, or that none were found.
    """
    no = refuse_mixed(board, classes)
    if no is not None:
        return no
    asked = _Counted(fits, steps)
    victims, live = board.victims, board.purse.live
    orders = [victims.order]
    costs = victims.cost[live]
    if len(costs) and int(costs.min()) < int(costs.max()):
        orders = [_by_worth(board), victims.order]
    best: Ints | None = None
    for order in orders:
        units = _accumulate(in_order(board.purse, order), asked)
        if units is not None and (best is None or _cost(board, units) < _cost(board, best)):
            best = units
    if best is None:
        return NotFound(("steps",) if asked.left <= 0 else ("order",))
    return best[np.argsort(victims.order.take(best), kind="stable")]


def refuse_mixed(board: Board, classes: Sequence[tuple[Claim, Bools | None]]) -> Impossible | None:
    """Bounds with everybody gone: each class alone, devices by blocks, millicores, MiB."""
    usable = np.zeros(len(board.ground.rank), np.bool_)
    for claim, eligible in classes:
        here = board.ground.eligible if eligible is None else eligible & board.ground.eligible
        places = np.where(here, fitting(claim, board.devices, board.host), 0)
        no = by_nodes(claim, places, None)
        if no is not None:
            return no
        usable |= here
    whole = np.count_nonzero(board.devices >= MILLI, axis=0)[usable]
    no = _blocks([claim for claim, _ in classes if claim.size == MILLI and claim.width], whole)
    if no is not None:
        return no
    room = (np.where(usable, board.devices, 0).sum(dtype=np.int64), *board.host[:, usable].sum(1))
    for r, name in enumerate(("nodes", "cpu", "memory")):
        need = sum(claim.tasks * claim.amounts[r] for claim, _ in classes)
        if need > int(room[r]):
            return Impossible(name, int(room[r]), need)
    return None


def _blocks(claims: list[Claim], whole: Ints) -> Impossible | None:
    """Tasks of at least s devices fit only into blocks of s; a larger one fills several of them.

    Where every size divides the next, a task of s * k devices takes k blocks; else at least one,
    or as many as lie wholly within it.
    """
    for size in sorted({claim.width for claim in claims}):
        have = int((whole // size).sum())
        need = sum(claim.tasks * (claim.width // size) for claim in claims if claim.width >= size)
        if need > have:
            return Impossible("nodes", have, need)
    return None


class _Counted:
    """The caller's test, asked a limited number of times; beyond that it says no."""

    def __init__(self, fits: Fits, steps: int) -> None:
        self._fits, self.left = fits, steps

    def __call__(self, units: Ints) -> bool:
        self.left -= 1
        return self.left >= 0 and self._fits(units)


def _by_worth(board: Board) -> Ints:
    """(U,) places by cost per thousandth of a GPU, then by the order of victims."""
    victims = board.victims
    worth = victims.cost / np.maximum(board.purse.amounts[0], 1)
    places = np.empty(len(worth), np.int64)
    places[np.lexsort((victims.order, worth))] = np.arange(len(worth))
    return places


def _cost(board: Board, units: Ints) -> int:
    return int(board.victims.cost.take(units).sum())


def _accumulate(units: Ints, fits: _Counted) -> Ints | None:
    if not fits(units):
        return None
    low, high = 0, len(units)
    while low < high:
        middle = (low + high) // 2
        if fits(units[:middle]):
            high = middle
        else:
            low = middle + 1
    return _spare(units[:high], fits)


def _spare(units: Ints, fits: _Counted) -> Ints:
    """``units`` without blocks that are not needed, the latest tried first."""
    kept = units
    blocks = [(0, len(units))]
    while blocks:
        start, end = blocks.pop()
        block = units[start:end]
        rest = kept[~np.isin(kept, block)]
        if len(block) and fits(rest):
            kept = rest
        elif len(block) > 1:
            middle = (start + end) // 2
            blocks += [(start, middle), (middle, end)]
    return kept
