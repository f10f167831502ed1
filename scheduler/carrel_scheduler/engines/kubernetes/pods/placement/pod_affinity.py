"""Affinity between pods, and topology spread.

A *count* follows all placed pods that a term selects, so answering needs no scan of pods. Terms of
equal text share one. ``held`` are the anti-affinity terms of placed pods: they bind new pods, too,
as in Kubernetes.

Spread: a value may take one more pod as long as it then has at most ``maxSkew`` more of the
selected pods than the value that has fewest. Preferences never keep a pod waiting.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from carrel_scheduler.engines.kubernetes.pods.placement.node_affinity import (
    NodeIndex,
    PlaceNode,
    satisfies,
)
from carrel_scheduler.engines.kubernetes.pods.selectors import selects, tolerated
from carrel_scheduler.engines.kubernetes.pods.types import (
    Namespace,
    Pod,
    PodTerm,
    Requirement,
    Selector,
    SpreadConstraint,
    WeightedPodTerm,
)

MOST_COUNTS: Final = 2_000
_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod on a node."""

    namespace: str
    labels: Mapping[str, str]
    node: str
    ending: bool


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """A term of a pod in its namespace; ``text`` identifies it.

    Attributes:
        namespaces: where it looks, beside the namespaces that ``of_namespaces`` selects.
    """

    text: bytes
    topology_key: str
    selector: Selector | None
    namespaces: frozenset[str]
    of_namespaces: Selector | None


@dataclass(slots=True)
class Count:
    """The number of pods on each node that all ``terms`` select."""

    terms: tuple[Term, ...]
    living: bool
    by_node: Counter[str] = field(default_factory=Counter)


def term_of(pod: Pod, term: PodTerm) -> Term:
    """A term as it stands for this pod: with its namespace, and its own values of label keys."""
    labels = pod.metadata.labels
    own = tuple(
        Requirement(key, operator, (labels[key],))
        for operator, keys in (("In", term.match_label_keys), ("NotIn", term.mismatch_label_keys))
        for key in keys
        if key in labels
    )
    selector = term.label_selector
    if own and selector is not None:
        selector = Selector(selector.match_labels, (*selector.match_expressions, *own))
    named = frozenset(term.namespaces)
    if not named and term.namespace_selector is None:
        named = frozenset({pod.metadata.namespace})
    text = _encode((term.topology_key, selector, sorted(named), term.namespace_selector))
    return Term(text, term.topology_key, selector, named, term.namespace_selector)


class Neighbours:
    """The placed pods, for affinity between pods.

    Attributes:
        version: changes when a term may be answered differently.
        held_version: changes when there is another term by which placed pods keep others away.
    """

    def __init__(self) -> None:
        self.version = 0
        self.held_version = 0
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._pods: dict[str, Placed] = {}
        self._counts: OrderedDict[tuple[bytes, ...], Count] = OrderedDict()
        self._held: dict[bytes, tuple[Term, Counter[str]]] = {}
        self._holders: dict[str, tuple[Term, ...]] = {}

    def put(self, pod: Pod, node: str = "") -> None:
        """A pod is on a node, or will be; one that ended is nowhere."""
        uid, node = pod.metadata.uid, node or pod.spec.node_name
        if pod.ended or not node:
            self.drop(uid)
            return
        meta = pod.metadata
        ending = meta.deletion_timestamp is not None
        new = Placed(meta.namespace, meta.labels, node, ending)
        old = self._pods.get(uid)
        if old == new:
            return
        if old is not None:
            self.drop(uid)
        self._pods[uid] = new
        self._count(new, 1)
        self._hold(uid, pod, node)

    def drop(self, uid: str) -> None:
        """Remove a pod from its node."""
        old = self._pods.pop(uid, None)
        if old is None:
            return
        self._count(old, -1)
        for term in self._holders.pop(uid, ()):
            self._add_held(term, old.node, -1)

    def set_namespace(self, namespace: Namespace) -> None:
        """Handle a namespace that is new or has other labels."""
        name, labels = namespace.metadata.name, namespace.metadata.labels
        if self._namespaces.get(name) != labels:
            self._namespaces[name] = labels
            self._recount()

    def drop_namespace(self, name: str) -> None:
        """Handle a deleted namespace, with all its pods."""
        self._namespaces.pop(name, None)

    def where(self, terms: Iterable[Term], *, living: bool = False) -> Mapping[str, int]:
        """The number of pods on each node that all of these terms select.

        Args:
            terms: of one pod.
            living: leave out terminating pods.
        """
        terms = tuple(terms)
        key = (b"living" if living else b"", *(term.text for term in terms))
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = Count(terms, living)
            self._fill(count)
            if len(self._counts) > MOST_COUNTS:
                self._counts.popitem(last=False)
        self._counts.move_to_end(key)
        return count.by_node

    @property
    def keep_others_away(self) -> bool:
        """Whether some placed pod has a term against others."""
        return bool(self._held)

    def against(self, pod: Pod) -> list[tuple[Term, Mapping[str, int]]]:
        """The terms of placed pods that keep this pod away, and the nodes where their pods are."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        return [
            (term, nodes)
            for term, nodes in self._held.values()
            if self.selects(term, namespace, labels)
        ]

    def selects(self, term: Term, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a term selects a pod with these labels in this namespace."""
        there = namespace in term.namespaces or (
            term.of_namespaces is not None
            and selects(term.of_namespaces, self._namespaces.get(namespace, {}))
        )
        return there and selects(term.selector, labels)

    def _hold(self, uid: str, pod: Pod, node: str) -> None:
        affinity = pod.spec.affinity
        if affinity is None or affinity.pod_anti_affinity is None:
            return
        terms = tuple(term_of(pod, term) for term in affinity.pod_anti_affinity.required)
        if terms:
            self._holders[uid] = terms
            for term in terms:
                self._add_held(term, node, 1)

    def _add_held(self, term: Term, node: str, sign: int) -> None:
        if term.text not in self._held:
            self._held[term.text] = (term, Counter())
            self.held_version += 1
        nodes = self._held[term.text][1]
        self._add(nodes, node, sign)
        if not nodes:
            del self._held[term.text]
            self.held_version += 1

    def _count(self, placed: Placed, sign: int) -> None:
        for count in self._counts.values():
            if self._counted(count, placed):
                self._add(count.by_node, placed.node, sign)
                self.version += count.living

    def _counted(self, count: Count, placed: Placed) -> bool:
        if count.living and placed.ending:
            return False
        return all(self.selects(term, placed.namespace, placed.labels) for term in count.terms)

    def _add(self, nodes: Counter[str], node: str, sign: int) -> None:
        """Count a pod more or less on a node; others see only the first and the last."""
        nodes[node] += sign
        if nodes[node] <= 0:
            del nodes[node]
            self.version += 1
        elif sign > 0 and nodes[node] == 1:
            self.version += 1

    def _fill(self, count: Count) -> None:
        found = (placed.node for placed in self._pods.values() if self._counted(count, placed))
        count.by_node = Counter(found)

    def _recount(self) -> None:
        for count in self._counts.values():
            if any(term.of_namespaces is not None for term in count.terms):
                self._fill(count)
                self.version += 1
        self.version += any(term.of_namespaces is not None for term, _ in self._held.values())


BINDING: Final = "DoNotSchedule"
HONOR: Final = "Honor"


def constraints_of(pod: Pod) -> list[SpreadConstraint]:
    """The required constraints."""
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
    """The nodes in domains with the fewest selected pods."""
    nodes = [n for n in index.nodes() if one.topology_key in n.labels and _counts(pod, one, n)]
    sums = _sums(one, nodes, neighbours.where((_term(pod, one),), living=True))
    fewest = min(sums.values(), default=0)
    return frozenset(n.name for n in nodes if sums[n.labels[one.topology_key]] == fewest)


def _sums(
    one: SpreadConstraint, nodes: Iterable[PlaceNode], there: Mapping[str, int]
) -> dict[str, int]:
    """The number of the selected pods of each value."""
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
    """Whether a node belongs to the domains over which pods are spread."""
    if one.node_affinity_policy == HONOR and not satisfies(pod.spec, node.labels, node.name):
        return False
    if one.node_taints_policy != HONOR:
        return True
    return all(tolerated(pod.spec.tolerations, taint) for taint in node.taints)


SPREAD_WEIGHT: Final = 50
Preference = tuple[frozenset[str], int]
"""Nodes, and how much they are wished for, from 1 to 100."""


def has_wishes(pod: Pod) -> bool:
    """Whether the pod prefers or avoids any neighbours."""
    return bool(_preferred_affinity(pod) or _preferred_anti_affinity(pod) or _preferred_spread(pod))


def preferences_of(pod: Pod, index: NodeIndex, neighbours: Neighbours) -> list[Preference]:
    """The preferences of a pod on the present nodes, but for those that all or none fulfil."""
    found = _found(pod, index, neighbours)
    return [(nodes, weight) for nodes, weight in found if nodes and nodes != index.all()]


def _found(pod: Pod, index: NodeIndex, neighbours: Neighbours) -> Iterator[Preference]:
    for preference, is_near in [(one, True) for one in _preferred_affinity(pod)] + [
        (o, False) for o in _preferred_anti_affinity(pod)
    ]:
        term = term_of(pod, preference.pod_affinity_term)
        beside = index.around(neighbours.where((term,)), term.topology_key)
        yield (beside if is_near else index.all() - beside), preference.weight
    for constraint in _preferred_spread(pod):
        yield emptiest(pod, constraint, index, neighbours), SPREAD_WEIGHT


def _preferred_affinity(pod: Pod) -> tuple[WeightedPodTerm, ...]:
    affinity = pod.spec.affinity
    side = None if affinity is None else affinity.pod_affinity
    return () if side is None else side.preferred


def _preferred_anti_affinity(pod: Pod) -> tuple[WeightedPodTerm, ...]:
    affinity = pod.spec.affinity
    side = None if affinity is None else affinity.pod_anti_affinity
    return () if side is None else side.preferred


def _preferred_spread(pod: Pod) -> list[SpreadConstraint]:
    spread = pod.spec.topology_spread_constraints
    return [one for one in spread if one.when_unsatisfiable != BINDING]
