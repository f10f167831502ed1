"""The structure of a workload: a tree of groups of tasks with minima.

A leaf holds tasks, an inner group holds groups. Tasks are numbered leaf by leaf in the order of the
tree. A workload starts when its root is satisfied: a leaf by ``min_tasks`` of its tasks, an inner
group by ``min_groups`` of its children. What exists beyond the minima is *surplus*: it starts
later, when there is capacity for it, and goes first when capacity is needed.
"""

from dataclasses import dataclass
from enum import StrEnum

from carrel_scheduler.core.requests import Request


class Growth(StrEnum):
    """The steps in which a leaf's surplus grows and shrinks."""

    ONE = "one"
    DOUBLE = "double"
    """Sizes are the minimum times a power of two: each step doubles, each shrinkage halves."""


@dataclass(frozen=True, slots=True)
class Level:
    """A topology condition: all tasks in one domain of ``required``, if possible of ``preferred``.

    Both are keys of node labels that stand in the levels of one topology, or ``HOST``; empty means
    no such preference. ``topology`` names it where several know the key.
    """

    required: str = ""
    preferred: str = ""
    topology: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A group of tasks, or of groups.

    Attributes:
        requests: of a leaf: one for each task, the most important task first.
        min_tasks: of a leaf: so many run, or none; ``None`` means all.
        groups: of an inner group: its children.
        min_groups: of an inner group: so many children are satisfied, or none; ``None`` means all.
        level: where its tasks lie together.
        growth: steps of a leaf's surplus.
        whole: of the topmost: none of its tasks is stopped for others without all of them.
    """

    name: str = ""
    requests: tuple[Request, ...] = ()
    min_tasks: int | None = None
    groups: tuple["Group", ...] = ()
    min_groups: int | None = None
    level: Level | None = None
    growth: Growth = Growth.ONE
    whole: bool = False

    @property
    def is_leaf(self) -> bool:
        """Whether the group holds tasks itself."""
        return not self.groups

    @property
    def least(self) -> int:
        """Tasks of a leaf, or children of an inner group, that must be there."""
        if self.is_leaf:
            return len(self.requests) if self.min_tasks is None else self.min_tasks
        return len(self.groups) if self.min_groups is None else self.min_groups


def leaves(group: Group) -> list[Group]:
    """The leaves of a tree in order; task indices run through them."""
    if group.is_leaf:
        return [group]
    return [leaf for child in group.groups for leaf in leaves(child)]
