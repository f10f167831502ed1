"""Items whose units lie on several nodes: condemning a unit once pays for all its nodes.

Two greedy choices are made, places with the least further cost first: one charges a place all of a
unit, one only the unit's share of it. The better is then improved in two ways. A place whose
leaving spares much goes for one that costs less. Or a unit is spared outright: all its places
leave, and others are bought for as many; the dearest units are tried first.
"""

import numpy as np

from carrel_scheduler.core.preemption.search.claims import Ints
from carrel_scheduler.core.preemption.search.items import Items

_BATCHES = 24
_LEAVERS = 8
_WORK = 100_000
"""Improvements are tried so often that about so many units are looked at."""
_NEVER = np.iinfo(np.int64).max


def choose(items: Items, need: int, cost: Ints, swaps: int) -> Ints | None:
    """Items that gain ``need`` places, ascending; ``None`` if all together do not.

    Args:
        items: to choose from.
        need: places.
        cost: (U,) of a unit.
        swaps: at most so many of either kind of improvement are tried.
    """
    if int(items.gain.sum()) < need:
        return None
    times = np.maximum(np.bincount(items.unit, minlength=len(cost)), 1)
    swaps = min(swaps, _WORK // max(len(items.unit), 1) + 1)
    nobody = np.zeros(len(items.node), np.int64)
    choices = [_greedy(items, need, cost, nobody), _greedy(items, need, cost // times, nobody)]
    costs = [_total(items, choice, cost) for choice in choices]
    best = choices[int(np.argmin(costs))]
    if (items.gain == 1).all() and not items.later.any():
        best = _swap(items, best, cost, swaps)
        best = _without_units(items, best, cost, times, swaps)
    return np.flatnonzero(best)


def _greedy(items: Items, need: int, worth: Ints, chosen: Ints) -> Ints:
    """(I,) flags: ``chosen`` and ``need`` further places by least further worth, in batches."""
    chosen, worth = chosen.copy(), worth.copy()
    worth[items.unit.take(items.losses(np.flatnonzero(chosen)))] = 0
    missing, batch = need, max(need // _BATCHES, 1)
    while missing > 0:
        further = items.sums(worth.take(items.unit))
        ready = chosen == 0
        ready[1:] &= ~items.later[1:] | (chosen[:-1] > 0)
        candidates = np.flatnonzero(ready)
        key = further.take(candidates) / items.gain.take(candidates)
        order = candidates[np.lexsort((items.tie.take(candidates), key))]
        order = order[: min(batch, missing)]
        gained = np.cumsum(items.gain.take(order))
        order = order[: int(np.searchsorted(gained, missing)) + 1]
        chosen[order] = 1
        worth[items.unit.take(items.losses(np.sort(order)))] = 0
        missing -= int(items.gain.take(order).sum())
    return chosen


def _total(items: Items, chosen: Ints, cost: Ints) -> int:
    return int(cost.take(items.units(np.flatnonzero(chosen))).sum())


def _uses(items: Items, chosen: Ints, count: int) -> Ints:
    """(U,) how many chosen places need each unit."""
    units = items.unit.take(items.losses(np.flatnonzero(chosen)))
    return np.bincount(units, minlength=count)


def _swap(items: Items, chosen: Ints, cost: Ints, swaps: int) -> Ints:
    """Exchange one place for another while that wins something."""
    chosen, uses = chosen.copy(), _uses(items, chosen, len(cost))
    for _ in range(swaps):
        saves = np.where(chosen > 0, items.sums(np.where(uses == 1, cost, 0)[items.unit]), -1)
        best = (0, -1, -1)
        for leaver in np.argsort(-saves, kind="stable")[:_LEAVERS].tolist():
            if not chosen[leaver]:
                break
            left = uses.copy()
            left[items.unit[items.start[leaver] : items.start[leaver + 1]]] -= 1
            further = items.sums(np.where(left == 0, cost, 0).take(items.unit))
            comer = int(np.argmin(np.where(chosen > 0, _NEVER, further)))
            if not chosen[comer]:
                best = max(best, (int(saves[leaver] - further[comer]), leaver, comer))
        if best[0] <= 0:
            break
        chosen[best[1]], chosen[best[2]] = 0, 1
        uses = _uses(items, chosen, len(cost))
    return chosen


def _without_units(items: Items, chosen: Ints, cost: Ints, times: Ints, tries: int) -> Ints:
    """Spare one unit after another where other places cost less than it."""
    total = _total(items, chosen, cost)
    owner = np.repeat(np.arange(len(items.node)), np.diff(items.start))
    tried = np.zeros(len(cost), np.bool_)
    dear = int(cost.sum()) + 1
    for _ in range(tries):
        units = items.units(np.flatnonzero(chosen))
        units = units[~tried.take(units)]
        if not len(units):
            break
        unit = int(units[np.argmax(cost.take(units))])
        tried[unit] = True
        rest = chosen.copy()
        rest[owner[items.unit == unit]] = 0
        missing = int(chosen.sum() - rest.sum())
        for worth in (cost.copy(), cost // times):
            worth[unit] = dear
            other = _greedy(items, missing, worth, rest)
            if (less := _total(items, other, cost)) < total:
                chosen, total = other, less
    return chosen
