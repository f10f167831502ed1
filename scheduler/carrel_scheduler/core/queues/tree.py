"""The tree of queues by depth, so that sums go up and bounds come down a level at a time.

Columns have a value for each slot, (Q,) or (Q, resources).
"""

import numpy as np

from carrel_scheduler.core.layers import Counts


class Tree:
    """Made once for a set of rules; all methods change the column that they are given.

    Attributes:
        parent: (Q,) the slot above, -1 at the top and where a slot is unused.
        size: Q.
        below: slots that have a parent, the deepest level first.
        above: their parents, level by level.
    """

    __slots__ = ("above", "below", "parent", "size")

    def __init__(self, parent: Counts) -> None:
        self.parent, self.size = parent, len(parent)
        depth = np.zeros(self.size, np.int64)
        above = parent
        while (inside := above >= 0).any():
            depth += inside
            above = np.where(inside, parent.take(above, mode="clip"), -1)
        self.below = [
            np.flatnonzero(depth == level) for level in range(int(depth.max(initial=0)), 0, -1)
        ]
        self.above = [parent.take(level) for level in self.below]

    def sums(self, values: Counts) -> Counts:
        """(Q,) ``values`` of the leaves with every queue's descendants added."""
        for level, above in zip(self.below, self.above, strict=True):
            np.add.at(values, above, values[level])
        return values

    def largest(self, values: Counts) -> Counts:
        """(Q,) the largest of ``values`` in every queue's subtree."""
        for level, above in zip(self.below, self.above, strict=True):
            np.maximum.at(values, above, values[level])
        return values

    def divisors(self, values: Counts) -> Counts:
        """(Q,) the greatest common divisor in every queue's subtree."""
        for level, above in zip(self.below, self.above, strict=True):
            np.gcd.at(values, above, values[level])
        return values

    def along_paths(self, values: Counts) -> Counts:
        """(Q,) the sum of ``values`` from the top down to every queue."""
        for level, above in zip(reversed(self.below), reversed(self.above), strict=True):
            values[level] += values[above]
        return values

    def least_on_paths(self, values: Counts) -> Counts:
        """(Q, ...) the least of ``values`` from the top down to every queue."""
        for level, above in zip(reversed(self.below), reversed(self.above), strict=True):
            values[level] = np.minimum(values[level], values[above])
        return values
