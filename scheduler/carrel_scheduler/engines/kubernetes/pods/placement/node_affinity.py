"""Nodes by label, and node affinity of pods.

Selectors, affinity, tolerations, kinds of GPU, roles: what the core can express (one of these
values of a label) is passed to it as it is, so that it follows nodes that come and change. The rest
(``NotIn``, ``Gt``, several terms) becomes a set of names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd
from typing import Final

from carrel_scheduler.core.requests import GPU_RESOURCE, HOST, IN_GROUP
from carrel_scheduler.engines.kubernetes.pods.nodes import labels_of, role_for
from carrel_scheduler.engines.kubernetes.pods.resource_requests import (
    CLAIMED_GPUS,
    GPU_RESOURCES,
    PodRequests,
)
from carrel_scheduler.engines.kubernetes.pods.selectors import (
    NAME,
    PREFERS_NOT,
    hard,
    spelled_out,
    term_holds,
    tolerated,
    tolerations_of,
)
from carrel_scheduler.engines.kubernetes.pods.types import (
    Node,
    NodeAffinity,
    NodeTerm,
    PodSpec,
    PreferredNodes,
    Taint,
)
from carrel_scheduler.engines.mig_resources import held_milli

NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class PlaceNode:
    """The attributes of a node that placement constraints use."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    soft: tuple[Taint, ...]


class NodeIndex:
    """Nodes by label. ``version`` changes with every change that affects placement."""

    def __init__(self) -> None:
        self.version = 0
        self._nodes: dict[str, PlaceNode] = {}
        self._by_key: dict[str, dict[str, set[str]]] = {}
        self._kept: dict[str, tuple[int, frozenset[str]]] = {}

    def see(self, node: Node, group: str = "") -> None:
        """A node appeared or changed."""
        name = node.metadata.name
        soft = tuple(taint for taint in node.spec.taints if taint.effect == PREFERS_NOT)
        new = PlaceNode(name, labels_of(node, group), hard(node.spec.taints), soft)
        old = self._nodes.get(name)
        if old == new:
            return
        self._index(old, new)
        self._nodes[name] = new
        self.version += 1

    def drop(self, name: str) -> None:
        """A node left."""
        old = self._nodes.pop(name, None)
        if old is not None:
            self._index(old, None)
            self.version += 1

    def _index(self, old: PlaceNode | None, new: PlaceNode | None) -> None:
        before = {} if old is None else old.labels
        after = {} if new is None else new.labels
        for key, values in self._by_key.items():
            if before.get(key) == after.get(key):
                continue
            if old is not None and key in before:
                values[before[key]].discard(old.name)
            if new is not None and key in after:
                values.setdefault(after[key], set()).add(new.name)

    def all(self) -> frozenset[str]:
        """The names of all nodes."""
        return self._remember("", lambda: frozenset(self._nodes))

    def where(self, key: str) -> Mapping[str, set[str]]:
        """The names of nodes by value of a label."""
        values = self._by_key.get(key)
        if values is None:
            values = self._by_key[key] = {}
            for node in self._nodes.values():
                if key in node.labels:
                    values.setdefault(node.labels[key], set()).add(node.name)
        return values

    def with_key(self, key: str) -> frozenset[str]:
        """The names of the nodes with a label."""
        return frozenset(name for names in self.where(key).values() for name in names)

    def value(self, name: str, key: str) -> str | None:
        """The value of a node's label."""
        node = self._nodes.get(name)
        return None if node is None else node.labels.get(key)

    def around(self, names: Iterable[str], key: str) -> frozenset[str]:
        """The nodes that have the same value of a label as one of these."""
        values = {value for name in names if (value := self.value(name, key)) is not None}
        by_value = self.where(key)
        return frozenset(name for value in values for name in by_value.get(value, ()))

    def nodes(self) -> Iterable[PlaceNode]:
        """All nodes."""
        return self._nodes.values()

    def taints(self) -> Iterable[Taint]:
        """The taints of all nodes."""
        return {taint_key(t): t for node in self._nodes.values() for t in node.taints}.values()

    @property
    def has_soft_taints(self) -> bool:
        """Whether some node would rather be left alone."""
        return bool(self._remember("soft", self._soft))

    def _soft(self) -> frozenset[str]:
        return frozenset(node.name for node in self._nodes.values() if node.soft)

    @property
    def mixes_gpus(self) -> bool:
        """Whether GPUs are asked for by several names, or on some node by claims only."""
        there = {resource for resource, names in self.where(GPU_RESOURCE).items() if names}
        return len(there) > 1 or CLAIMED_GPUS in there

    def _remember(self, what: str, find: Callable[[], frozenset[str]]) -> frozenset[str]:
        kept = self._kept.get(what)
        if kept is None or kept[0] != self.version:
            kept = self._kept[what] = (self.version, find())
        return kept[1]


def taint_key(taint: Taint) -> tuple[str, str, str]:
    """A taint as something to compare."""
    return taint.key, taint.value, taint.effect


Label = tuple[str, frozenset[str]]
Labels = tuple[Label, ...]
MOST_WISHES: Final = 10
"""A weight counts for so many preferences at most."""


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """The required and preferred node terms of a pod.

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
    needs: PodRequests,
    index: NodeIndex,
    groups: frozenset[str] | None = None,
    *,
    by_role: bool = False,
    liked: Sequence[tuple[frozenset[str], int]] = (),
) -> NodeTerms:
    """The terms that a pod requires and prefers of nodes.

    Args:
        spec: of the pod.
        needs: of the pod, for the kind of node that serves it.
        index: the nodes that there are.
        groups: the node groups that its project may use for such work; ``None`` for all.
        by_role: whether nodes take only work of their roles.
        liked: names of nodes that are wished for beside, with weights from 1 to 100.
    """
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    labels = [(key, frozenset({value})) for key, value in sorted(spec.node_selector.items())]
    labels += _for_needs(needs, index, by_role=by_role)
    if groups is not None:
        labels.append((IN_GROUP, groups))
    required, nodes = _required(affinity, index)
    preferences, worked_out = _preferred(affinity, index, liked)
    avoided = _untainted(spec, index)
    if avoided is not None:
        preferences = (*preferences, (HOST, avoided))
    odd = [toleration for toleration in spec.tolerations if spelled_out(toleration)]
    return NodeTerms(
        labels=(*labels, *required),
        preferred=preferences,
        tolerations=tolerations_of(spec.tolerations, index.taints() if odd else ()),
        nodes=nodes,
        of_nodes=nodes is not None or worked_out or avoided is not None or bool(odd),
    )


def _for_needs(needs: PodRequests, index: NodeIndex, *, by_role: bool) -> Labels:
    """GPUs of the right vendor, where there are several; and the role that serves such work."""
    found: list[tuple[str, frozenset[str]]] = []
    part = needs.share or needs.mig_profile
    resource = needs.gpu_resource or (GPU_RESOURCES[0] if part else "")
    if resource and (resource != GPU_RESOURCES[0] or index.mixes_gpus):
        found.append((GPU_RESOURCE, frozenset({resource})))
    if by_role:
        gpus = needs.gpus or part or held_milli(needs.extended) or needs.parts_milli
        found.append(role_for(gpus=bool(gpus)))
    return tuple(found)


def _required(
    affinity: NodeAffinity | None, index: NodeIndex
) -> tuple[Labels, frozenset[str] | None]:
    """The required terms that the core can express, and the nodes that satisfy the rest."""
    if affinity is None or affinity.required is None:
        return (), None
    terms = [term for term in affinity.required.node_selector_terms if _constrains(term)]
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
    return plain, _nodes_of([rest], index) if _constrains(rest) else None


def _constrains(term: NodeTerm) -> bool:
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
    """Preferences, each repeated by its weight; and whether any is a set of names."""
    of_nodes = () if affinity is None else affinity.preferred
    given = [(_preference(preference, index), preference.weight) for preference in of_nodes]
    given += [((HOST, nodes), weight) for nodes, weight in liked]
    found = [label for label, times in _weighed(given) for _ in range(times)]
    return tuple(found), any(key == HOST for key, _ in found)


def _preference(preference: PreferredNodes, index: NodeIndex) -> tuple[str, frozenset[str]]:
    """The preferred nodes, as a label where one suffices."""
    only = preference.preference.match_expressions
    if len(only) == 1 and only[0].operator == "In" and not preference.preference.match_fields:
        return only[0].key, frozenset(only[0].values)
    return HOST, _nodes_of([preference.preference], index)


def _weighed(given: Sequence[tuple[Label, int]]) -> list[tuple[Label, int]]:
    """Preferred labels, with weights reduced to small numbers of about the same ratio."""
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
