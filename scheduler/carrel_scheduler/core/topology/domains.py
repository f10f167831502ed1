"""Which nodes lie together: the tiers of the nodes that the levels of one topology make.

A *tier* is one level: every node is in one of its domains, or in none where a label on the path is
missing. A domain is the whole path of labels, so rack r1 of zone a is not rack r1 of zone b.
Domains are numbered in the order of their paths; that number is the last tie-break everywhere.
``HOST`` ends every topology: each node is a domain of its own, also one without labels.

Sums per domain are one ``bincount`` over the nodes; nothing here loops over nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.requests import HOST


@dataclass(frozen=True, slots=True, eq=False)
class Tier:
    """The domains of one level.

    Attributes:
        key: the label key, or ``HOST``.
        domain: (N,) int32, the domain of each node; -1 outside the topology and in free slots.
        bins: (N,) the same for ``bincount``: ``count`` instead of -1.
        count: number of domains, D.
        parents: (D,) domain of the next coarser tier, its ``count`` where there is none.
    """

    key: str
    domain: npt.NDArray[np.int32]
    bins: Counts
    count: int
    parents: Counts

    def sums(self, values: npt.NDArray[np.generic]) -> Counts:
        """(N,) values of nodes to (D,) sums of domains; exact below 2**53."""
        weighted = np.bincount(self.bins, weights=values, minlength=self.count + 1)
        return weighted[: self.count].astype(np.int64)

    def counts(self, nodes: Bools) -> Counts:
        """(D,) how many of these nodes each domain has."""
        chosen = np.bincount(self.bins.compress(nodes), minlength=self.count + 1)
        return chosen[: self.count].astype(np.int64, copy=False)

    def some_node(self, nodes: Bools) -> Counts:
        """(D,) the first of these nodes in each domain; 0 where it has none."""
        slots = np.flatnonzero(nodes)[::-1]
        found = np.zeros(self.count + 1, dtype=np.int64)
        found[self.bins.take(slots)] = slots
        return found[: self.count]

    def spread(self, values: Counts, outside: int) -> Counts:
        """(D,) values of domains to the (N,) nodes in them."""
        return np.append(values, outside).take(self.bins)


def build_tiers(keys: Sequence[str], columns: Mapping[str, Counts]) -> tuple[Tier, ...]:
    """The tiers of these levels, coarse to fine.

    Args:
        keys: label keys; ``HOST`` last.
        columns: per key the (N,) place of each node's value among the sorted values, -1 without.
    """
    tiers: list[Tier] = []
    above: Counts = np.zeros_like(columns[HOST])
    count = 1
    for key in keys:
        column = columns[key]
        inside = column >= 0 if key == HOST else (column >= 0) & (above < count)
        width = int(column.max(initial=-1)) + 1
        paths, numbers = np.unique(
            above.compress(inside) * width + column.compress(inside), return_inverse=True
        )
        bins = np.full(column.size, paths.size, dtype=np.int64)
        bins[inside] = numbers
        tiers.append(
            Tier(
                key=key,
                domain=np.where(inside, bins, -1).astype(np.int32),
                bins=bins,
                count=paths.size,
                parents=paths // max(width, 1),
            )
        )
        above, count = bins, paths.size
    return tuple(tiers)


def positions(tiers: Sequence[Tier], tightness: Sequence[tuple[Counts, ...]]) -> list[Counts]:
    """Per tier the (D,) places of its domains when the whole tree is sorted tightest first.

    The tree is sorted from the top, so the tightest zone comes first with all its racks, even if a
    rack of a wider zone is tighter by itself: what stays free stays free in large pieces.

    Args:
        tiers: coarse to fine.
        tightness: per tier (D,) keys, the most important first; a smaller one is tighter.
    """
    found: list[Counts] = []
    above: Counts = np.zeros(1, dtype=np.int64)
    for tier, keys in zip(tiers, tightness, strict=True):
        # A domain without a parent (a node without labels) comes after all others.
        parent = np.append(above, above.size).take(tier.parents)
        order = np.lexsort((*reversed(keys), parent))
        above = np.empty(tier.count, dtype=np.int64)
        above[order] = np.arange(tier.count, dtype=np.int64)
        found.append(above)
    return found
