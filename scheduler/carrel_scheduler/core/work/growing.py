"""What of a workload starts next: its minimum as a whole, then its surplus step by step.

Below the minimum everything that is missing is one step, so a gang starts as a whole or not at all.
Above it one surplus task, one doubling, or one more group with its own minimum is a step, so that
growing workloads take turns. A step that cannot be whole is not offered; a group that waits for
gated tasks is passed over for one that can start.

A task that succeeded counts towards the minimum: nobody waits for a place that it will not need.
"""

from collections.abc import Sequence

from carrel_scheduler.core.work.structures import LeafState, Part, Structure, Tally

Step = tuple[tuple[int, ...], ...]
"""Task indices per leaf; the empty tuple where there is no step."""


def satisfied(structure: Structure, active: Sequence[int]) -> bool:
    """Whether the minima are met by so many tasks in each leaf."""
    if structure.single is not None:
        return active[0] >= structure.single.least
    return Tally(structure, active).met[0]


def ready(structure: Structure, states: Sequence[LeafState]) -> bool:
    """Whether the minima can be met by what runs and what may start; releasing tasks do not count.

    They do again once they have been released and wait.
    """
    if (leaf := structure.single) is not None:
        return states[0].there + len(states[0].pending) >= leaf.least
    return _possible(structure, states).met[0]


def next_step(structure: Structure, states: Sequence[LeafState]) -> Step:
    """The pending tasks that are offered a place next.

    Args:
        structure: of the workload.
        states: one for each leaf.

    Returns:
        Per leaf the indices of tasks; empty when nothing is to be offered.
    """
    if (leaf := structure.single) is not None:
        state = states[0]
        size = _leaf_step(leaf, len(state.running) + state.succeeded)
        waiting = state.pending
        if size == len(waiting):
            return (waiting,) if size else ()
        return (waiting[:size],) if 0 < size < len(waiting) else ()
    return _Steps(structure, states).next()


def first_step(structure: Structure) -> tuple[int, ...]:
    """The tasks with which a fresh workload starts when none of them is gated."""
    states: list[LeafState] = []
    index = 0
    for leaf in structure.leaves:
        states.append(LeafState(pending=tuple(range(index, index + leaf.size))))
        index += leaf.size
    return tuple(task for tasks in next_step(structure, states) for task in tasks)


def next_size(there: int, least: int) -> int:
    """The smallest size above ``there`` in the doublings of a minimum."""
    size = max(least, 1)
    while size <= there:
        size *= 2
    return size


def _leaf_step(leaf: Part, there: int) -> int:
    """How many tasks the next step of a leaf takes, whether or not so many wait."""
    if there < leaf.least:
        return leaf.least - there
    return next_size(there, leaf.least) - there if leaf.doubles else 1


def _possible(structure: Structure, states: Sequence[LeafState]) -> Tally:
    """What would be met if everything that waits started."""
    return Tally(structure, [state.there + len(state.pending) for state in states])


class _Steps:
    """The search for the next step in a tree."""

    def __init__(self, structure: Structure, states: Sequence[LeafState]) -> None:
        self._parts = structure.parts
        self._states = states
        self._tally = Tally(structure, [state.there for state in states])
        self._possible = _possible(structure, states).met
        self._taken: dict[int, tuple[int, ...]] = {}

    def next(self) -> Step:
        """See ``next_step``."""
        root = self._parts[0]
        if self._tally.met[0]:
            self._grow(root)
        elif self._possible[0]:
            self._complete(root)
        if not self._taken:
            return ()
        return tuple(self._taken.get(leaf, ()) for leaf in range(len(self._states)))

    def _complete(self, part: Part) -> None:
        """Take all that is missing in a group that can be completed."""
        if part.leaf >= 0:
            self._take(part)
            return
        missing = part.least - self._tally.there[part.number]
        unmet = [child for child in self._served(part) if not self._tally.met[child.number]]
        for child in [child for child in unmet if self._possible[child.number]][:missing]:
            self._complete(child)

    def _grow(self, part: Part) -> bool:
        """Take one step of surplus in a satisfied group; whether there is one."""
        if part.leaf >= 0:
            return self._take(part)
        for child in self._served(part):
            if self._tally.met[child.number]:
                if self._grow(child):
                    return True
            elif self._possible[child.number]:
                self._complete(child)
                return True
        return False

    def _take(self, part: Part) -> bool:
        """Take the next step of a leaf, if it is whole."""
        waiting = self._states[part.leaf].pending
        size = _leaf_step(part, self._tally.there[part.number])
        if size <= len(waiting):
            self._taken[part.leaf] = waiting[:size]
            return True
        return False

    def _served(self, part: Part) -> list[Part]:
        return sorted((self._parts[child] for child in part.children), key=self._tally.rank)
