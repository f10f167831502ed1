"""Which waiting rows a limit or quota keeps from starting, for all rows at once."""

import numpy as np

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import Bools, Counts


def barred(cycle: Cycle, rows: Counts, *, for_ever: bool = False) -> Bools:
    """(r,) whether the first step of these rows breaks a bound of its queue or of one above.

    The same as ``Standings.barrier``: a resource that is not asked for never stands in the way.
    With ``for_ever`` as if nobody held anything.
    """
    found = np.zeros(len(rows), np.bool_)
    if not len(rows):
        return found
    waiting, table, columns = cycle.state.waiting, cycle.standings.table, cycle.columns
    left, left_fixed = table.caps, table.quotas
    if not for_ever:
        left, left_fixed = left - columns.used, left_fixed - columns.fixed
    left = _on_the_way(np.maximum(left, 0), table.parents)
    left_fixed = _on_the_way(np.maximum(left_fixed, 0), table.parents)
    found = ~waiting.within(rows, left)
    some = np.flatnonzero(waiting.fixed.take(rows))
    found[some] |= ~waiting.within(rows.take(some), left_fixed)
    return found


def _on_the_way(left: Counts, parent: Counts) -> Counts:
    """(Q, 3) the least that is left at a queue and at those above it."""
    least, above = left.copy(), parent
    while (known := above >= 0).any():
        least[known] = np.minimum(least[known], left[above[known]])
        above = np.where(known, parent.take(above), -1)
    return least
