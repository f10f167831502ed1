"""Victims strictly in order: used where no eviction loses more than another.

Units are taken in the order of victims, each while its queues still exceed what they keep, until
the request fits; the shortest such beginning is found by halving.
"""

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.search.budgets import UnitBudgets
from carrel_scheduler.core.preemption.search.model import GangRequest, Layout, fitting


def first_in_order(request: GangRequest, layout: Layout) -> Counts | None:
    """The fewest of the legal units in their order that suffice; ``None`` if all do not."""
    units = _legal_in_order(layout.budgets, layout.candidates.order)
    place = np.full(len(layout.candidates.cost), len(units), np.int64)
    place[units] = np.arange(len(units))
    rows, eligible = layout.rows, layout.free.eligible
    when = place.take(layout.units_of(rows))

    def enough(count: int) -> bool:
        fits = fitting(request, *layout.free_without(rows[when < count]))
        return int(np.minimum(fits * eligible, request.tasks).sum()) >= request.tasks

    low, high = 0, len(units)
    if not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return units[:high]


def _legal_in_order(budgets: UnitBudgets, order: Counts) -> Counts:
    """Live units by ``order`` (U,), without those that come when their queue may lose no more."""
    units = _sorted_by(order)
    units = units[budgets.live.take(units)]
    for level in [*budgets.tree.below, np.flatnonzero(budgets.tree.parent < 0)]:
        guarded = np.zeros(budgets.tree.size, np.bool_)
        guarded[level] = ~budgets.budgets.open[level]
        units = units[_while_over(budgets, units, guarded)]
    return units


def _sorted_by(order: Counts) -> Counts:
    """Indices in the order of ``order``, whose values are distinct."""
    count = len(order)
    if not count or int(order.min()) < 0 or int(order.max()) >= 4 * count:
        return np.argsort(order, kind="stable")
    slots = np.full(int(order.max()) + 1, -1)
    slots[order] = np.arange(count)
    return slots if len(slots) == count else slots[slots >= 0]


def _while_over(budgets: UnitBudgets, units: Counts, guarded: Bools) -> Bools:
    """(len(units),) whether the sum before each unit is below the excess of its guarded queue."""
    index = np.where(guarded, np.arange(budgets.tree.size), -1)
    above = budgets.tree.parent
    while (above >= 0).any():
        here = (above >= 0) & guarded.take(above, mode="clip")
        index = np.where(here, above, index)
        above = np.where(above >= 0, budgets.tree.parent.take(above, mode="clip"), -1)
    queue = index.take(budgets.queue.take(units))
    fine = queue < 0
    if fine.all():
        return fine
    by_queue = np.argsort(queue.astype(np.int16) if len(index) < 32768 else queue, kind="stable")
    sorted_queue = queue.take(by_queue)
    if not len(units):
        return fine
    first = np.flatnonzero(np.append(True, sorted_queue[1:] != sorted_queue[:-1]))
    lengths = np.diff(np.append(first, len(units)))
    for r in budgets.relevant:
        amount = budgets.amounts(r).take(units).take(by_queue)
        sums = np.cumsum(amount) - amount
        before = sums - np.repeat(sums.take(first), lengths)
        excess = budgets.budgets.excess[:, r].take(sorted_queue, mode="clip")
        fine[by_queue] |= before < excess
    return fine
