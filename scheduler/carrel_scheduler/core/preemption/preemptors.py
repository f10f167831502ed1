"""The preemptors, and the loop of the four actions that evict for them.

Thousands of rows wait, few may reclaim or preempt, and for fewer still are there victims. All rows
are asked at once whether they may at all, by an upper bound of what ``legality`` and the limits
allow. What is left is offered one by one, in the order of service (``cycle/offers``): a ``Rule``
finds victims, unless the same search failed before and nothing has changed since. Where that is too
much for one cycle, the rows with most right to capacity are offered in every cycle and the others
in turns. A question about one workload is its turn: what others might reclaim changes its answer
only by the capacity that is left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Find, OfferResult, unless_failed_before
from carrel_scheduler.core.cycle.offers import Offers
from carrel_scheduler.core.cycle.starvation import held_back
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.preemption.group_quotas import with_headroom
from carrel_scheduler.core.work.jobs import JobInfo

LOOKS = 24
"""The least number of rows that are offered in a cycle."""
FEW = 2
"""The rows for which victims of both rules are sought, unless there are few victims."""
COMBINING = 4
"""Searches with both rules, and for other places, come in turns of so many cycles where there is
much to look at: for the most entitled row, other places, another row, nothing."""
SEARCH_BUDGET = 3_000
"""Tasks in the cluster times failed searches: so many of an action in one cycle.

A search takes about a millisecond in the smallest cluster and a few in the largest, so the budget
keeps a cycle of 100 nodes as short as one of 4,000; who is not reached has its turn in a later one.
"""
SERVED_BUDGET = 200_000
"""The same for searches that succeed. It is larger, since each of them starts a workload."""
PREEMPTOR_BUDGET = 60_000
PREEMPTOR_FIXED = 30_000
"""The same for preemptors of all actions together: what one costs grows from a fixed part.

Not in a small cluster with a short queue, and not for moves, which evict nobody for good.
"""
TURN = 7919
"""A prime, so that the turns of one cycle and the next begin far apart."""


def for_reclaim(cycle: Cycle) -> Counts:
    """Numbers of the rows that may take from other queues."""
    waiting, rows = cycle.state.waiting, _looked_at(cycle)
    columns, quota = cycle.queue_columns, cycle.queue_usage.table.quotas
    rows = rows.compress(waiting.within(rows, columns.fair - columns.used))
    to_be_had = (columns.used > columns.kept).any(axis=0)
    wanted = waiting.demand[to_be_had].max(axis=0, initial=0)
    rows = rows.compress(wanted.take(rows) > 0)
    allowed = ~waiting.fixed.take(rows)
    allowed |= waiting.within(rows, quota - columns.fixed)
    rows = rows.compress(allowed)
    rows = _in_their_turn(cycle, rows)
    return _in_turns(cycle, rows, waiting.within(rows, quota - columns.used))


def for_reclaim_in_group(cycle: Cycle) -> Counts:
    """Numbers of rows that may take from other queues by a quota in a group of nodes.

    Limits of the queues above are not looked at: victims may lie below them as well.
    """
    waiting, columns = cycle.state.waiting, cycle.queue_columns
    rows = with_headroom(cycle, _looked_at(cycle))
    left = np.maximum(cycle.queue_usage.table.caps - columns.used, 0)
    allowed = ~waiting.fixed.take(rows) | waiting.within(rows, columns.left(fixed=True))
    rows = rows.compress(allowed & waiting.within(rows, left))
    rows = _in_their_turn(cycle, rows)
    return _in_turns(cycle, rows, np.ones(len(rows), np.bool_))


def for_preempt(cycle: Cycle) -> Counts:
    """Numbers of the rows that may preempt lower priorities in their own queue."""
    rows = _above_some(cycle, _looked_at(cycle))
    return _in_turns(cycle, rows, np.zeros(len(rows), np.bool_))


def for_combine(cycle: Cycle) -> Counts:
    """Numbers of rows that may take from lower priority in their own queue and from others too.

    Their queue is within its fair share, and stays so if all of its own is evicted.
    """
    waiting, columns = cycle.state.waiting, cycle.queue_columns
    to_be_had = (columns.used > columns.kept).any(axis=0)
    if not to_be_had.any():
        return _looked_at(cycle)[:0]
    rows = _above_some(cycle, _looked_at(cycle))
    within = (columns.used <= columns.fair).all(axis=1)
    rows = rows.compress(within.take(waiting.queue.take(rows)))
    if not len(rows):
        return rows
    rows = rows.compress(waiting.within(rows, columns.fair))
    wanted = waiting.demand[to_be_had].max(axis=0, initial=0)
    rows = rows.compress(wanted.take(rows) > 0)
    quota = cycle.queue_usage.table.quotas
    allowed = ~waiting.fixed.take(rows) | waiting.within(rows, quota - columns.fixed)
    rows = rows.compress(allowed)
    rows = _in_their_turn(cycle, rows)
    first = waiting.within(rows, quota)
    if cycle.is_small:
        return _in_turns(cycle, rows, first)
    if cycle.looks_at_all(1):
        return _in_turns(cycle, rows, first, FEW)
    both = _in_turns(cycle, rows, first, FEW, _round(cycle))
    return both[:1] if _turn(cycle) == 0 else both[-1:]


def _in_their_turn(cycle: Cycle, rows: Counts) -> Counts:
    """The rows without those that wait for a starving one, or came too lately to reclaim."""
    waiting, delay = cycle.state.waiting, cycle.settings.reclaim_delay_s
    if len(cycle.late):
        rows = rows.compress(~held_back(cycle, rows))
    if delay > 0:
        late: Bools = waiting.since.take(rows) + delay > cycle.now
        rows = rows.compress(~late | waiting.fixed.take(rows))
    return rows


def singles(cycle: Cycle) -> list[JobInfo]:
    """Jobs outside the waiting rows that may have others evicted."""
    jobs, only = cycle.open_singles(), _whose_turn(cycle)
    return jobs if only is None else [job for job in jobs if job is only]


def combines(cycle: Cycle) -> bool:
    """Whether both rules are tried together in this cycle: always, or in turns where much waits.

    Free capacity changes there all the time, and few of many searches find victims. A cycle in
    which one of the rules alone served somebody has done enough.
    """
    if cycle.looks_at_all(1) or cycle.asked is not None:
        return True
    return _turn(cycle) in {0, COMBINING // 2} and not cycle.moves.preemptors()


def replaces(cycle: Cycle) -> bool:
    """Whether other places are sought for reservations: always, or in turns where much waits.

    Not in the cycles in which both rules are tried together.
    """
    return cycle.looks_at_all(1) or cycle.asked is not None or _turn(cycle) == 1


def reservations_in_turn(cycle: Cycle, jobs: Sequence[JobInfo]) -> Sequence[JobInfo]:
    """Of workloads with reservations, those for which other places are sought in this cycle.

    Where much waits one of them in turn, as each costs several searches; of a question only the
    workload that it is about.
    """
    if cycle.looks_at_all(1):
        return jobs
    if cycle.asked is not None:
        return [job for job in jobs if job is cycle.asked]
    turn = _round(cycle) % max(len(jobs), 1)
    return jobs[turn : turn + 1]


def _cycles(cycle: Cycle) -> int:
    """A number that grows from one cycle to the next."""
    return cycle.state.version + int(cycle.now)


def _round(cycle: Cycle) -> int:
    return _cycles(cycle) // COMBINING


def _turn(cycle: Cycle) -> int:
    return _cycles(cycle) % COMBINING


def _whose_turn(cycle: Cycle) -> JobInfo | None:
    """The workload that a question is about, where not all can be looked at; ``None``: all are."""
    return None if cycle.looks_at_all(1) else cycle.asked


def _looked_at(cycle: Cycle) -> Counts:
    """Numbers of the rows that this action looks at in this cycle."""
    only = _whose_turn(cycle)
    if only is None:
        return cycle.state.waiting.used()
    return np.array([] if only.waiting is None else [only.waiting.id], np.int64)


def _above_some(cycle: Cycle, rows: Counts) -> Counts:
    """The rows of higher priority than something in their queue that may be stopped."""
    waiting = cycle.state.waiting
    lowest = cycle.lowest
    return rows[waiting.priority.take(rows) > lowest.take(waiting.queue.take(rows))]


def for_consolidate(cycle: Cycle) -> Counts:
    """Numbers of the rows whose first step would fit into all free capacity together."""
    rows, waiting, columns = _looked_at(cycle), cycle.state.waiting, cycle.queue_columns
    for demand, free in zip(waiting.demand, cycle.free_in_all(), strict=True):
        rows = rows.compress(demand.take(rows) <= free)
    rows = rows.compress(~waiting.over_limit(rows, columns))
    return _in_turns(cycle, rows, np.zeros(len(rows), np.bool_))


def _in_turns(
    cycle: Cycle,
    rows: Counts,
    first: Bools,
    most: int | None = None,
    turn: int | None = None,
) -> Counts:
    """The rows of this cycle: half of the places go to the most entitled, the rest in turns.

    Args:
        cycle: is being decided.
        rows: numbers of the rows that may ask.
        first: (len(rows),) those that come before all others.
        most: the number of places.
        turn: counts the cycles in which rows are taken like this; ``None``: all of them.
    """
    waiting = cycle.state.waiting
    if most is None:
        most = max(LOOKS, 2 * most_failed_searches(cycle))
    if turn is None:
        turn = _cycles(cycle)
    if len(rows) > most:
        priority, width = waiting.priority.take(rows), len(waiting.rows)
        below = int(priority.max()) - priority
        below += (int(below.max()) + 1) * ~first
        rows = np.sort(below * width + rows) % width
        head, rest = rows[: most // 2], rows[most // 2 :]
        begin = turn * TURN % len(rest)
        rows = np.concatenate([head, np.roll(rest, -begin)[: most - most // 2]])
    return rows


def most_failed_searches(cycle: Cycle) -> int:
    """The number of failed searches after which an evicting action ends for this cycle."""
    return max(1, min(cycle.settings.claims_per_cycle, SEARCH_BUDGET // _tasks(cycle)))


def most_served(cycle: Cycle) -> int:
    """The number of workloads for which an evicting action frees capacity in one cycle."""
    return max(1, SERVED_BUDGET // _tasks(cycle))


def most_preemptors(cycle: Cycle) -> int:
    """The number of further preemptors of an action in this cycle, at least one."""
    if cycle.looks_at_all(1):
        return most_served(cycle)
    most = PREEMPTOR_BUDGET // (_tasks(cycle) + PREEMPTOR_FIXED)
    return max(1, most - len(cycle.moves.preemptors()))


def _tasks(cycle: Cycle) -> int:
    """The number of tasks that are placed, or start in this cycle; at least one."""
    return max(1, cycle.state.tasks.count + len(cycle.moves.started))


Step = tuple[int, ...]


def not_delayed(cycle: Cycle, job: JobInfo, _step: Step) -> OfferResult | None:
    """Refuse a job whose preemption delay has not passed."""
    return OfferResult.NOT_THIS if cycle.delayed(job) else None


def not_delayed_reclaim(cycle: Cycle, job: JobInfo, _step: Step) -> OfferResult | None:
    """Refuse a job whose preemption delay or reclaim delay has not passed."""
    return OfferResult.NOT_THIS if cycle.delayed(job, reclaiming=True) else None


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of an action.

    Attributes:
        name: of the action, and of its searches in the failed-search cache.
        rows: numbers of the waiting rows that may ask.
        find: frees capacity for a step of a job; leaves no trace where it finds none.
        refuses: the answer to who may not ask now; ``None``: it may.
        singles: jobs that stand in no row and may ask.
        most: after so many failed offers the action ends, given the number of rows.
        served: and after so many that were served.
    """

    name: str
    rows: Callable[[Cycle], Counts]
    find: Find
    refuses: Callable[[Cycle, JobInfo, Step], OfferResult | None] = not_delayed
    singles: Callable[[Cycle], list[JobInfo]] = singles
    most: Callable[[Cycle, int], int] = lambda cycle, _: most_failed_searches(cycle)
    served: Callable[[Cycle], int] = most_preemptors

    def run(self, cycle: Cycle) -> None:
        """Free capacity for the preemptors, in the order of service."""
        rows, singles = self.rows(cycle), self.singles(cycle)
        if not (len(rows) or singles):
            return
        Offers(cycle, rows, singles).run(
            lambda job, step: self.attempt(cycle, job, step),
            touches_all=True,
            most=self.most(cycle, len(rows)),
            served=self.served(cycle),
        )

    def attempt(self, cycle: Cycle, job: JobInfo, step: Step) -> OfferResult:
        """Free capacity for a step of a job, if the job may have others evicted now."""
        refused = self.refuses(cycle, job, step)
        if refused is not None:
            return refused
        return unless_failed_before(cycle, self.name, job, step, self.find)
