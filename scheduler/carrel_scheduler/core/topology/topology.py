"""Topologies: ordered lists of node label keys, from coarse to fine.

For a ``Level`` (required, preferred) sets of nodes are tried from the preferred level up to the
required one, or up to all nodes where nothing is required. Tiers are built when asked for and
kept until a label that they read changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import TopologySet
from carrel_scheduler.core.gangs import Level
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.core.topology.domains import (
    Alike,
    Fit,
    MixedTasks,
    Span,
    Tier,
    build_tiers,
    candidate_sets,
    gathering_scores,
)

Labels = tuple[tuple[str, str], ...]


@dataclass(eq=False)
class Topologies:
    """All topologies, the labels of all nodes, and the domains that follow from them."""

    _levels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _nodes: dict[int, tuple[str, dict[str, str]]] = field(default_factory=dict)
    _columns: dict[str, Counts] = field(default_factory=dict)
    _trees: dict[tuple[str, ...], tuple[Tier, ...]] = field(default_factory=dict)
    _size: int = 0

    def copy(self) -> Self:
        """A copy that changes by itself; what is built is shared, as it never changes in place."""
        return type(self)(
            self._levels.copy(),
            self._nodes.copy(),
            self._columns.copy(),
            self._trees.copy(),
            self._size,
        )

    def set_topology(self, event: TopologySet) -> None:
        """Add a topology, or replace its levels.

        Raises:
            InvalidEvent: a level named twice, or ``HOST`` anywhere but last.
        """
        levels = event.levels[:-1] if event.levels[-1:] == (HOST,) else event.levels
        if HOST in levels:
            raise InvalidEvent("host_not_last", "levels", event.levels, f"{HOST!r} is the last one")
        if len(set(levels)) < len(levels):
            raise InvalidEvent("level_twice", "levels", event.levels, "each key stands once")
        self._levels[event.name] = (*levels, HOST)

    def set_node(self, slot: int, name: str, labels: Labels) -> None:
        """Handle a new node in a slot, or changed labels."""
        new = (name, {**dict(labels), HOST: name})
        old = self._nodes.get(slot)
        if old == new:
            return
        self._nodes[slot] = new
        was = old[1] if old else {}
        self._forget({key for key in self._columns if was.get(key) != new[1].get(key)})

    def remove_node(self, slot: int) -> None:
        """Handle the removal of a node."""
        if (old := self._nodes.pop(slot, None)) is not None:
            self._forget(self._columns.keys() & old[1].keys())

    def check(self, level: Level) -> None:
        """Whether a level names existing topology keys.

        Raises:
            InvalidEvent: the topology is not known, or does not have the level.
        """
        if not level.topology:
            return
        keys = self._levels.get(level.topology)
        if keys is None:
            known = ", ".join(sorted(self._levels)) or "none"
            raise InvalidEvent(
                "unknown_topology", "topology", level.topology, f"one of the topologies: {known}"
            )
        for name, key in (("required", level.required), ("preferred", level.preferred)):
            if key and key not in keys:
                raise InvalidEvent("unknown_level", name, key, f"one of {', '.join(keys)}")

    def known(self) -> dict[str, tuple[str, ...]]:
        """The keys of each topology, coarse to fine."""
        return dict(self._levels)

    def domains(self, key: str, size: int, topology: str = "") -> npt.NDArray[np.int32]:
        """(N,) the domain of each of ``size`` node slots at a level; -1 where it is in none."""
        span = self.span(Level(required=key, topology=topology), size)
        if span is None:
            return np.full(size, -1, dtype=np.int32)
        return span.tiers[span.top].domain

    def path(self, key: str, slot: int, topology: str = "") -> str:
        """The path of a node's domain for display, such as ``zone-a/r1``; empty without one."""
        keys = self._keys(Level(required=key, topology=topology)) or ()
        if key not in keys or slot not in self._nodes:
            return ""
        labels = self._nodes[slot][1]
        if key == HOST:
            return labels[HOST]
        path = [labels.get(each, "") for each in keys[: keys.index(key) + 1]]
        return "/".join(path) if all(path) else ""

    def span(self, level: Level, size: int) -> Span | None:
        """The tiers for a level; ``None`` where its required key does not exist."""
        if not level.required and not level.preferred:
            return Span((), -1)
        keys = self._keys(level)
        if keys is None or (level.required and level.required not in keys):
            return None if level.required else Span((), -1)
        top = keys.index(level.required) if level.required else -1
        deepest = keys.index(level.preferred) if level.preferred in keys else top
        return Span(self._tree(keys, size)[: max(top, deepest) + 1], top)

    def _keys(self, level: Level) -> tuple[str, ...] | None:
        """The topology keys to which a level refers, coarse to fine.

        Keys that no topology has are levels by themselves, so that a plain label key will do.
        """
        if level.topology:
            return self._levels.get(level.topology)
        wanted = {level.required, level.preferred} - {""}
        for name in sorted(self._levels):
            if wanted <= set(self._levels[name]):
                return self._levels[name]
        own = dict.fromkeys(key for key in (level.required, level.preferred) if key != HOST)
        return (*(key for key in own if key), HOST)

    def _tree(self, keys: tuple[str, ...], size: int) -> tuple[Tier, ...]:
        if size != self._size:
            self._columns.clear()
            self._trees.clear()
            self._size = size
        if keys not in self._trees:
            for key in keys:
                if key not in self._columns:
                    self._columns[key] = self._column(key)
            self._trees[keys] = build_tiers(keys, self._columns)
        return self._trees[keys]

    def _column(self, key: str) -> Counts:
        """(N,) the place of each node's value among the sorted values; -1 without."""
        values = {slot: labels.get(key, "") for slot, (_, labels) in self._nodes.items()}
        places = {value: place for place, value in enumerate(sorted(set(values.values()) - {""}))}
        column = np.full(self._size, -1, dtype=np.int64)
        for slot, value in values.items():
            column[slot] = places.get(value, -1)
        return column

    def _forget(self, keys: set[str]) -> None:
        for key in keys:
            del self._columns[key]
        self._trees = {tree: d for tree, d in self._trees.items() if keys.isdisjoint(tree)}

    def candidates(
        self,
        level: Level,
        within: Bools,
        counts: Counts,
        need: int,
        pinned: Bools | None = None,
        free: Counts | None = None,
    ) -> Iterator[Bools]:
        """Sets of nodes with capacity for ``need`` more equal tasks, in the order to try them.

        Args:
            level: the conditions of the group.
            within: (N,) the nodes that are open to it (the set chosen for the group around it).
            counts: (N,) int64, how many of the tasks fit on each node, idle or soon.
            need: tasks to place.
            pinned: (N,) nodes on which tasks of the group run already.
            free: (N,) free amount of what the tasks ask most of; decides between domains with
                capacity for equally many.

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
            level: the conditions of the group.
            within: (N,) the nodes that are open to it.
            demand: (R,) what the tasks need together, by resource, such as GPU milli and MiB.
            free: (R, N) free amounts of the same.
            pinned: (N,) nodes on which tasks of the group run already.
        """
        return self._candidates(level, within, MixedTasks(demand, free), pinned)

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
        Domains that tasks run in already (``pinned``) come first, then those with most capacity, so
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
        """Proof that no domain holds ``need`` equal tasks: (most tasks in one domain, need).

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
            fitting = tier.sums(counts * within)
            if pinned is not None and pinned.any():
                fitting = fitting * (tier.counts(pinned) > 0)
            have = int(fitting.max(initial=0))
        return (have, need) if have < need else None

    def _candidates(
        self, level: Level, within: Bools, fit: Fit, pinned: Bools | None
    ) -> Iterator[Bools]:
        span = self.span(level, within.size)
        return iter(()) if span is None else candidate_sets(span, within, fit, pinned)
