"""The nodes that there are, by name and by the values of their labels."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.nodes import GPU_RESOURCE, labels_of
from carrel_scheduler.engines.kubernetes.pods.taints import PREFERS_NOT, hard
from carrel_scheduler.engines.kubernetes.pods.types import Node, Taint

NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class PlaceNode:
    """What of a node decides who may run there."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    soft: tuple[Taint, ...]


class NodeIndex:
    """Nodes by label. ``version`` changes with everything that decides who may run where."""

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

    def __contains__(self, name: str) -> bool:
        """Whether there is a node of this name."""
        return name in self._nodes

    def all(self) -> frozenset[str]:
        """The names of all nodes."""
        return self._remember("", lambda: frozenset(self._nodes))

    def where(self, key: str) -> Mapping[str, set[str]]:
        """Value of a label -> names of the nodes that have it."""
        values = self._by_key.get(key)
        if values is None:
            values = self._by_key[key] = {}
            for node in self._nodes.values():
                if key in node.labels:
                    values.setdefault(node.labels[key], set()).add(node.name)
        return values

    def with_key(self, key: str) -> frozenset[str]:
        """The names of the nodes that have a label."""
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
        """The taints that there are."""
        return {taint_key(t): t for node in self._nodes.values() for t in node.taints}.values()

    @property
    def has_soft_taints(self) -> bool:
        """Whether some node would rather be left alone."""
        return bool(self._remember("soft", self._soft))

    def _soft(self) -> frozenset[str]:
        return frozenset(node.name for node in self._nodes.values() if node.soft)

    @property
    def kinds_of_gpu(self) -> int:
        """By how many different names GPUs are asked for."""
        return sum(1 for names in self.where(GPU_RESOURCE).values() if names)

    def _remember(self, what: str, find: Callable[[], frozenset[str]]) -> frozenset[str]:
        kept = self._kept.get(what)
        if kept is None or kept[0] != self.version:
            kept = self._kept[what] = (self.version, find())
        return kept[1]


def taint_key(taint: Taint) -> tuple[str, str, str]:
    """A taint as something to compare."""
    return taint.key, taint.value, taint.effect
