"""Which work a queue keeps by its priority when others reclaim.

A queue beyond what it keeps (its quota, or its fair share, see ``legality``) has to lose work, but
of the lowest priority first. What is covered when it is counted from the highest priority down is
kept: the queue could evict its lower priority itself, and reclaim that capacity with the same right
as the preemptor. So the preemptor does not take it, even where only that work lies on a node of
use to it. Otherwise both would take that node from one another for ever.

Of a victim's queue all work of strictly lower priority that may be evicted counts as gone. Where
the rest is covered by what that queue keeps, what its siblings use beyond what they keep counts as
gone too, one level further up; and so on to the queue right below the lowest common ancestor. Work
whose queue is then covered there is kept. Something can always be taken of a queue beyond what it
keeps: for the lowest priority of a queue that is beyond it itself, nothing counts as gone.
"""

from collections.abc import Callable, Sequence

import numpy as np

from carrel_scheduler.core.cycle.cycle import Cycle, SumsBelow
from carrel_scheduler.core.layers import LARGEST, Counts
from carrel_scheduler.core.queues.rules import RESOURCES, RuleTable
from carrel_scheduler.core.resources import Triple

Amounts = Callable[[int], Triple]
"""By the slot of a queue."""


class PriorityGuarantees:
    """The lowest priority that queues keep, as of the state and the moves of a cycle."""

    def __init__(self, cycle: Cycle) -> None:
        """Nothing is computed before a queue is asked about."""
        self._cycle = cycle

    def lowest(self, table: RuleTable, side: Sequence[int], used: Amounts, kept: Amounts) -> int:
        """The lowest priority that is kept; ``LARGEST`` where none is.

        Args:
            table: the queues.
            side: slots of queues from right below the lowest common ancestor down to the leaf.
            used: what a queue uses of what ran before this cycle.
            kept: what a queue keeps, whatever the priority.
        """
        if len(self._cycle.state.tasks.victims.get(side[-1], ())) < 2:
            return LARGEST
        for priority, lower in self._sums_below(side[-1]):
            if any(lower) and _is_covered(table, side, used, kept, lower):
                return priority
        return LARGEST

    def _sums_below(self, leaf: int) -> SumsBelow:
        """The priorities of a queue's victims, ascending, and what all lower ones hold."""
        cycle = self._cycle
        known = cycle.victims_by_priority.get(leaf)
        if known is None:
            rows = np.flatnonzero(cycle.state.tasks.victim == leaf)
            known = cycle.victims_by_priority[leaf] = rows, self._sums_of(rows)
        rows, sums = known
        gone = cycle.moves.evicted.take(rows)
        return self._sums_of(rows.compress(~gone)) if gone.any() else sums

    def _sums_of(self, rows: Counts) -> SumsBelow:
        """The priorities of these tasks, ascending, and what all lower ones hold."""
        tasks = self._cycle.state.tasks
        kinds, which = np.unique(tasks.priority.take(rows), return_inverse=True)
        held = (tasks.gpu_of(rows), tasks.host[0].take(rows), tasks.host[1].take(rows))
        sums = [np.bincount(which, amounts, len(kinds)).astype(np.int64) for amounts in held]
        below = [(amounts.cumsum() - amounts).tolist() for amounts in sums]
        return list(zip(kinds.tolist(), zip(*below, strict=True), strict=True))


def _is_covered(
    table: RuleTable, side: Sequence[int], used: Amounts, kept: Amounts, lower: Triple
) -> bool:
    """Whether a queue without ``lower`` is covered right below the lowest common ancestor."""
    covered = _fits(used(side[-1]), lower, kept(side[-1]))
    gone = list(lower)
    for slot, child in zip(side[-2::-1], side[:0:-1], strict=True):
        if covered:
            for sibling in table.children[slot]:
                if sibling != child:
                    uses, keeps = used(sibling), kept(sibling)
                    for r in RESOURCES:
                        gone[r] += max(uses[r] - keeps[r], 0)
        covered = _fits(used(slot), gone, kept(slot))
    return covered


def _fits(used: Triple, gone: Sequence[int], kept: Triple) -> bool:
    return (
        used[0] - gone[0] <= kept[0]
        and used[1] - gone[1] <= kept[1]
        and used[2] - gone[2] <= kept[2]
    )
