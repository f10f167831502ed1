"""In which sets of nodes a group is tried, and which nodes it takes first inside one.

The deepest level comes first, inside a level the tightest domain. Domains that tasks of the group
run in already come before all others; a required domain that is in use stays the only one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.topology.domains import Tier, positions
from carrel_scheduler.core.topology.fit import Alike, Fit


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """The tiers that matter to a level, coarse to fine.

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
    """Per tier the domains to try: with room, allowed, and none that a deeper one equals."""
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
    """Whether one domain is all of these nodes, so that they were tried already."""
    total = int(np.count_nonzero(within))
    return any(int(tier.counts(within).max(initial=0)) == total for tier in span.tiers)


def _rest_tightly(order: Counts, room: Counts, parents: Counts, need: int) -> Counts:
    """Of the domains in this order, let the tightest neighbour hold the rest of ``need``."""
    sums = np.cumsum(room.take(order))
    last = int(np.searchsorted(sums, need))
    if need <= 0 or last >= order.size:
        return order
    rest = need - (int(sums[last - 1]) if last else 0)
    later = order[last:]
    able = (parents.take(later) == parents[order[last]]) & (room.take(later) >= rest)
    tightest = np.where(able, room.take(later), np.iinfo(np.int64).max).argmin()
    return np.concatenate((order[:last], later[tightest, None], np.delete(later, tightest)))
