"""Domains of topology levels, and the order in which a group of tasks tries them.

A *tier* is one level: each node is in one of its domains, or in none where a label on the path is
missing. A domain is the whole path of labels, so rack r1 of zone a is not rack r1 of zone b.
Domains are numbered by path, the last tie-break. ``HOST`` ends every topology: each node is a
domain.

Equal tasks are counted per node (``Alike``, exact); unlike tasks are compared by the scarcest
resource (``MixedTasks``, a necessary condition). Candidate sets come deepest level first, inside a
level the tightest domain first; domains in which tasks of the group run already come before all
others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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
        """(D,) the number of these nodes in each domain."""
        chosen = np.bincount(self.bins.compress(nodes), minlength=self.count + 1)
        return chosen[: self.count].astype(np.int64, copy=False)

    def some_node(self, nodes: Bools) -> Counts:
        """(D,) the first of these nodes in each domain; 0 for a domain with none."""
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


_RATIO_BITS = 20
_DEMAND_BITS = 62 - _RATIO_BITS


class Fit(Protocol):
    """The demand that a domain has to satisfy."""

    def measure(self, tier: Tier, within: Bools) -> tuple[Bools, tuple[Counts, ...]]:
        """(D,) whether each domain may satisfy the demand, and (D,) keys: smaller is tighter."""
        ...

    def holds(self, within: Bools) -> bool:
        """Whether these nodes together may satisfy the demand."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """``need`` equal tasks, of which ``counts[n]`` fit on node n; exact.

    ``free`` (N,), when given, breaks ties between domains with capacity for equally many: the one
    with less free is tighter.
    """

    counts: Counts
    need: int
    free: Counts | None = None

    def measure(self, tier: Tier, within: Bools) -> tuple[Bools, tuple[Counts, ...]]:
        """See ``Fit``; the first key is the capacity in tasks."""
        fitting = tier.sums(self.counts * within)
        if self.free is None:
            return fitting >= self.need, (fitting,)
        return fitting >= self.need, (fitting, tier.sums(self.free * within))

    def holds(self, within: Bools) -> bool:
        """See ``Fit``."""
        return int(self.counts.compress(within).sum(dtype=np.int64)) >= self.need


@dataclass(frozen=True, slots=True, eq=False)
class MixedTasks:
    """Tasks of different sizes with the total demand (R,), checked against ``free`` (R, N).

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


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """The tiers that matter for a level, coarse to fine.

    ``top`` is the place of the required one; -1: nothing is required, all nodes will do.
    """

    tiers: tuple[Tier, ...]
    top: int


def candidate_sets(span: Span, within: Bools, fit: Fit, pinned: Bools | None) -> Iterator[Bools]:
    """Subsets of ``within`` (N,) that may hold what is asked, in the order to try them."""
    if not within.any():
        return
    running = pinned if pinned is not None and pinned.any() else None
    measured = [fit.measure(tier, within) for tier in span.tiers]
    order = positions(span.tiers, [keys for _, keys in measured])
    usable = _usable(span, within, [fits for fits, _ in measured], running)
    for at_home in (True,) if running is None else (True, False):
        for place in range(len(span.tiers) - 1, max(span.top, 0) - 1, -1):
            tier, chosen = span.tiers[place], usable[place]
            if running is not None:
                chosen = chosen & ((tier.counts(running) > 0) == at_home)
            found = np.flatnonzero(chosen)
            for domain in found.take(np.argsort(order[place].take(found))).tolist():
                yield (tier.bins == domain) & within
        if at_home and span.top < 0 and not _one_has_all(span, within) and fit.holds(within):
            yield within.copy()


def gathering_scores(
    tiers: Sequence[Tier], within: Bools, fit: Alike, pinned: Bools | None
) -> Counts:
    """(N,) larger for nodes whose domain of the last tier is to be filled earlier."""
    last = tiers[-1]
    order = np.argsort(positions(tiers, [fit.measure(d, within)[1] for d in tiers])[-1])
    order = order[::-1]
    if pinned is not None:
        order = order.take(np.argsort(last.counts(pinned).take(order) == 0, kind="stable"))
    order = _rest_tightly(order, last.sums(fit.counts * within), last.parents, fit.need)
    scores = np.empty(last.count, dtype=np.int64)
    scores[order] = np.arange(last.count, 0, -1, dtype=np.int64)
    return last.spread(scores, outside=0)


def _usable(span: Span, within: Bools, fits: Sequence[Bools], running: Bools | None) -> list[Bools]:
    """Per tier the domains to try: with capacity, allowed, and none that a deeper one equals."""
    members = [tier.counts(within) for tier in span.tiers]
    usable: list[Bools] = []
    for place, tier in enumerate(span.tiers):
        chosen = fits[place] & (members[place] > 0)
        some = tier.some_node(within)
        if span.top >= 0:
            chosen &= _allowed(span.tiers[span.top], running).take(
                span.tiers[span.top].bins.take(some)
            )
        for deeper in range(place + 1, len(span.tiers)):
            # Domains are nested: the deeper one around a node is all of this one or less.
            inside = np.append(members[deeper], 0).take(span.tiers[deeper].bins.take(some))
            chosen &= inside != members[place]
        usable.append(chosen)
    return usable


def _allowed(required: Tier, running: Bools | None) -> Bools:
    """(D + 1,) whether a required domain may be used; the last stands for nodes in none."""
    if running is None:
        return np.arange(required.count + 1) < required.count
    return np.append(required.counts(running) > 0, np.False_)


def _one_has_all(span: Span, within: Bools) -> bool:
    """Whether all of these nodes lie in one domain, so that they were tried already."""
    total = int(np.count_nonzero(within))
    return any(int(tier.counts(within).max(initial=0)) == total for tier in span.tiers)


def _rest_tightly(order: Counts, fitting: Counts, parents: Counts, need: int) -> Counts:
    """Fill the domains in this order; the tightest neighbour holds the rest of ``need``."""
    sums = np.cumsum(fitting.take(order))
    last = int(np.searchsorted(sums, need))
    if need <= 0 or last >= order.size:
        return order
    rest = need - (int(sums[last - 1]) if last else 0)
    later = order[last:]
    able = (parents.take(later) == parents[order[last]]) & (fitting.take(later) >= rest)
    tightest = np.where(able, fitting.take(later), np.iinfo(np.int64).max).argmin()
    return np.concatenate((order[:last], later[tightest, None], np.delete(later, tightest)))
