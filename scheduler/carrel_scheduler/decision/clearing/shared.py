"""Items whose units lie on several nodes: condemning a unit once pays for all its nodes.

Two greedy choices are made, places with the least further cost first: one charges a place all of a
unit, one only the unit's share of it. The better is then improved by single swaps: the place whose
leaving spares most goes for the one that costs least, until nothing is won.
"""

import numpy as np

from carrel_scheduler.decision.clearing.claims import Ints
from carrel_scheduler.decision.clearing.items import Items

_BATCHES = 24
_NEVER = np.iinfo(np.int64).max


def choose(items: Items, need: int, cost: Ints, swaps: int) -> Ints | None:
    """Items that gain ``need`` places, ascending; ``None`` if all together do not.

    Args:
        items: to choose from.
        need: places.
        cost: (U,) of a unit.
        swaps: at most so many.
    """
    if int(items.gain.sum()) < need:
        return None
    times = np.maximum(np.bincount(items.unit, minlength=len(cost)), 1)
    choices = [_greedy(items, need, cost), _greedy(items, need, cost // times)]
    costs = [_total(items, choice, cost) for choice in choices]
    best = choices[int(np.argmin(costs))]
    if (items.gain == 1).all() and not items.later.any():
        best = _swap(items, best, cost, swaps)
    return np.flatnonzero(best)


def _greedy(items: Items, need: int, worth: Ints) -> Ints:
    """(I,) flags of a choice by least further worth per place, in batches."""
    chosen = np.zeros(len(items.node), np.int64)
    worth = worth.copy()
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


def _swap(items: Items, chosen: Ints, cost: Ints, swaps: int) -> Ints:
    chosen = chosen.copy()
    uses = np.bincount(items.unit, weights=np.repeat(chosen, np.diff(items.start)),
                       minlength=len(cost)).astype(np.int64)  # fmt: skip
    for _ in range(swaps):
        saves = items.sums(np.where(uses == 1, cost, 0).take(items.unit))
        leaver = int(np.argmax(np.where(chosen > 0, saves, -1)))
        units = items.unit[items.start[leaver] : items.start[leaver + 1]]
        uses[units] -= 1
        further = items.sums(np.where(uses == 0, cost, 0).take(items.unit))
        comer = int(np.argmin(np.where(chosen > 0, _NEVER, further)))
        if chosen[comer] or further[comer] >= saves[leaver]:
            break
        chosen[leaver], chosen[comer] = 0, 1
        uses[items.unit[items.start[comer] : items.start[comer + 1]]] += 1
    return chosen
