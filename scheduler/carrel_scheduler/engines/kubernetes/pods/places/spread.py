"""Spreading pods evenly over the values of a label of nodes (``DoNotSchedule``).

A value may take one more pod as long as it then has at most ``maxSkew`` more of the selected pods
than the value that has fewest. Constraints that are mere wishes are ``wishes``.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.places.neighbours import Neighbours, Term, term_of
from carrel_scheduler.engines.kubernetes.pods.places.node_terms import satisfies
from carrel_scheduler.engines.kubernetes.pods.places.nodes import NodeIndex, PlaceNode
from carrel_scheduler.engines.kubernetes.pods.taints import tolerated
from carrel_scheduler.engines.kubernetes.pods.types import Pod, PodTerm, SpreadConstraint

BINDING: Final = "DoNotSchedule"
HONOR: Final = "Honor"


def constraints_of(pod: Pod) -> list[SpreadConstraint]:
    """The constraints that bind."""
    spread = pod.spec.topology_spread_constraints
    return [one for one in spread if one.when_unsatisfiable == BINDING]


def spread_nodes(pod: Pod, index: NodeIndex, neighbours: Neighbours) -> Iterator[frozenset[str]]:
    """For each binding constraint the nodes where one more pod keeps the spread."""
    constraints = constraints_of(pod)
    keys = [one.topology_key for one in constraints]
    for one in constraints:
        nodes = [
            node
            for node in index.nodes()
            if all(key in node.labels for key in keys) and _counts(pod, one, node)
        ]
        yield _open(pod, one, nodes, neighbours)


def emptiest(
    pod: Pod, one: SpreadConstraint, index: NodeIndex, neighbours: Neighbours
) -> frozenset[str]:
    """The nodes whose value has fewest of the selected pods."""
    nodes = [n for n in index.nodes() if one.topology_key in n.labels and _counts(pod, one, n)]
    sums = _sums(one, nodes, neighbours.where((_term(pod, one),), living=True))
    fewest = min(sums.values(), default=0)
    return frozenset(n.name for n in nodes if sums[n.labels[one.topology_key]] == fewest)


def _sums(
    one: SpreadConstraint, nodes: Iterable[PlaceNode], there: Mapping[str, int]
) -> dict[str, int]:
    """How many of the selected pods each value has."""
    sums: dict[str, int] = {}
    for node in nodes:
        value = node.labels[one.topology_key]
        sums[value] = sums.get(value, 0) + there.get(node.name, 0)
    return sums


def _open(
    pod: Pod, one: SpreadConstraint, nodes: list[PlaceNode], neighbours: Neighbours
) -> frozenset[str]:
    term = _term(pod, one)
    sums = _sums(one, nodes, neighbours.where((term,), living=True))
    fewest = min(sums.values(), default=0)
    if one.min_domains is not None and len(sums) < one.min_domains:
        fewest = 0
    meta = pod.metadata
    more = int(neighbours.selects(term, meta.namespace, meta.labels))
    return frozenset(
        node.name
        for node in nodes
        if sums[node.labels[one.topology_key]] + more - fewest <= one.max_skew
    )


def _term(pod: Pod, one: SpreadConstraint) -> Term:
    return term_of(
        pod,
        PodTerm(one.topology_key, one.label_selector, match_label_keys=one.match_label_keys),
    )


def _counts(pod: Pod, one: SpreadConstraint, node: PlaceNode) -> bool:
    """Whether a node is among those over which pods are spread."""
    if one.node_affinity_policy == HONOR and not satisfies(pod.spec, node.labels, node.name):
        return False
    if one.node_taints_policy != HONOR:
        return True
    return all(tolerated(pod.spec.tolerations, taint) for taint in node.taints)
