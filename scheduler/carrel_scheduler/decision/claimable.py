"""Which waiting rows are worth a close look by the actions that stop others.

Thousands of rows wait, few may claim anything, and for fewer still is there anything to be had.
All rows are asked at once here: may they claim at all (an upper bound of what ``claims`` and the
limits allow), and would their tasks fit if everybody who might have to give were gone
(``clearing.upper``)? What is left is tried one by one. If that is still too much for one cycle, the
most entitled rows are tried in every cycle and the others in turns.
"""

import numpy as np

from carrel_scheduler.decision.barred import barred
from carrel_scheduler.decision.clearing.board import lay_out
from carrel_scheduler.decision.clearing.bounds import upper
from carrel_scheduler.decision.clearing.claims import Budgets
from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.layers import Bools, Counts
from carrel_scheduler.decision.resources import MILLI
from carrel_scheduler.decision.victim_table import ground_of, victims_of

FEW = 16
"""So many rows are tried without asking for bounds first."""
TURN = 7919
"""A prime, so that the turns of one cycle and the next begin far apart."""


def for_reclaim(cycle: Cycle) -> Counts:
    """Numbers of rows that may take from other queues."""
    waiting, standings = cycle.state.waiting, cycle.standings
    rows = _open(cycle)
    leaf, demand = waiting.queue.take(rows), waiting.demand.take(rows, 0)
    used, fair = np.array(standings.used, np.int64), np.array(standings.fair, np.int64)
    quota = np.array(standings.quota, np.int64)
    then = used.take(leaf, 0) + demand
    entitled = _within(then, fair.take(leaf, 0))
    fixed = np.array(standings.fixed, np.int64).take(leaf, 0) + demand
    entitled &= ~waiting.fixed.take(rows) | _within(fixed, quota.take(leaf, 0))
    rows, then, leaf = rows[entitled], then[entitled], leaf[entitled]
    if len(rows) > FEW:
        beyond: Bools = np.asarray((used > quota).any(axis=1))
        may_fit = _may_fit(cycle, rows, beyond)
        rows, then, leaf = rows[may_fit], then[may_fit], leaf[may_fit]
    return _in_turns(cycle, rows, _within(then, quota.take(leaf, 0)))


def for_preempt(cycle: Cycle) -> Counts:
    """Numbers of rows that may take from lower priority in their own queue."""
    waiting = cycle.state.waiting
    rows = _open(cycle)
    lowest = np.full(len(cycle.standings.used), np.iinfo(np.int64).max, np.int64)
    for queue, counts in cycle.state.tasks.victims.items():
        lowest[queue] = min(counts)
    for uid in (*cycle.moves.started, *cycle.moves.held):
        job = cycle.state.jobs.get(uid)
        lowest[job.queue] = min(int(lowest[job.queue]), job.spec.priority)
    rows = rows[waiting.priority.take(rows) > lowest.take(waiting.queue.take(rows))]
    if len(rows) > FEW:
        own = lowest < np.iinfo(np.int64).max
        rows = rows[_may_fit(cycle, rows, own)]
    return _in_turns(cycle, rows, np.zeros(len(rows), np.bool_))


def for_consolidate(cycle: Cycle) -> Counts:
    """Numbers of rows whose first step all free room together would hold."""
    rows = _open(cycle)
    rows = rows[~barred(cycle, rows)]
    demand = cycle.state.waiting.demand.take(rows, 0)
    rows = rows[_within(demand, np.array(cycle.free_in_all(), np.int64))]
    if len(rows) > FEW:
        everybody = np.ones(len(cycle.standings.used), np.bool_)
        rows = rows[_may_fit(cycle, rows, everybody)]
    return _in_turns(cycle, rows, np.zeros(len(rows), np.bool_))


def _open(cycle: Cycle) -> Counts:
    """Numbers of the rows in use."""
    return np.flatnonzero(cycle.state.waiting.need)


def _within(amounts: Counts, bound: Counts) -> Bools:
    fits = amounts <= bound
    return np.asarray(fits[:, 0] & fits[:, 1] & fits[:, 2])


def _may_fit(cycle: Cycle, rows: Counts, giving: Bools) -> Bools:
    """(r,) whether a row's tasks would fit with all victims of these queues gone."""
    waiting, classes = cycle.state.waiting, cycle.state.classes
    victims = victims_of(cycle, giving)
    if not len(victims.rows):
        return np.zeros(len(rows), np.bool_)
    queues = len(giving)
    budgets = Budgets(
        np.full(queues, -1, np.int64), np.zeros((queues, 3), np.int64), np.ones(queues, np.bool_)
    )
    tables = upper(lay_out(ground_of(cycle, None), victims.plain(), budgets))
    distinct, place = np.unique(waiting.cls.take(rows), return_inverse=True)
    kinds = [classes.clearing_kind(cls) for cls in distinct.tolist()]
    width, size, cpu, memory = np.array(kinds, np.int64).reshape(-1, 4).T
    most = tables.tasks(width, np.minimum(size, MILLI), cpu, memory, None)
    most[size > MILLI] = np.iinfo(np.int32).max
    return np.asarray(most.take(place) >= waiting.need.take(rows))


def _in_turns(cycle: Cycle, rows: Counts, first: Bools) -> Counts:
    """The rows of this cycle: half of the places go to the most entitled, the rest in turns."""
    waiting, most = cycle.state.waiting, 2 * cycle.claims
    if len(rows) > most:
        order = np.lexsort((rows, -waiting.priority.take(rows), ~first))
        rows = rows.take(order)
        head, rest = rows[: most // 2], rows[most // 2 :]
        begin = (cycle.state.version + int(cycle.now)) * TURN % len(rest)
        rows = np.concatenate([head, np.roll(rest, -begin)[: most - most // 2]])
    return rows
