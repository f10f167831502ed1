"""How many equal segments domains inside domains hold: nested floors.

Segments of S equal tasks inside domains of a finer level: a domain with room for K tasks holds
floor(K / S) of them; a domain around it holds the sum, again floored where segments make up larger
parts, and so on outwards. Exact, because equal segments are again equal items.
"""

from collections.abc import Sequence

import numpy as np

from carrel_scheduler.core.domains import Tier
from carrel_scheduler.core.layers import Bools, Counts


def most_parts(
    tiers: Sequence[Tier | None], sizes: Sequence[int], within: Bools, counts: Counts
) -> int:
    """The most parts of the outermost group that one of its domains holds.

    Args:
        tiers: outermost first; ``None`` where a group may lie anywhere.
        sizes: parts of each group; parts of the innermost are tasks.
        within: (N,) the nodes to count.
        counts: (N,) tasks that fit on each node.
    """
    domains: Counts = np.zeros(int(np.count_nonzero(within)), dtype=np.int64)
    around: list[Counts] = []
    open_: Bools = np.ones(domains.size, dtype=np.bool_)
    for tier in tiers:
        domains, open_ = _refine(domains, open_, tier, within)
        around.append(domains)
    values = (counts.compress(within) * open_).astype(np.int64)
    best: Counts = values
    for depth in range(len(sizes) - 1, -1, -1):
        best, first = _grouped(around[depth], values)
        if depth:
            parts = best // sizes[depth]
            values = np.zeros(domains.size, dtype=np.int64)
            values[first] = parts
    return int(best.max(initial=0))


def _refine(
    domains: Counts, open_: Bools, tier: Tier | None, within: Bools
) -> tuple[Counts, Bools]:
    """Split domains by a tier, which need not be of the same topology."""
    if tier is None:
        return domains, open_
    bins = tier.bins.compress(within)
    split = domains * (tier.count + 1) + bins
    return np.unique(split, return_inverse=True)[1].astype(np.int64), open_ & (bins < tier.count)


def _grouped(domains: Counts, values: Counts) -> tuple[Counts, Counts]:
    """Sums per domain, and a node of each domain."""
    numbers, first = np.unique(domains, return_index=True)
    sums = np.bincount(domains, weights=values, minlength=numbers.size)
    return sums.take(numbers).astype(np.int64), first
