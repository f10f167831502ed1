"""Who runs beside whom: terms over pods, counted over the nodes where pods are.

A *count* follows all placed pods that a term selects, so a question costs no look at pods. Terms of
equal text share one. ``held`` are the terms with which placed pods keep others away: they bind
whoever comes, as Kubernetes has it.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from carrel_scheduler.engines.kubernetes.pods.selecting import selects
from carrel_scheduler.engines.kubernetes.pods.types import (
    Namespace,
    Pod,
    PodTerm,
    Requirement,
    Selector,
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
    """A term of a pod in some namespace; ``text`` tells all apart.

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
    """How many pods that all ``terms`` select are on each node."""

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
    """All placed pods.

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
        """A pod is gone from its node."""
        old = self._pods.pop(uid, None)
        if old is None:
            return
        self._count(old, -1)
        for term in self._holders.pop(uid, ()):
            self._add_held(term, old.node, -1)

    def set_namespace(self, namespace: Namespace) -> None:
        """A namespace appeared or changed its labels."""
        name, labels = namespace.metadata.name, namespace.metadata.labels
        if self._namespaces.get(name) != labels:
            self._namespaces[name] = labels
            self._recount()

    def drop_namespace(self, name: str) -> None:
        """A namespace is gone, with all its pods."""
        self._namespaces.pop(name, None)

    def where(self, terms: Iterable[Term], *, living: bool = False) -> Mapping[str, int]:
        """Node -> how many pods there are selected by all of these terms.

        Args:
            terms: of one pod.
            living: leave out pods that were told to end.
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
        """One more or less; only the first and the last matter to who asks for nodes."""
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
