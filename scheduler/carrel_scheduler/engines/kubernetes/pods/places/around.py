"""What a pod asks of the pods, ports and volumes around it, as sets of nodes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from carrel_scheduler.core.requests import HOST
from carrel_scheduler.engines.kubernetes.pods.levels import level_key
from carrel_scheduler.engines.kubernetes.pods.places.neighbours import (
    Neighbours,
    Term,
    term_of,
)
from carrel_scheduler.engines.kubernetes.pods.places.nodes import NodeIndex
from carrel_scheduler.engines.kubernetes.pods.places.ports import HostPorts, ports_of
from carrel_scheduler.engines.kubernetes.pods.places.spread import constraints_of, spread_nodes
from carrel_scheduler.engines.kubernetes.pods.places.volumes import Volumes, claims_of
from carrel_scheduler.engines.kubernetes.pods.types import Pod

Condition = tuple[frozenset[str] | None, str, str]
"""The nodes that satisfy it (``None``: all), why nothing can be said of it yet, and what it is."""


class Known(Protocol):
    """All nodes, and what is on them."""

    nodes: NodeIndex
    neighbours: Neighbours
    ports: HostPorts
    volumes: Volumes | None


class Around:
    """Answers as things are.

    Args:
        known: asked anew each time.
    """

    def __init__(self, known: Known) -> None:
        self._known = known

    def open_to(
        self, pod: Pod, meant: Callable[[], frozenset[str]] | None = None
    ) -> tuple[frozenset[str] | None, str, bool]:
        """The nodes open to a pod among others, why none is, and whether any of it can change.

        ``meant`` gives the nodes that it may use at all: others have no say in why it waits.
        Where there are none of them, the core says so.
        """
        nodes: frozenset[str] | None = None
        among: frozenset[str] | None = None
        around = False
        for open_nodes, words, what in self._conditions(pod):
            around = True
            if words:
                return frozenset(), words, True
            if open_nodes is None:
                continue
            if among is None:
                among = (meant() if meant is not None else frozenset()) or self._known.nodes.all()
            left = open_nodes & among
            if not left:
                return left, f"no node {what}", True
            nodes = left if nodes is None else nodes & left
        if nodes is not None and not nodes:
            return nodes, "no node satisfies all that it asks of its neighbours and volumes", True
        return nodes, "", around

    def _conditions(self, pod: Pod) -> Iterator[Condition]:
        """Each condition beyond the nodes themselves."""
        known = self._known
        if known.volumes is not None and claims_of(pod):
            reach = known.volumes.reach(pod, known.nodes)
            yield reach.nodes, reach.waits, "reaches all its volumes"
        if ports := ports_of(pod):
            yield known.nodes.all() - known.ports.taken(ports), "", "has its ports free"
        for found in spread_nodes(pod, known.nodes, known.neighbours):
            yield found, "", "would keep its pods evenly spread"
        if near := _own_terms(pod, near=True):
            yield self._near(pod, near), "", "has the pods beside it that it wants to be near to"
        held = known.neighbours.keep_others_away
        own, against = _own_terms(pod, near=False), known.neighbours.against(pod) if held else []
        if own or against:
            apart = known.nodes.all() - self._away(own, against)
            yield apart, "", "is free of the pods that it may not run beside"

    def _near(self, pod: Pod, terms: list[Term]) -> frozenset[str]:
        """Nodes beside pods that all terms select; the first of such pods may be anywhere."""
        nodes, neighbours = self._known.nodes, self._known.neighbours
        there = neighbours.where(terms)
        found = nodes.all()
        if there:
            for term in terms:
                found &= nodes.around(there, term.topology_key)
            return found
        meta = pod.metadata
        if not all(neighbours.selects(term, meta.namespace, meta.labels) for term in terms):
            return frozenset()
        for term in terms:
            found &= nodes.with_key(term.topology_key)
        return found

    def _away(
        self, own: Iterable[Term], against: Iterable[tuple[Term, Mapping[str, int]]]
    ) -> frozenset[str]:
        """Nodes that its own terms, or those of pods there, close to it."""
        nodes, neighbours = self._known.nodes, self._known.neighbours
        found: frozenset[str] = frozenset()
        for term in own:
            found |= nodes.around(neighbours.where((term,)), term.topology_key)
        for term, places in against:
            found |= nodes.around(places, term.topology_key)
        return found

    def apart(self, pod: Pod, *, together: bool) -> str:
        """By which label of nodes the pods of one workload keep apart."""
        meta = pod.metadata
        for term in _own_terms(pod, near=False):
            if self._known.neighbours.selects(term, meta.namespace, meta.labels):
                return level_key(term.topology_key)
        if together and (spread := constraints_of(pod)):
            return level_key(spread[0].topology_key)
        return HOST if ports_of(pod) else ""


def _own_terms(pod: Pod, *, near: bool) -> list[Term]:
    """Its required terms for, or against, being near to others."""
    affinity = pod.spec.affinity
    if affinity is None:
        return []
    side = affinity.pod_affinity if near else affinity.pod_anti_affinity
    return [] if side is None else [term_of(pod, term) for term in side.required]
