"""The steps in which a gang starts, grows and shrinks.

All functions are pure: they take a ``Structure`` (the tree of groups, prepared once for equal
workloads) and one ``LeafState`` per leaf. Nearly all workloads are one leaf
(``Structure.single``).

Start: below the minimum all missing tasks are one step, so a gang starts whole or not at all.
Above it one surplus task, one doubling, or one more group with its own minimum is a step. A step
that cannot be whole is not offered. A task that succeeded counts towards the minimum.

Shrink: the reverse order. Surplus tasks go one by one (or by halves), then surplus groups whole,
and then the rest as one unit, because a gang below its minimum does no work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from carrel_scheduler.core.gangs import Group, Growth

_RATIO_BITS = 40


@dataclass(frozen=True, slots=True)
class Part:
    """A group inside a structure.

    Attributes:
        number: its place in ``Structure.parts``.
        parent: the number of the group around it; -1 for the root.
        name: for the order among its siblings.
        least: tasks or children that must be there.
        children: numbers of the groups in it; empty for a leaf.
        leaf: which leaf it is; -1 for an inner group.
        size: tasks of a leaf.
        doubles: whether its surplus comes in doublings.
    """

    number: int
    parent: int
    name: str
    least: int
    children: tuple[int, ...] = ()
    leaf: int = -1
    size: int = 0
    doubles: bool = False


@dataclass(frozen=True, slots=True)
class Structure:
    """A tree of groups in pre-order.

    Attributes:
        parts: the root first.
        leaves: the part of each leaf, in the order of the tree.
        single: the part of the only leaf when no inner group matters.
        whole: no task is stopped for others without all of them.
    """

    parts: tuple[Part, ...]
    leaves: tuple[Part, ...]
    single: Part | None
    whole: bool = False


@dataclass(frozen=True, slots=True)
class LeafState:
    """The tasks of one leaf by state; all indices are of the workload, the most important first.

    Attributes:
        pending: tasks that wait and may start.
        running: tasks that have a place and are not terminating.
        succeeded: number of tasks that ended well.
    """

    pending: tuple[int, ...] = ()
    running: tuple[int, ...] = ()
    succeeded: int = 0

    @property
    def there(self) -> int:
        """Tasks that count towards the minimum."""
        return len(self.running) + self.succeeded


def structure_of(group: Group) -> Structure:
    """The structure of a tree; equal shapes give the same object."""
    return _structure(_shape(group), group.whole)


class _GroupShape(NamedTuple):
    """The parts of a group on which its steps depend."""

    name: str
    least: int
    size: int
    doubles: bool
    inside: tuple["_GroupShape", ...]


def _shape(group: Group) -> _GroupShape:
    inside = tuple(_shape(child) for child in group.groups)
    if len(inside) == 1 and group.least == 1:
        return inside[0]._replace(name=group.name)
    doubles = group.is_leaf and group.growth is Growth.DOUBLE
    return _GroupShape(group.name, group.least, len(group.requests), doubles, inside)


@lru_cache(maxsize=4096)
def _structure(shape: _GroupShape, whole: bool) -> Structure:
    parts: list[Part] = []
    leaves: list[Part] = []
    _add(shape, -1, parts, leaves)
    single = leaves[0] if len(parts) == 1 else None
    return Structure(tuple(parts), tuple(leaves), single, whole)


def _add(shape: _GroupShape, parent: int, parts: list[Part], leaves: list[Part]) -> int:
    number = len(parts)
    part = Part(number, parent, shape.name, shape.least)
    parts.append(part)
    if shape.inside:
        children = tuple(_add(child, number, parts, leaves) for child in shape.inside)
        parts[number] = replace(part, children=children)
    else:
        parts[number] = replace(part, leaf=len(leaves), size=shape.size, doubles=shape.doubles)
        leaves.append(parts[number])
    return number


class GroupCounts:
    """Progress of each group of a structure, for some number of tasks in each leaf.

    Attributes:
        there: per part the tasks of a leaf, or the satisfied children of an inner group.
        met: per part whether it is satisfied.
    """

    def __init__(self, structure: Structure, tasks: Sequence[int]) -> None:
        self.parts = structure.parts
        self.there = [0] * len(self.parts)
        self.met = [False] * len(self.parts)
        for leaf, number in zip(structure.leaves, tasks, strict=True):
            self.there[leaf.number] = number
        for part in reversed(self.parts):
            self.met[part.number] = self.there[part.number] >= part.least
            if self.met[part.number] and part.parent >= 0:
                self.there[part.parent] += 1

    def add(self, part: Part, tasks: int) -> None:
        """Add tasks to a leaf's count; a negative number removes them."""
        self.there[part.number] += tasks
        while (met := self.there[part.number] >= part.least) != self.met[part.number]:
            self.met[part.number] = met
            if part.parent < 0:
                return
            part = self.parts[part.parent]
            self.there[part.number] += 1 if met else -1

    def rank(self, part: Part) -> tuple[int, int, int, str, int]:
        """The order in which siblings are served, smallest first.

        Below the minimum first, of these what has been begun; then what has a minimum, by how often
        it has it; then what has none, by how much is there; then by name and place.
        """
        there = self.there[part.number]
        if not self.met[part.number]:
            return (0, 0, int(there == 0), part.name, part.number)
        if part.least == 0:
            return (1, 1, there, part.name, part.number)
        # Exact: ratios of numbers below 2**20 differ by more than 2**-40.
        return (1, 0, (there << _RATIO_BITS) // part.least, part.name, part.number)


Step = tuple[tuple[int, ...], ...]
"""Task indices per leaf; the empty tuple where there is no step."""


def satisfied(structure: Structure, active: Sequence[int]) -> bool:
    """Whether the minima are met by so many tasks in each leaf."""
    if structure.single is not None:
        return active[0] >= structure.single.least
    return GroupCounts(structure, active).met[0]


def ready(structure: Structure, states: Sequence[LeafState]) -> bool:
    """Whether the minima can be met by what runs and what may start; releasing tasks do not count.

    They do again once they have been released and wait.
    """
    if (leaf := structure.single) is not None:
        return states[0].there + len(states[0].pending) >= leaf.least
    return _possible(structure, states).met[0]


def next_step(structure: Structure, states: Sequence[LeafState]) -> Step:
    """The pending tasks to place next.

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
    return _StepSearch(structure, states).next()


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
    """The number of tasks that the next step of a leaf takes, whether or not so many wait."""
    if there < leaf.least:
        return leaf.least - there
    return next_size(there, leaf.least) - there if leaf.doubles else 1


def _possible(structure: Structure, states: Sequence[LeafState]) -> GroupCounts:
    """The counts if all pending tasks started."""
    return GroupCounts(structure, [state.there + len(state.pending) for state in states])


class _StepSearch:
    """The search for the next step in a tree."""

    def __init__(self, structure: Structure, states: Sequence[LeafState]) -> None:
        self._parts = structure.parts
        self._states = states
        self._tally = GroupCounts(structure, [state.there for state in states])
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
        """Take all missing tasks of a group that can reach its minimum."""
        if part.leaf >= 0:
            self._take(part)
            return
        missing = part.least - self._tally.there[part.number]
        unmet = [child for child in self._served(part) if not self._tally.met[child.number]]
        for child in [child for child in unmet if self._possible[child.number]][:missing]:
            self._complete(child)

    def _grow(self, part: Part) -> bool:
        """Take one step of surplus tasks in a satisfied group; returns whether there was one."""
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


class ReleasedTasks(NamedTuple):
    """Tasks that are released together.

    ``core``: the last of the steps, which leaves nothing running.
    """

    tasks: tuple[int, ...]
    core: bool


def shed_steps(structure: Structure, states: Sequence[LeafState]) -> Iterator[ReleasedTasks]:
    """The steps in which a running workload gives its tasks back, first to go first.

    Together they are all running tasks, each once. Lazy: taking few steps of many costs little.
    """
    if structure.whole:
        if running := tuple(sorted(index for state in states for index in state.running)):
            yield ReleasedTasks(running, core=True)
        return
    if (leaf := structure.single) is not None and states[0].there <= leaf.least:
        if states[0].running:
            yield ReleasedTasks(states[0].running, core=True)
        return
    left = _Left(structure, states)
    while (step := left.surplus(structure.parts[0])) or (step := left.group(structure.parts[0])):
        yield ReleasedTasks(step, core=False)
    if core := left.all():
        yield ReleasedTasks(core, core=True)


def stale_tasks(structure: Structure, states: Sequence[LeafState]) -> tuple[int, ...]:
    """Tasks whose group has fewer members than its minimum.

    All of them when the workload as a whole is below its minimum; otherwise those of optional
    groups that are below theirs, while the rest goes on working. A group beyond the minimum of the
    group around it that has no task at all is simply not grown yet: counting it as broken would end
    every workload with optional groups as soon as it has started without them. Nothing is stale
    once a task has succeeded, for the workload is then ending.
    """
    if any(state.succeeded for state in states):
        return ()
    if (leaf := structure.single) is not None:
        running = states[0].running
        return running if len(running) < leaf.least else ()
    return _Left(structure, states).below_minimum(structure.parts[0])


def is_stale(structure: Structure, states: Sequence[LeafState]) -> bool:
    """Whether there are ``stale_tasks``."""
    return bool(stale_tasks(structure, states))


def smaller_size(there: int, least: int) -> int:
    """The largest size below ``there`` in the doublings of a minimum; at least the minimum."""
    size = max(least, 1)
    if there <= size:
        return least
    while size * 2 < there:
        size *= 2
    return size


class _Left:
    """The tasks that still run while steps are removed one by one."""

    def __init__(self, structure: Structure, states: Sequence[LeafState]) -> None:
        self._parts = structure.parts
        self._leaves = structure.leaves
        self._running = [list(state.running) for state in states]
        self._tally = GroupCounts(structure, [state.there for state in states])

    def surplus(self, part: Part) -> tuple[int, ...]:
        """The next surplus tasks of single leaves; empty when there are none."""
        if part.leaf < 0:
            return next(filter(None, map(self.surplus, self._reversed(part))), ())
        there = self._tally.there[part.number]
        if there <= part.least:
            return ()
        return self._drop(part, there - smaller_size(there, part.least) if part.doubles else 1)

    def group(self, part: Part) -> tuple[int, ...]:
        """The next surplus group, whole: the deepest, and what is broken before what works."""
        children = self._reversed(part)
        if step := next(filter(None, map(self.group, children)), ()):
            return step
        there = self._tally.there[part.number]
        if part.leaf >= 0 or there < part.least:
            return ()
        broken = [child for child in children if not self._tally.met[child.number]]
        working = [child for child in children if self._tally.met[child.number]]
        for child in broken + (working if there > part.least else []):
            if step := self._drop_all(child):
                return step
        return ()

    def all(self) -> tuple[int, ...]:
        """All tasks that are left."""
        return tuple(sorted(self._drop_all(self._parts[0])))

    def below_minimum(self, part: Part) -> tuple[int, ...]:
        """The tasks that run in groups below their minimum."""
        if not self._tally.met[part.number]:
            return tuple(sorted(self._drop_all(part)))
        children = (self._parts[child] for child in part.children)
        return tuple(task for child in children for task in self.below_minimum(child))

    def _drop(self, part: Part, size: int) -> tuple[int, ...]:
        """Take the least important tasks of a leaf away, the last one first."""
        running = self._running[part.leaf]
        kept = max(0, len(running) - size)
        step = tuple(reversed(running[kept:]))
        del running[kept:]
        self._tally.add(part, -len(step))
        return step

    def _drop_all(self, part: Part) -> tuple[int, ...]:
        if part.leaf >= 0:
            return self._drop(part, len(self._running[part.leaf]))
        return tuple(task for child in self._reversed(part) for task in self._drop_all(child))

    def _reversed(self, part: Part) -> list[Part]:
        children = (self._parts[child] for child in part.children)
        return sorted(children, key=self._tally.rank, reverse=True)
