"""Which waiting rows a limit or quota keeps from starting, for all rows at once."""

import numpy as np

from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.layers import Bools, Counts


def barred(cycle: Cycle, rows: Counts, *, for_ever: bool = False) -> Bools:
    """(r,) whether the first step of these rows breaks a bound of its queue or of one above.

    The same as ``Standings.barrier``: a resource that is not asked for never stands in the way.
    With ``for_ever`` as if nobody held anything.
    """
    found = np.zeros(len(rows), np.bool_)
    if not len(rows):
        return found
    waiting, standings = cycle.state.waiting, cycle.standings
    used, cap = np.array(standings.used, np.int64), np.array(standings.cap, np.int64)
    fixed, quota = np.array(standings.fixed, np.int64), np.array(standings.quota, np.int64)
    if for_ever:
        used, fixed = np.zeros_like(used), np.zeros_like(fixed)
    parent = np.array(standings.table.parent, np.int64)
    left = np.where(cap > used, cap - used, 0)
    left_fixed = np.where(quota > fixed, quota - fixed, 0)
    demand, queue = waiting.demand.take(rows, 0), waiting.queue.take(rows)
    is_fixed = waiting.fixed.take(rows)
    above = np.ones(len(rows), np.bool_)
    while above.any():
        over = demand > left.take(queue, 0)
        beyond = (demand > left_fixed.take(queue, 0)) & is_fixed[:, None]
        broken = over | beyond
        found |= above & (broken[:, 0] | broken[:, 1] | broken[:, 2])
        queue = np.where(above, parent.take(queue), -1)
        above = queue >= 0
    return found
