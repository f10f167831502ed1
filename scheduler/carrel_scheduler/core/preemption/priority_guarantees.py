"""Work that a queue keeps by its priority when others reclaim.

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

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.layers import LARGEST
from carrel_scheduler.core.queues.rules import RESOURCES, RuleTable
from carrel_scheduler.core.resources import Triple
from carrel_scheduler.core.work.tasks import Victims

SumsBelow = list[tuple[int, Triple]]
"""Priorities, ascending, and what all lower ones hold."""
NONE_GONE: Victims = (0, 0, 0, 0)
Amounts = Callable[[int], Triple]
"""Amounts by the slot of a queue."""


class PriorityGuarantees:
    """The lowest priority that queues keep, as of the state and the moves of a cycle."""

    def __init__(self, cycle: Cycle) -> None:
        """Compute nothing before a queue is asked about."""
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
        tasks, evicted = self._cycle.state.tasks, self._cycle.moves.evicted.nonzero()[0]
        gone: dict[tuple[int, int], Victims] = {}
        if len(evicted):
            gone = tasks.victims_of(evicted.compress(tasks.victim.take(evicted) == leaf))
        found: SumsBelow = []
        gpu = cpu = memory = 0
        for priority, there in sorted(tasks.victims.get(leaf, {}).items()):
            less = gone.get((leaf, priority), NONE_GONE)
            if there[0] > less[0]:
                found.append((priority, (gpu, cpu, memory)))
                gpu += there[1] - less[1]
                cpu += there[2] - less[2]
                memory += there[3] - less[3]
        return found


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
