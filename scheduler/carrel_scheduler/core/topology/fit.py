"""How well a domain fits what a group asks for: whether it has room, and how tightly.

Tasks that are alike are counted: a node has room for so many of them. Unlike tasks are weighed:
what they need together against what is free in the domain, the scarcest resource deciding. Both
are integers throughout, so that equal domains tie exactly.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.topology.domains import Tier

_RATIO_BITS = 20
_DEMAND_BITS = 62 - _RATIO_BITS


class Fit(Protocol):
    """What is asked of a domain."""

    def measure(self, tier: Tier, within: Bools) -> tuple[Bools, tuple[Counts, ...]]:
        """(D,) whether each domain may hold it, and (D,) keys: smaller is tighter."""
        ...

    def holds(self, within: Bools) -> bool:
        """Whether these nodes together may hold it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """``need`` equal tasks, of which ``counts[n]`` fit on node n; exact.

    ``free`` (N,), when given, breaks ties between domains with room for equally many: the one with
    less free is tighter.
    """

    counts: Counts
    need: int
    free: Counts | None = None

    def measure(self, tier: Tier, within: Bools) -> tuple[Bools, tuple[Counts, ...]]:
        """See ``Fit``; the first key is the room in tasks."""
        room = tier.sums(self.counts * within)
        if self.free is None:
            return room >= self.need, (room,)
        return room >= self.need, (room, tier.sums(self.free * within))

    def holds(self, within: Bools) -> bool:
        """See ``Fit``."""
        return int(self.counts.compress(within).sum(dtype=np.int64)) >= self.need


@dataclass(frozen=True, slots=True, eq=False)
class Unlike:
    """Tasks of different sizes that need ``demand`` (R,) together, of ``free`` (R, N).

    Necessary only: enough in sum may still be too scattered for the single tasks.
    """

    demand: Counts
    free: Counts

    def measure(self, tier: Tier, within: Bools) -> tuple[Bools, tuple[Counts, ...]]:
        """See ``Fit``; the key is minus the largest ratio of demand to free."""
        fits = np.ones(tier.count, dtype=np.bool_)
        ratio = np.zeros(tier.count, dtype=np.int64)
        for row, wanted in zip(self.free, self.demand.tolist(), strict=True):
            if wanted <= 0:
                continue
            free = np.maximum(tier.sums(row * within), 0)
            fits &= free >= wanted
            # Both sides lose the same low bits where the product would not fit into 64.
            shift = max(0, wanted.bit_length() - _DEMAND_BITS)
            part = ((wanted >> shift) << _RATIO_BITS) // np.maximum(free >> shift, 1)
            ratio = np.maximum(ratio, np.where(free > 0, part, np.iinfo(np.int64).max))
        return fits, (-ratio,)

    def holds(self, within: Bools) -> bool:
        """See ``Fit``."""
        free = self.free.compress(within, axis=1).sum(axis=1, dtype=np.int64)
        return bool((free >= self.demand).all())
