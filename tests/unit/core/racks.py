"""Small clusters with labels, and the sets of nodes that are tried on them."""

from collections.abc import Iterable

import numpy as np

from carrel_scheduler.core.events import TopologySet
from carrel_scheduler.core.gangs import Level
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.topology.topology import Topologies

KEYS = ("zone", "rack")


def cluster(*paths: str, keys: tuple[str, ...] = KEYS) -> Topologies:
    """Nodes n0, n1, ... with label values from paths such as ``a/r1``; ``-`` is a missing label."""
    found = Topologies()
    found.set_topology(TopologySet("dc", keys))
    for slot, path in enumerate(paths):
        values = path.split("/")
        labels = tuple((k, v) for k, v in zip(keys, values, strict=True) if v != "-")
        found.set_node(slot, f"n{slot}", labels)
    return found


def all_of(counts: list[int]) -> Bools:
    return np.ones(len(counts), np.bool_)


def array(values: list[int]) -> Counts:
    return np.array(values, np.int64)


def nodes(*slots: int, size: int) -> Bools:
    mask = np.zeros(size, np.bool_)
    mask[list(slots)] = True
    return mask


def sets(masks: Iterable[Bools]) -> list[list[int]]:
    return [np.flatnonzero(mask).tolist() for mask in masks]


def tried(
    topologies: Topologies,
    level: Level,
    counts: list[int],
    need: int,
    pinned: Bools | None = None,
) -> list[list[int]]:
    return sets(topologies.candidates(level, all_of(counts), array(counts), need, pinned))


RACK = Level(required="rack")
