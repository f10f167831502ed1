"""Which waiting rows a limit or quota keeps from starting, for all rows at once."""

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.layers import Bools, Counts


def barred(cycle: Cycle, rows: Counts, *, for_ever: bool = False) -> Bools:
    """(r,) whether the first step of these rows breaks a bound of its queue or of one above.

    The same as ``Standings.barrier``: a resource that is not asked for never stands in the way.
    With ``for_ever`` as if nobody held anything.
    """
    if not len(rows):
        return np.zeros(0, np.bool_)
    waiting, table, columns = cycle.state.waiting, cycle.standings.table, cycle.columns
    left = table.caps if for_ever else table.caps - columns.used
    found = ~waiting.within(rows, table.tree.least_on_paths(np.maximum(left, 0)))
    some = waiting.fixed.take(rows).nonzero()[0]
    if len(some):
        left = table.quotas if for_ever else table.quotas - columns.fixed
        left = table.tree.least_on_paths(np.maximum(left, 0))
        found[some] |= ~waiting.within(rows.take(some), left)
    return found
