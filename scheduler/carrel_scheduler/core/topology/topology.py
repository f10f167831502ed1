"""Topology between nodes: in which sets of nodes a group that wants to lie together is tried.

A topology is an ordered list of label keys, coarse to fine. For a ``Level`` (required, preferred)
the sets are tried deepest level first, from the preferred one up to the required one, or up to all
nodes where nothing is required; inside a level the tightest domain first, ties by path. Constraints
of inner groups are the same question asked again with the chosen set as ``within``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.gangs import Level
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.topology.fit import Alike, Fit, Unlike
from carrel_scheduler.core.topology.gathering import candidate_sets, gathering_scores
from carrel_scheduler.core.topology.levels import Levels


@dataclass(eq=False)
class Topologies(Levels):
    """All topologies and the labels of all nodes, and what follows for placing groups."""

    def candidates(
        self,
        level: Level,
        within: Bools,
        counts: Counts,
        need: int,
        pinned: Bools | None = None,
        free: Counts | None = None,
    ) -> Iterator[Bools]:
        """Sets of nodes with room for ``need`` more equal tasks, in the order to try them.

        Args:
            level: what the group wishes.
            within: (N,) the nodes that are open to it (the set chosen for the group around it).
            counts: (N,) int64, how many of the tasks fit on each node, idle or soon.
            need: tasks to place.
            pinned: (N,) nodes on which tasks of the group run already.
            free: (N,) free amount of what the tasks ask most of; decides between domains with
                room for equally many.

        Yields:
            (N,) subsets of ``within``, none twice. Complete: a set of nodes that satisfies the
            level and holds the tasks is inside one of them.
        """
        return self._candidates(level, within, Alike(counts, need, free), pinned)

    def candidates_unlike(
        self,
        level: Level,
        within: Bools,
        demand: Counts,
        free: Counts,
        pinned: Bools | None = None,
    ) -> Iterator[Bools]:
        """The same for tasks of different sizes, by sums.

        Args:
            level: what the group wishes.
            within: (N,) the nodes that are open to it.
            demand: (R,) what the tasks need together, by resource, such as GPU milli and MiB.
            free: (R, N) free amounts of the same.
            pinned: (N,) nodes on which tasks of the group run already.
        """
        return self._candidates(level, within, Unlike(demand, free), pinned)

    def node_scores(
        self,
        level: Level,
        within: Bools,
        counts: Counts,
        need: int = 0,
        pinned: Bools | None = None,
    ) -> Counts:
        """(N,) which nodes to take first so that tasks gather in a set wider than preferred.

        Larger is better; equal inside a domain of the preferred level; 0 outside of all of them.
        Domains that tasks run in already (``pinned``) come first, then those with most room, so
        that few are used; the last of those that ``need`` tasks take is the tightest one of its
        neighbours that holds the rest.
        """
        span = self.span(level, within.size) if level.preferred else None
        if span is None or [d.key for d in span.tiers[-1:]] != [level.preferred]:
            return np.zeros(within.size, dtype=np.int64)
        return gathering_scores(span.tiers, within, Alike(counts, need), pinned)

    def impossible(
        self,
        level: Level,
        within: Bools,
        counts: Counts,
        need: int,
        pinned: Bools | None = None,
    ) -> tuple[int, int] | None:
        """Proof that no domain has room for ``need`` equal tasks: (the best one's room, need).

        Exact for equal tasks: ``None`` means that some domain does hold them. A preferred level
        never changes the answer.
        """
        span = self.span(Level(required=level.required, topology=level.topology), within.size)
        if span is None:
            return (0, need)
        if span.top < 0:
            have = int(counts.compress(within).sum(dtype=np.int64))
        else:
            tier = span.tiers[span.top]
            room = tier.sums(counts * within)
            if pinned is not None and pinned.any():
                room = room * (tier.counts(pinned) > 0)
            have = int(room.max(initial=0))
        return (have, need) if have < need else None

    def _candidates(
        self, level: Level, within: Bools, fit: Fit, pinned: Bools | None
    ) -> Iterator[Bools]:
        span = self.span(level, within.size)
        return iter(()) if span is None else candidate_sets(span, within, fit, pinned)
