"""Wishes between pods: nodes that are liked better beside others, away from them, or evenly used.

A wish never keeps a pod waiting. What placed pods wish of those who come is not looked at.
"""

from collections.abc import Iterator
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.places.neighbours import Neighbours, term_of
from carrel_scheduler.engines.kubernetes.pods.places.nodes import NodeIndex
from carrel_scheduler.engines.kubernetes.pods.places.spread import BINDING, emptiest
from carrel_scheduler.engines.kubernetes.pods.types import Pod, SpreadConstraint, WeightedPodTerm

SPREAD_WEIGHT: Final = 50
Wish = tuple[frozenset[str], int]
"""Nodes, and how much they are wished for, from 1 to 100."""


def has_wishes(pod: Pod) -> bool:
    """Whether it wishes anything of who runs beside it."""
    return bool(_near(pod) or _apart(pod) or _spread(pod))


def wishes_of(pod: Pod, index: NodeIndex, neighbours: Neighbours) -> list[Wish]:
    """What a pod wishes as things are; what all nodes fulfil, or none, is left out."""
    found = _found(pod, index, neighbours)
    return [(nodes, weight) for nodes, weight in found if nodes and nodes != index.all()]


def _found(pod: Pod, index: NodeIndex, neighbours: Neighbours) -> Iterator[Wish]:
    for wish, is_near in [(one, True) for one in _near(pod)] + [(o, False) for o in _apart(pod)]:
        term = term_of(pod, wish.pod_affinity_term)
        beside = index.around(neighbours.where((term,)), term.topology_key)
        yield (beside if is_near else index.all() - beside), wish.weight
    for constraint in _spread(pod):
        yield emptiest(pod, constraint, index, neighbours), SPREAD_WEIGHT


def _near(pod: Pod) -> tuple[WeightedPodTerm, ...]:
    affinity = pod.spec.affinity
    side = None if affinity is None else affinity.pod_affinity
    return () if side is None else side.preferred


def _apart(pod: Pod) -> tuple[WeightedPodTerm, ...]:
    affinity = pod.spec.affinity
    side = None if affinity is None else affinity.pod_anti_affinity
    return () if side is None else side.preferred


def _spread(pod: Pod) -> list[SpreadConstraint]:
    spread = pod.spec.topology_spread_constraints
    return [one for one in spread if one.when_unsatisfiable != BINDING]
