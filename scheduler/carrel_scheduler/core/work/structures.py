"""The shape of a gang, prepared once for all workloads that share it, and counts over it.

What starts next and what goes first depends on the minima and names of a tree only, not on what its
tasks ask for; equal shapes are therefore one ``Structure``. Nearly all workloads are a single leaf,
which ``Structure.single`` says at once. An inner group that needs its only child is that child.
"""

from collections.abc import Sequence
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
    """

    parts: tuple[Part, ...]
    leaves: tuple[Part, ...]
    single: Part | None


@dataclass(frozen=True, slots=True)
class LeafState:
    """Where the tasks of one leaf are; all indices are of the workload, the most important first.

    Attributes:
        pending: tasks that wait and may start.
        running: tasks that have a place and are not told to stop.
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
    return _structure(_shape(group))


class _Shape(NamedTuple):
    """What of a group matters here."""

    name: str
    least: int
    size: int
    doubles: bool
    inside: tuple["_Shape", ...]


def _shape(group: Group) -> _Shape:
    inside = tuple(_shape(child) for child in group.groups)
    if len(inside) == 1 and group.least == 1:
        return inside[0]._replace(name=group.name)
    doubles = group.is_leaf and group.growth is Growth.DOUBLE
    return _Shape(group.name, group.least, len(group.requests), doubles, inside)


@lru_cache(maxsize=4096)
def _structure(shape: _Shape) -> Structure:
    parts: list[Part] = []
    leaves: list[Part] = []
    _add(shape, -1, parts, leaves)
    return Structure(tuple(parts), tuple(leaves), leaves[0] if len(parts) == 1 else None)


def _add(shape: _Shape, parent: int, parts: list[Part], leaves: list[Part]) -> int:
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


class Tally:
    """How far each group of a structure is, for some number of tasks in each leaf.

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
        """More (or fewer) tasks of a leaf are there."""
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
