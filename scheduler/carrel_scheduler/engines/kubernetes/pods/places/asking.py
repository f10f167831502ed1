"""What a pod asks of the core: its needs, and where it may run as things are.

An answer is kept by the text of the pod's specification, since thousands of pods are made from a
few templates, and worked out again only when what it depends on has changed.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from carrel_scheduler.core.requests import Request, Where
from carrel_scheduler.engines.kubernetes.pods.needs import needs_of
from carrel_scheduler.engines.kubernetes.pods.node_groups import (
    NodeGroups,
    asked_group,
    asks_for_group,
)
from carrel_scheduler.engines.kubernetes.pods.places.around import Around
from carrel_scheduler.engines.kubernetes.pods.places.attached import Attached
from carrel_scheduler.engines.kubernetes.pods.places.neighbours import (
    Neighbours,
)
from carrel_scheduler.engines.kubernetes.pods.places.node_terms import may_use, node_terms
from carrel_scheduler.engines.kubernetes.pods.places.nodes import NodeIndex
from carrel_scheduler.engines.kubernetes.pods.places.ports import HostPorts
from carrel_scheduler.engines.kubernetes.pods.places.volumes import (
    Decision,
    Volumes,
    claims_of,
)
from carrel_scheduler.engines.kubernetes.pods.places.wishes import has_wishes, wishes_of
from carrel_scheduler.engines.kubernetes.pods.requests import request_of
from carrel_scheduler.engines.kubernetes.pods.sharing import not_offered
from carrel_scheduler.engines.kubernetes.pods.types import Namespace, Node, Pod

MOST_KEPT: Final = 20_000
MOST_NAMED: Final = 8
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pod asks for, as things are.

    Attributes:
        request: for the core.
        waits: why no node serves it for now, for reasons that the core does not know; in words,
            such as ``its volume claim `data` does not exist``. It is not queued until that ends.
        follows: the answer may become another one: ask again when ``Places.version`` changed; every
            other pod, when ``Places.manner`` did.
        checked: pods that are placed in the same turn may come in its way: ask
            ``Places.still_fits`` before it is bound.
    """

    request: Request
    waits: str = ""
    follows: bool = False
    checked: bool = False


@dataclass(slots=True)
class _Kept:
    ask: Ask
    versions: tuple[int, ...]


class Places:
    """All nodes, and what placed pods, claims and volumes mean for who may run where.

    Args:
        volumes: claims and volumes, if they are followed; else claims do not matter.
        by_role: nodes take only the work that their roles say.
    """

    def __init__(self, volumes: Volumes | None = None, *, by_role: bool = False) -> None:
        self.nodes = NodeIndex()
        self.neighbours = Neighbours()
        self.ports = HostPorts()
        self.attached = Attached()
        self.volumes = volumes
        self.groups = NodeGroups(by_role=by_role)
        self._around = Around(self)
        self._kept: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()

    @property
    def version(self) -> int:
        """Changes when an answer that ``follows`` may have become another one."""
        return sum(self._versions())

    @property
    def manner(self) -> tuple[int, int, bool, bool]:
        """Changes when any answer may have become another one, which is rare."""
        nodes = self.nodes
        return (
            self.neighbours.held_version,
            self.groups.version,
            nodes.kinds_of_gpu > 1,
            nodes.has_soft_taints,
        )

    def _versions(self) -> tuple[int, ...]:
        volumes = 0 if self.volumes is None else self.volumes.version
        return (self.nodes.version, self.neighbours.version, self.ports.version, volumes)

    # What is heard

    def set_node(self, node: Node) -> None:
        """A node appeared or changed, or the groups did."""
        self.nodes.see(node, self.groups.of(node))

    def drop_node(self, name: str) -> None:
        """A node left."""
        self.nodes.drop(name)

    def put_pod(self, pod: Pod, node: str = "") -> None:
        """A pod, of whomever, is on its node, or will be on ``node``."""
        self.neighbours.put(pod, node)
        self.ports.put(pod, node)
        self.attached.put(pod, node)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone, or will not be on the node after all."""
        self.neighbours.drop(uid)
        self.ports.drop(uid)
        self.attached.drop(uid)
        if self.volumes is not None:
            self.volumes.undo(uid)

    def set_namespace(self, namespace: Namespace) -> None:
        """A namespace appeared or changed."""
        self.neighbours.set_namespace(namespace)

    def drop_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self.neighbours.drop_namespace(name)

    # What is asked

    def ask(self, pod: Pod, groups: frozenset[str] | None = None, *, together: bool = False) -> Ask:
        """What a pod asks for as things are.

        Args:
            pod: one that waits.
            groups: the node groups that are open to it (``groups.open_to``); ``None`` for all.
            together: it starts together with others like it. A spread over the values of a label
                then means one pod for each value.

        Raises:
            PodRefused: it can not be placed as it is written.
        """
        groups = asked_group(pod, groups)
        key = self._key(pod, groups, together=together)
        kept = self._kept.get(key)
        if kept is not None and (not kept.ask.follows or kept.versions == self._versions()):
            self._kept.move_to_end(key)
            return kept.ask
        ask = self._ask(pod, groups, together=together)
        self._kept[key] = _Kept(ask, self._versions())
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return ask

    def still_fits(self, pod: Pod, node: str) -> bool:
        """Whether a node still serves a pod, now that others have been given their places."""
        open_nodes, _, _ = self._around.open_to(pod)
        return open_nodes is None or node in open_nodes

    def reach(self, namespace: str, claims: Iterable[str]) -> frozenset[str] | None:
        """The nodes from which claims can be reached as things are; ``None`` for all.

        Where one is missing or has no volume yet, nothing is said of it.
        """
        if self.volumes is None:
            return None
        found: frozenset[str] | None = None
        for name in claims:
            nodes = self.volumes.reach_claims(namespace, (name,), self.nodes).nodes
            if self.volumes.is_of_one_node(namespace, name):
                nodes = self.attached.nodes(namespace, name) or nodes
            if nodes is not None:
                found = nodes if found is None else found & nodes
        return found

    def is_of_one_node(self, namespace: str, claim: str) -> bool:
        """Whether pods of several nodes can not use a claim at once, as far as is known."""
        return self.volumes is not None and self.volumes.is_of_one_node(namespace, claim)

    @property
    def volumes_version(self) -> tuple[int, int]:
        """Changes when ``reach`` may give another answer."""
        volumes = 0 if self.volumes is None else self.volumes.version
        return self.nodes.version + volumes, self.attached.version

    def decide(self, pod: Pod, node: str) -> tuple[Decision, ...]:
        """What is to be written about its claims before it is bound; it counts from now on."""
        if self.volumes is None or not pod.spec.volumes:
            return ()
        return self.volumes.decide(pod, node, self.nodes)

    def _key(
        self, pod: Pod, groups: frozenset[str] | None, *, together: bool
    ) -> tuple[object, ...]:
        text = _encode((pod.spec, pod.metadata.annotations))
        key: tuple[object, ...] = (text, groups, together, self.manner)
        if not (self.neighbours.keep_others_away or _looks_around(pod)):
            return key
        meta = pod.metadata
        own = meta.name if claims_of(pod) else ""
        return (*key, meta.namespace, own, tuple(sorted(meta.labels.items())))

    def _ask(self, pod: Pod, groups: frozenset[str] | None, *, together: bool) -> Ask:
        needs = needs_of(pod)
        if needs.share is not None:
            raise not_offered(pod.metadata.annotations)
        liked = wishes_of(pod, self.nodes, self.neighbours)
        by_role = self.groups.by_role
        terms = node_terms(pod.spec, needs, self.nodes, groups, by_role=by_role, liked=liked)
        nodes, waits, around = self._around.open_to(
            pod, lambda: may_use(pod.spec, terms, self.nodes)
        )
        if nodes is None:
            nodes = terms.nodes
        if not waits:
            waits = self._without_group(pod)
        if not waits and terms.nodes is not None:
            waits = _none_of(terms.nodes, "is as its node affinity asks")
        where = Where(
            nodes=nodes,
            labels=terms.labels,
            preferred=terms.preferred,
            tolerations=terms.tolerations,
            apart=self._around.apart(pod, together=together),
        )
        return Ask(
            request=request_of(needs, where),
            waits=waits,
            follows=terms.of_nodes or around or bool(waits) or has_wishes(pod),
            checked=around,
        )

    def _without_group(self, pod: Pod) -> str:
        """That it asks for a group of nodes that is not there."""
        asked = asks_for_group(pod)
        there = self.groups.names()
        if not asked or asked in there:
            return ""
        names = ", ".join(f"`{name}`" for name in sorted(there)[:MOST_NAMED])
        return f"there is no node group `{asked}`{f'; there are {names}' if names else ''}"


def _looks_around(pod: Pod) -> bool:
    """Whether its answer depends on its own name, namespace or labels."""
    affinity = pod.spec.affinity
    between = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    return bool(between or claims_of(pod) or pod.spec.topology_spread_constraints)


def _none_of(nodes: frozenset[str] | None, what: str) -> str:
    return f"no node {what}" if nodes is not None and not nodes else ""
