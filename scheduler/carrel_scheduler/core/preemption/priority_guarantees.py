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
from carrel_scheduler.core.queues.rules import RuleTable
from carrel_scheduler.core.resources import Triple, added
from carrel_scheduler.core.work.tasks import Victims

SumsBelow = list[tuple[int, Triple]]
"""Priorities, ascending, and what all lower ones hold."""
NONE_GONE: Victims = (0, 0, 0, 0)
Amounts = Callable[[int], Triple]
"""Amounts by the slot of a queue."""


class QueueGuarantees:
    """What queues use and what they keep, whatever the priority, for one request and threshold.

    The sums over the children of a queue are made once, since all their victims ask for them.
    """

    __slots__ = ("_beyond", "_children", "_kept", "_table", "_used")

    def __init__(self, table: RuleTable, used: Amounts, kept: Amounts) -> None:
        """Compute nothing before a queue is asked about.

        Args:
            table: the queues.
            used: what a queue uses of what ran before this cycle.
            kept: what a queue keeps, whatever the priority.
        """
        self._table, self._used, self._kept = table, used, kept
        self._beyond: dict[int, Triple] = {}
        self._children: dict[int, Triple] = {}

    def covers(self, slot: int, gone: Sequence[int]) -> bool:
        """Whether all that a queue uses without ``gone`` is covered by what it keeps."""
        return _fits(self._used(slot), gone, self._kept(slot))

    def beyond_of_siblings(self, parent: int, child: int) -> Triple:
        """What the other children of a queue use beyond what they keep."""
        total = self._children.get(parent)
        if total is None:
            total = added(map(self._beyond_of, self._table.children[parent]))
            self._children[parent] = total
        own = self._beyond_of(child)
        return total[0] - own[0], total[1] - own[1], total[2] - own[2]

    def _beyond_of(self, slot: int) -> Triple:
        found = self._beyond.get(slot)
        if found is None:
            used, kept = self._used(slot), self._kept(slot)
            found = self._beyond[slot] = (
                max(used[0] - kept[0], 0),
                max(used[1] - kept[1], 0),
                max(used[2] - kept[2], 0),
            )
        return found


class PriorityGuarantees:
    """The lowest priority that queues keep, as of the state and the moves of a cycle."""

    def __init__(self, cycle: Cycle) -> None:
        """Compute nothing before a queue is asked about."""
        self._cycle = cycle
        self._version = -1
        self._gone: dict[tuple[int, int], Victims] = {}

    def lowest(self, side: Sequence[int], amounts: QueueGuarantees) -> int:
        """The lowest priority that is kept; ``LARGEST`` where none is.

        Args:
            side: slots of queues from right below the lowest common ancestor down to the leaf.
            amounts: of these queues and the other children of each.
        """
        if len(self._cycle.state.tasks.victims.get(side[-1], ())) < 2:
            return LARGEST
        for priority, lower in self._sums_below(side[-1]):
            if any(lower) and _is_covered(side, amounts, lower):
                return priority
        return LARGEST

    def _sums_below(self, leaf: int) -> SumsBelow:
        """The priorities of a queue's victims, ascending, and what all lower ones hold."""
        tasks, evicted = self._cycle.state.tasks, self._evicted()
        found: SumsBelow = []
        gpu = cpu = memory = 0
        for priority, there in sorted(tasks.victims.get(leaf, {}).items()):
            less = evicted.get((leaf, priority), NONE_GONE)
            if there[0] > less[0]:
                found.append((priority, (gpu, cpu, memory)))
                gpu += there[1] - less[1]
                cpu += there[2] - less[2]
                memory += there[3] - less[3]
        return found

    def _evicted(self) -> dict[tuple[int, int], Victims]:
        """The victims of this cycle so far, by slot of their queue and by priority."""
        moves = self._cycle.moves
        if self._version != moves.evicted_version:
            self._version = moves.evicted_version
            self._gone = self._cycle.state.tasks.victims_of(moves.evicted.nonzero()[0])
        return self._gone


def _is_covered(side: Sequence[int], amounts: QueueGuarantees, lower: Triple) -> bool:
    """Whether a queue without ``lower`` is covered right below the lowest common ancestor."""
    covered = amounts.covers(side[-1], lower)
    gone = lower
    for slot, child in zip(side[-2::-1], side[:0:-1], strict=True):
        if covered:
            gone = added((gone, amounts.beyond_of_siblings(slot, child)))
        covered = amounts.covers(slot, gone)
    return covered


def _fits(used: Triple, gone: Sequence[int], kept: Triple) -> bool:
    return (
        used[0] - gone[0] <= kept[0]
        and used[1] - gone[1] <= kept[1]
        and used[2] - gone[2] <= kept[2]
    )
