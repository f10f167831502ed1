"""What a pod asks of nodes themselves: selectors, affinity, tolerations, kinds of GPU, roles.

What the core can say (one of these values of a label) goes to it as it is, so that it follows
nodes that come and change. The rest (``NotIn``, ``Gt``, several terms) becomes a set of names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd
from typing import Final

from carrel_scheduler.core.requests import HOST
from carrel_scheduler.engines.kubernetes.pods.needs import GPU_RESOURCES, Needs
from carrel_scheduler.engines.kubernetes.pods.nodes import (
    GPU_RESOURCE,
    IN_GROUP,
    role_for,
)
from carrel_scheduler.engines.kubernetes.pods.places.nodes import NodeIndex, PlaceNode
from carrel_scheduler.engines.kubernetes.pods.selecting import NAME, term_holds
from carrel_scheduler.engines.kubernetes.pods.taints import (
    spelled_out,
    tolerated,
    tolerations_of,
)
from carrel_scheduler.engines.kubernetes.pods.types import (
    NodeAffinity,
    NodeTerm,
    PodSpec,
    PreferredNodes,
)
from carrel_scheduler.engines.mig_resources import held_milli

Label = tuple[str, frozenset[str]]
Labels = tuple[Label, ...]
MOST_WISHES: Final = 10
"""A weight counts for so many wishes at most."""


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """What a pod asks of nodes.

    Attributes:
        labels, preferred, tolerations: as in the core's ``Where``.
        nodes: when given, only these.
        of_nodes: whether this has to be worked out again when nodes change.
    """

    labels: Labels
    preferred: Labels
    tolerations: frozenset[str]
    nodes: frozenset[str] | None
    of_nodes: bool


def node_terms(
    spec: PodSpec,
    needs: Needs,
    index: NodeIndex,
    groups: frozenset[str] | None = None,
    *,
    by_role: bool = False,
    liked: Sequence[tuple[frozenset[str], int]] = (),
) -> NodeTerms:
    """What a pod asks of nodes.

    Args:
        spec: of the pod.
        needs: of the pod, for the kind of node that serves it.
        index: the nodes that there are.
        groups: the node groups that its project may use for such work; ``None`` for all.
        by_role: whether nodes take only the work that their roles say.
        liked: names of nodes that are wished for beside, with weights from 1 to 100.
    """
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    labels = [(key, frozenset({value})) for key, value in sorted(spec.node_selector.items())]
    labels += _for_needs(needs, index, by_role=by_role)
    if groups is not None:
        labels.append((IN_GROUP, groups))
    required, nodes = _required(affinity, index)
    wishes, worked_out = _preferred(affinity, index, liked)
    avoided = _untainted(spec, index)
    if avoided is not None:
        wishes = (*wishes, (HOST, avoided))
    odd = [toleration for toleration in spec.tolerations if spelled_out(toleration)]
    return NodeTerms(
        labels=(*labels, *required),
        preferred=wishes,
        tolerations=tolerations_of(spec.tolerations, index.taints() if odd else ()),
        nodes=nodes,
        of_nodes=nodes is not None or worked_out or avoided is not None or bool(odd),
    )


def _for_needs(needs: Needs, index: NodeIndex, *, by_role: bool) -> Labels:
    """GPUs of the right vendor, where there are several; and the role that serves such work."""
    found: list[tuple[str, frozenset[str]]] = []
    resource = needs.gpu_resource
    if resource and (resource != GPU_RESOURCES[0] or index.kinds_of_gpu > 1):
        found.append((GPU_RESOURCE, frozenset({resource})))
    if by_role:
        gpus = needs.gpus or held_milli(needs.extended)
        found.append(role_for(gpus=bool(gpus)))
    return tuple(found)


def _required(
    affinity: NodeAffinity | None, index: NodeIndex
) -> tuple[Labels, frozenset[str] | None]:
    """What the core can say of the required terms, and the nodes that satisfy the rest."""
    if affinity is None or affinity.required is None:
        return (), None
    terms = [term for term in affinity.required.node_selector_terms if _says_something(term)]
    if len(terms) != 1:
        return (), _nodes_of(terms, index)
    plain = tuple(
        (one.key, frozenset(one.values))
        for one in terms[0].match_expressions
        if one.operator == "In"
    )
    fields = [one for one in terms[0].match_fields if one.operator == "In" and one.key == NAME]
    plain += tuple((HOST, frozenset(one.values)) for one in fields)
    rest = NodeTerm(
        tuple(one for one in terms[0].match_expressions if one.operator != "In"),
        tuple(one for one in terms[0].match_fields if one not in fields),
    )
    return plain, _nodes_of([rest], index) if _says_something(rest) else None


def _says_something(term: NodeTerm) -> bool:
    return bool(term.match_expressions or term.match_fields)


def _nodes_of(terms: Iterable[NodeTerm], index: NodeIndex) -> frozenset[str]:
    terms = list(terms)
    return frozenset(
        node.name
        for node in index.nodes()
        if any(term_holds(term, node.labels, node.name) for term in terms)
    )


def _preferred(
    affinity: NodeAffinity | None, index: NodeIndex, liked: Sequence[tuple[frozenset[str], int]]
) -> tuple[Labels, bool]:
    """Wishes, each as often as its weight says; and whether any is a set of names."""
    of_nodes = () if affinity is None else affinity.preferred
    given = [(_wish(wish, index), wish.weight) for wish in of_nodes]
    given += [((HOST, nodes), weight) for nodes, weight in liked]
    found = [label for label, times in _weighed(given) for _ in range(times)]
    return tuple(found), any(key == HOST for key, _ in found)


def _wish(wish: PreferredNodes, index: NodeIndex) -> tuple[str, frozenset[str]]:
    """The nodes that it likes, by a label where that says it all."""
    only = wish.preference.match_expressions
    if len(only) == 1 and only[0].operator == "In" and not wish.preference.match_fields:
        return only[0].key, frozenset(only[0].values)
    return HOST, _nodes_of([wish.preference], index)


def _weighed(given: Sequence[tuple[Label, int]]) -> list[tuple[Label, int]]:
    """Wishes with their weights in small numbers of the same ratio, about."""
    weights = [weight for _, weight in given if weight > 0]
    if not weights:
        return []
    step = max(gcd(*weights), max(weights) / MOST_WISHES)
    return [(label, ceil(weight / step)) for label, weight in given if weight > 0]


def _untainted(spec: PodSpec, index: NodeIndex) -> frozenset[str] | None:
    """The nodes that would not rather be left alone by this pod; ``None`` if all are such."""
    if not index.has_soft_taints:
        return None
    found = frozenset(
        node.name
        for node in index.nodes()
        if all(tolerated(spec.tolerations, taint) for taint in node.soft)
    )
    return None if len(found) == len(index.all()) else found


def satisfies(spec: PodSpec, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node satisfies selector and required affinity of a pod (not its taints)."""
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(term_holds(term, labels, name) for term in affinity.required.node_selector_terms)


def may_use(spec: PodSpec, terms: NodeTerms, index: NodeIndex) -> frozenset[str]:
    """The nodes that are meant at all: those that selectors, groups and taints leave to a pod."""
    return frozenset(
        node.name
        for node in index.nodes()
        if (terms.nodes is None or node.name in terms.nodes)
        and all(_value(node, key) in values for key, values in terms.labels)
        and all(tolerated(spec.tolerations, taint) for taint in node.taints)
    )


def _value(node: PlaceNode, key: str) -> str | None:
    return node.name if key == HOST else node.labels.get(key)
