"""Which waiting rows are worth a close look by the actions that stop others.

Thousands of rows wait, few may claim anything, and for fewer still is there anything to be had.
All rows are asked at once here whether they may claim at all: an upper bound of what ``claims`` and
the limits allow. What is left is offered one by one. Where that is too much for one cycle, the most
entitled rows are offered in every cycle and the others in turns.
"""

import numpy as np

from carrel_scheduler.core.barred import barred
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import LARGEST, Bools, Counts
from carrel_scheduler.core.starving import held_back

LOOKS = 24
"""At least so many rows are offered in a cycle."""
TURN = 7919
"""A prime, so that the turns of one cycle and the next begin far apart."""


def for_reclaim(cycle: Cycle) -> Counts:
    """Numbers of rows that may take from other queues."""
    waiting = cycle.state.waiting
    rows = waiting.used()
    columns, quota = cycle.columns, cycle.standings.table.quotas
    rows = rows.compress(waiting.within(rows, columns.fair - columns.used))
    to_be_had = (columns.used > columns.kept).any(axis=0)
    asked = waiting.demand.take(rows, 0) > 0
    rows = rows.compress((asked & to_be_had).any(axis=1))
    allowed = ~waiting.fixed.take(rows)
    allowed |= waiting.within(rows, quota - columns.fixed)
    rows = rows.compress(allowed)
    rows = rows.compress(~held_back(cycle, rows))
    return _in_turns(cycle, rows, waiting.within(rows, quota - columns.used))


def for_preempt(cycle: Cycle) -> Counts:
    """Numbers of rows that may take from lower priority in their own queue."""
    waiting = cycle.state.waiting
    rows = cycle.state.waiting.used()
    lowest = np.full(len(cycle.standings.used), LARGEST, np.int64)
    for queue, counts in cycle.state.tasks.victims.items():
        lowest[queue] = min(counts)
    for uid in (*cycle.moves.started, *cycle.moves.held):
        job = cycle.state.jobs.get(uid)
        lowest[job.queue] = min(int(lowest[job.queue]), job.spec.priority)
    rows = rows[waiting.priority.take(rows) > lowest.take(waiting.queue.take(rows))]
    return _in_turns(cycle, rows, np.zeros(len(rows), np.bool_))


def for_consolidate(cycle: Cycle) -> Counts:
    """Numbers of rows whose first step all free room together would hold."""
    rows, waiting = cycle.state.waiting.used(), cycle.state.waiting
    for demand, free in zip(waiting.demand.T, cycle.free_in_all(), strict=True):
        rows = rows.compress(demand.take(rows) <= free)
    rows = rows.compress(~barred(cycle, rows))
    return _in_turns(cycle, rows, np.zeros(len(rows), np.bool_))


def _in_turns(cycle: Cycle, rows: Counts, first: Bools) -> Counts:
    """The rows of this cycle: half of the places go to the most entitled, the rest in turns."""
    waiting, most = cycle.state.waiting, max(LOOKS, 2 * cycle.claims)
    if len(rows) > most:
        order = np.lexsort((rows, -waiting.priority.take(rows), ~first))
        rows = rows.take(order)
        head, rest = rows[: most // 2], rows[most // 2 :]
        begin = (cycle.state.version + int(cycle.now)) * TURN % len(rest)
        rows = np.concatenate([head, np.roll(rest, -begin)[: most - most // 2]])
    return rows
