"""A pod's constraints for the core: its resource request, and the nodes where it may run now.

The core knows labels, taints and sets of nodes. Everything else (other pods, ports, volumes)
becomes a set of nodes here, and is evaluated again when what it depends on has changed. An answer
is cached by the text of the pod's specification, since thousands of pods are made from a few
templates.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from cachetools import LRUCache

from carrel_scheduler.core.requests import HOST, NodeConstraint, Request
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.labels import level_key
from carrel_scheduler.engines.kubernetes.pods.node_groups import (
    NodeGroups,
    asked_group,
    asks_for_group,
)
from carrel_scheduler.engines.kubernetes.pods.placement.node_affinity import (
    NodeIndex,
    may_use,
    node_terms,
)
from carrel_scheduler.engines.kubernetes.pods.placement.pod_affinity import (
    Neighbours,
    Term,
    constraints_of,
    has_wishes,
    preferences_of,
    spread_nodes,
    term_of,
)
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import (
    ClaimUsers,
    Decision,
    Volumes,
    claims_of,
)
from carrel_scheduler.engines.kubernetes.pods.resource_requests import (
    needs_of,
    request_of,
)
from carrel_scheduler.engines.kubernetes.pods.types import Namespace, Node, Pod

Taken = tuple[str, str, int]
"""Address, protocol, port."""
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - compared with, never bound


def ports_of(pod: Pod) -> frozenset[Taken]:
    """The host ports of a pod."""
    return frozenset(
        (port.host_ip or EVERYWHERE, port.protocol, port.host_port)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for port in container.ports
        if port.host_port
    )


class HostPorts:
    """The host ports of placed pods; ``version`` changes with them."""

    def __init__(self) -> None:
        self.version = 0
        self._pods: dict[str, tuple[str, frozenset[Taken]]] = {}
        self._nodes: dict[tuple[str, int], dict[str, list[str]]] = {}

    def put(self, pod: Pod, node: str = "") -> None:
        """A pod is on a node, or will be."""
        uid, node = pod.metadata.uid, node or pod.spec.node_name
        ports = ports_of(pod) if node and not pod.ended else frozenset()
        if self._pods.get(uid, ("", frozenset())) == (node if ports else "", ports):
            return
        self.drop(uid)
        if ports:
            self._pods[uid] = (node, ports)
            for address, protocol, port in ports:
                on_node = self._nodes.setdefault((protocol, port), {})
                on_node.setdefault(node, []).append(address)
            self.version += 1

    def drop(self, uid: str) -> None:
        """Remove a pod from its node."""
        node, ports = self._pods.pop(uid, ("", frozenset[Taken]()))
        for address, protocol, port in ports:
            on_node = self._nodes[protocol, port]
            on_node[node].remove(address)
            if not on_node[node]:
                del on_node[node]
            if not on_node:
                del self._nodes[protocol, port]
        self.version += bool(ports)

    def taken(self, ports: Iterable[Taken]) -> frozenset[str]:
        """The nodes on which one of these ports is in use."""
        return frozenset(
            node
            for address, protocol, port in ports
            for node, others in self._nodes.get((protocol, port), {}).items()
            if EVERYWHERE in (address, *others) or address in others
        )


Condition = tuple[frozenset[str] | None, str, str]
"""The nodes that satisfy it (``None``: all), why it cannot be evaluated yet, and what it is."""


class PlacedPods(Protocol):
    """The nodes with their pods."""

    nodes: NodeIndex
    neighbours: Neighbours
    ports: HostPorts
    volumes: Volumes | None
    devices: DeviceClaims


class NeighbourConstraints:
    """Computes constraints from the present neighbours.

    Args:
        known: asked anew each time.
    """

    def __init__(self, known: PlacedPods) -> None:
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
        """The conditions of a pod beyond those on the nodes themselves."""
        known = self._known
        if known.volumes is not None and claims_of(pod):
            reach = known.volumes.reach(pod, known.nodes)
            yield reach.nodes, reach.waits, "reaches all its volumes"
        if known.devices.asks(pod):
            claims = known.devices.access(pod)
            what = "has the devices that its resource claims ask for"
            yield claims.nodes, claims.waits, what
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
        """The nodes that the pod's own anti-affinity, or that of pods there, excludes."""
        nodes, neighbours = self._known.nodes, self._known.neighbours
        found: frozenset[str] = frozenset()
        for term in own:
            found |= nodes.around(neighbours.where((term,)), term.topology_key)
        for term, places in against:
            found |= nodes.around(places, term.topology_key)
        return found

    def apart(self, pod: Pod, *, together: bool) -> str:
        """The label of nodes by which the pods of one workload keep apart."""
        meta = pod.metadata
        for term in _own_terms(pod, near=False):
            if self._known.neighbours.selects(term, meta.namespace, meta.labels):
                return level_key(term.topology_key)
        if together and (spread := constraints_of(pod)):
            return level_key(spread[0].topology_key)
        return HOST if ports_of(pod) else ""


def _own_terms(pod: Pod, *, near: bool) -> list[Term]:
    """The pod's required terms of affinity or anti-affinity."""
    affinity = pod.spec.affinity
    if affinity is None:
        return []
    side = affinity.pod_affinity if near else affinity.pod_anti_affinity
    return [] if side is None else [term_of(pod, term) for term in side.required]


MOST_KEPT: Final = 20_000
MOST_NAMED: Final = 8
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """The constraints of a pod on the present nodes.

    Attributes:
        request: for the core.
        waits: why no node serves it for now, for reasons that the core does not know; in words,
            such as ``its volume claim `data` does not exist``. It is not queued until that ends.
        follows: the answer may become another one: ask again when ``version`` changed; every
            other pod, when ``PlacementConstraints.manner`` did.
        checked: pods that are placed in the same pass may conflict with it: ask
            ``PlacementConstraints.still_fits`` before it is bound.
    """

    request: Request
    waits: str = ""
    follows: bool = False
    checked: bool = False


@dataclass(slots=True)
class _CachedRequest:
    ask: PlacementRequest
    versions: tuple[int, ...]


class PlacementConstraints:
    """Constraints of placement by placed pods, claims and volumes, over all nodes.

    Args:
        volumes: claims and volumes, if they are followed; else claims do not matter.
        devices: claims for devices.
        by_role: nodes take only work of their roles.
    """

    def __init__(
        self,
        volumes: Volumes | None = None,
        devices: DeviceClaims | None = None,
        *,
        by_role: bool = False,
    ) -> None:
        self.nodes = NodeIndex()
        self.neighbours = Neighbours()
        self.ports = HostPorts()
        self.attached = ClaimUsers()
        self.volumes = volumes
        self.devices = devices or DeviceClaims()
        self.groups = NodeGroups(by_role=by_role)
        self._around = NeighbourConstraints(self)
        self._kept: LRUCache[tuple[object, ...], _CachedRequest] = LRUCache(MOST_KEPT)

    @property
    def version(self) -> int:
        """Changes when an answer with ``follows`` may have changed."""
        return sum(self._versions())

    @property
    def manner(self) -> tuple[int, int, int, bool, bool]:
        """Changes when any answer may have become another one, which is rare."""
        nodes = self.nodes
        return (
            self.neighbours.held_version,
            self.groups.version,
            self.devices.backed_version,
            nodes.mixes_gpus,
            nodes.has_soft_taints,
        )

    def _versions(self) -> tuple[int, ...]:
        volumes = 0 if self.volumes is None else self.volumes.version
        devices = self.devices.version + self.devices.inventory.version
        return (self.nodes.version, self.neighbours.version, self.ports.version, volumes, devices)

    # Events

    def set_node(self, node: Node) -> None:
        """A node appeared or changed, or the groups did."""
        self.nodes.see(node, self.groups.of(node))

    def drop_node(self, name: str) -> None:
        """A node left."""
        self.nodes.drop(name)

    def put_pod(self, pod: Pod, node: str = "") -> None:
        """Record a pod of any scheduler that is on its node, or will be on ``node``."""
        self.neighbours.put(pod, node)
        self.ports.put(pod, node)
        self.attached.put(pod, node)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone, or will not be on the node after all."""
        self.neighbours.drop(uid)
        self.ports.drop(uid)
        self.attached.drop(uid)
        self.devices.undo(uid)
        if self.volumes is not None:
            self.volumes.undo(uid)

    def set_namespace(self, namespace: Namespace) -> None:
        """A namespace appeared or changed."""
        self.neighbours.set_namespace(namespace)

    def drop_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self.neighbours.drop_namespace(name)

    # Queries

    def ask(
        self, pod: Pod, groups: frozenset[str] | None = None, *, together: bool = False
    ) -> PlacementRequest:
        """The constraints of a pod on the present nodes.

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
            return kept.ask
        ask = self._ask(pod, groups, together=together)
        self._kept[key] = _CachedRequest(ask, self._versions())
        return ask

    def still_fits(self, pod: Pod, node: str) -> bool:
        """Whether a node still serves a pod, now that others have been given their places."""
        if self.devices.asks(pod) and self.devices.fit(pod, node) is None:
            return False
        open_nodes, _, _ = self._around.open_to(pod)
        return open_nodes is None or node in open_nodes

    def reach(self, namespace: str, claims: Iterable[str]) -> frozenset[str] | None:
        """The nodes from which claims can be reached as things are; ``None`` for all.

        One that is missing or has no volume yet constrains nothing.
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
        """The decisions about its claims to write before it is bound; they count from now on."""
        if self.volumes is None or not pod.spec.volumes:
            return ()
        return self.volumes.decide(pod, node, self.nodes)

    def _key(
        self, pod: Pod, groups: frozenset[str] | None, *, together: bool
    ) -> tuple[object, ...]:
        text = _encode((pod.spec, pod.metadata.annotations))
        key: tuple[object, ...] = (text, groups, together, self.manner)
        devices = self.devices.asks(pod)
        if not (self.neighbours.keep_others_away or devices or _looks_around(pod)):
            return key
        meta = pod.metadata
        own = meta.uid if claims_of(pod) or devices else ""
        made = pod.status.resource_claim_statuses
        return (*key, meta.namespace, own, made, tuple(sorted(meta.labels.items())))

    def _ask(self, pod: Pod, groups: frozenset[str] | None, *, together: bool) -> PlacementRequest:
        access = self.devices.access(pod)
        needs = needs_of(pod, access.gpus, access.instead, access.parts_milli)
        liked = preferences_of(pod, self.nodes, self.neighbours)
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
        where = NodeConstraint(
            nodes=nodes,
            labels=terms.labels,
            preferred=terms.preferred,
            tolerations=terms.tolerations,
            apart=self._around.apart(pod, together=together),
        )
        return PlacementRequest(
            request=request_of(needs, where),
            waits=waits,
            follows=terms.of_nodes or around or bool(waits) or has_wishes(pod),
            checked=around,
        )

    def _without_group(self, pod: Pod) -> str:
        """The message where the pod names an unknown node group; empty otherwise."""
        asked = asks_for_group(pod)
        there = self.groups.names()
        if not asked or asked in there:
            return ""
        names = ", ".join(f"`{name}`" for name in sorted(there)[:MOST_NAMED])
        return f"there is no node group `{asked}`{f'; there are {names}' if names else ''}"


def _looks_around(pod: Pod) -> bool:
    """Whether the answer depends on the pod's own name, namespace or labels."""
    affinity = pod.spec.affinity
    between = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    return bool(between or claims_of(pod) or pod.spec.topology_spread_constraints)


def _none_of(nodes: frozenset[str] | None, what: str) -> str:
    return f"no node {what}" if nodes is not None and not nodes else ""
