"""Volumes of pods: the nodes that reach them, and what their claims wait for.

A claim that is bound ties a pod to the nodes of its volume. One of a class that waits for its
first consumer is decided with the pod: an existing volume is bound to it, else the class's
provisioner gets the node (``Decision``). Any other unbound claim is waited for.
``ClaimUsers`` counts on which nodes claims are in use.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.placement.node_affinity import NodeIndex
from carrel_scheduler.engines.kubernetes.pods.quantities import nanos
from carrel_scheduler.engines.kubernetes.pods.selectors import node_selected
from carrel_scheduler.engines.kubernetes.pods.storage_types import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod

WAITS_FOR_CONSUMER: Final = "WaitForFirstConsumer"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE: Final = "storage"
_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
Key = tuple[str, str]
"""Namespace and name of a claim."""


@dataclass(frozen=True, slots=True)
class SelectNode:
    """Order: write the node into the claim's annotation ``SELECTED_NODE``."""

    namespace: str
    claim: str
    node: str


@dataclass(frozen=True, slots=True)
class BindVolume:
    """Order: write the claim into the volume's ``spec.claimRef``; ``version`` is the volume's."""

    volume: str
    namespace: str
    claim: str
    claim_uid: str
    version: str = ""


Decision = SelectNode | BindVolume


@dataclass(slots=True)
class VolumeAccess:
    """The nodes from which the volumes of a pod can be reached.

    Attributes:
        nodes: when given, only from these.
        waits: what has to happen before the pod can be placed, in words; empty when nothing.
    """

    nodes: frozenset[str] | None = None
    waits: str = ""


@dataclass(slots=True)
class Volumes:
    """Claims, volumes and storage classes. ``version`` changes with them."""

    version: int = 0
    _claims: dict[Key, PersistentVolumeClaim] = field(default_factory=dict)
    _volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    _classes: dict[str, StorageClass] = field(default_factory=dict)
    _decided: dict[Key, Decision] = field(default_factory=dict)
    _by_pod: dict[str, tuple[Key, ...]] = field(default_factory=dict)

    def set_claim(self, claim: PersistentVolumeClaim) -> None:
        """A claim appeared or changed."""
        key = (claim.metadata.namespace, claim.metadata.name)
        self._claims[key] = claim
        if claim.spec.volume_name:
            self._decided.pop(key, None)
        self.version += 1

    def drop_claim(self, namespace: str, name: str) -> None:
        """A claim is gone."""
        self._claims.pop((namespace, name), None)
        self._decided.pop((namespace, name), None)
        self.version += 1

    def set_volume(self, volume: PersistentVolume) -> None:
        """A volume appeared or changed."""
        self._volumes[volume.metadata.name] = volume
        self.version += 1

    def drop_volume(self, name: str) -> None:
        """A volume is gone."""
        self._volumes.pop(name, None)
        self.version += 1

    def set_class(self, storage: StorageClass) -> None:
        """A class appeared or changed."""
        self._classes[storage.metadata.name] = storage
        self.version += 1

    def drop_class(self, name: str) -> None:
        """A class is gone."""
        self._classes.pop(name, None)
        self.version += 1

    def decide(self, pod: Pod, node: str, index: NodeIndex) -> tuple[Decision, ...]:
        """The decisions to write before the pod is bound to the node; they count from now on."""
        found = tuple(self._decisions(pod, node, index))
        for one in found:
            self._decided[one.namespace, one.claim] = one
            self.version += 1
        if found:
            self._by_pod[pod.metadata.uid] = tuple((one.namespace, one.claim) for one in found)
        return found

    def undo(self, uid: str) -> None:
        """A pod is not bound after all, or is gone: what was decided with it counts no more."""
        for key in self._by_pod.pop(uid, ()):
            if self._decided.pop(key, None) is not None:
                self.version += 1

    def reach(self, pod: Pod, index: NodeIndex) -> VolumeAccess:
        """The nodes from which all volumes of a pod can be reached."""
        return self.reach_claims(pod.metadata.namespace, claims_of(pod), index)

    def reach_claims(self, namespace: str, names: Iterable[str], index: NodeIndex) -> VolumeAccess:
        """The nodes from which all of these claims can be reached."""
        found = VolumeAccess()
        for name in names:
            one = self._reach(namespace, name, index)
            if one.waits:
                return one
            if one.nodes is not None:
                found.nodes = one.nodes if found.nodes is None else found.nodes & one.nodes
        return found

    def is_of_one_node(self, namespace: str, name: str) -> bool:
        """Whether pods of several nodes can not use a claim at once."""
        claim = self._claims.get((namespace, name))
        return claim is not None and is_of_one_node(claim)

    def _reach(self, namespace: str, name: str, index: NodeIndex) -> VolumeAccess:
        claim = self._claims.get((namespace, name))
        if claim is None:
            return VolumeAccess(waits=f"its volume claim `{name}` does not exist")
        if claim.metadata.deletion_timestamp is not None:
            return VolumeAccess(waits=f"its volume claim `{name}` is being deleted")
        if claim.spec.volume_name:
            return self._bound(claim, index)
        storage = self._classes.get(claim.spec.storage_class_name)
        if storage is None or storage.volume_binding_mode != WAITS_FOR_CONSUMER:
            return VolumeAccess(waits=f"its volume claim `{name}` is not bound to a volume yet")
        return VolumeAccess(nodes=self._open(claim, storage, index))

    def _bound(self, claim: PersistentVolumeClaim, index: NodeIndex) -> VolumeAccess:
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is None:
            name, of = claim.spec.volume_name, claim.metadata.name
            return VolumeAccess(waits=f"the volume `{name}` of its claim `{of}` does not exist")
        return VolumeAccess(nodes=_nodes_of(volume, index))

    def _open(
        self, claim: PersistentVolumeClaim, storage: StorageClass, index: NodeIndex
    ) -> frozenset[str] | None:
        """The nodes where a volume for an unbound claim is, or can be made; ``None`` for all."""
        selected = self._selected(claim)
        if selected:
            return frozenset({selected})
        decided = self._decided.get((claim.metadata.namespace, claim.metadata.name))
        if isinstance(decided, BindVolume) and decided.volume in self._volumes:
            return _nodes_of(self._volumes[decided.volume], index)
        there: frozenset[str] = frozenset()
        for volume in self._free(claim):
            nodes = _nodes_of(volume, index)
            if nodes is None:
                return None
            there |= nodes
        if storage.provisioner == NO_PROVISIONER:
            return there
        made = _allowed(storage, index)
        return None if made is None else made | there

    def _selected(self, claim: PersistentVolumeClaim) -> str:
        decided = self._decided.get((claim.metadata.namespace, claim.metadata.name))
        if isinstance(decided, SelectNode):
            return decided.node
        return claim.metadata.annotations.get(SELECTED_NODE, "")

    def _free(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        """Volumes that a claim could bind, the smallest first."""
        taken = {one.volume for one in self._decided.values() if isinstance(one, BindVolume)}
        found = [
            volume
            for volume in self._volumes.values()
            if volume.metadata.name not in taken and _would_do(volume, claim)
        ]
        yield from sorted(found, key=lambda volume: (_size(volume), volume.metadata.name))

    def _decisions(self, pod: Pod, node: str, index: NodeIndex) -> Iterator[Decision]:
        namespace = pod.metadata.namespace
        for name in claims_of(pod):
            claim = self._claims.get((namespace, name))
            if claim is None or claim.spec.volume_name or (namespace, name) in self._decided:
                continue
            if self._selected(claim):
                continue
            volume = next((one for one in self._free(claim) if _reaches(one, node, index)), None)
            if volume is not None:
                yield BindVolume(
                    volume.metadata.name,
                    namespace,
                    name,
                    claim.metadata.uid,
                    volume.metadata.resource_version,
                )
            else:
                yield SelectNode(namespace, name, node)


def is_of_one_node(claim: PersistentVolumeClaim) -> bool:
    """Whether only one node can use the volume at a time."""
    return _MANY_NODES.isdisjoint(claim.spec.access_modes)


def claims_of(pod: Pod) -> list[str]:
    """The names of a pod's claims."""
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.name}-{volume.name}")
    return found


def _nodes_of(volume: PersistentVolume, index: NodeIndex) -> frozenset[str] | None:
    """The nodes from which a volume can be reached; ``None`` for all."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return None
    required = affinity.required
    return frozenset(
        node.name for node in index.nodes() if node_selected(required, node.labels, node.name)
    )


def _reaches(volume: PersistentVolume, node: str, index: NodeIndex) -> bool:
    nodes = _nodes_of(volume, index)
    return nodes is None or node in nodes


def _allowed(storage: StorageClass, index: NodeIndex) -> frozenset[str] | None:
    """The nodes for which a class makes volumes; ``None`` for all."""
    if not storage.allowed_topologies:
        return None
    return frozenset(
        node.name
        for node in index.nodes()
        if any(
            all(node.labels.get(one.key) in one.values for one in topology.match_label_expressions)
            for topology in storage.allowed_topologies
        )
    )


def _would_do(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume is free and of the class, size and modes that a claim asks for."""
    if volume.spec.claim_ref is not None:
        ref = volume.spec.claim_ref
        meta = claim.metadata
        return (ref.namespace, ref.name) == (meta.namespace, meta.name)
    return (
        volume.status.phase in ("", "Available")
        and volume.metadata.deletion_timestamp is None
        and volume.spec.storage_class_name == claim.spec.storage_class_name
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and nanos(claim.spec.resources.requests.get(STORAGE, "0")) <= _size(volume)
    )


def _size(volume: PersistentVolume) -> int:
    return nanos(volume.spec.capacity.get(STORAGE, "0"))


NOWHERE: Final[frozenset[str]] = frozenset()
"""Namespace and name of a claim."""


class ClaimUsers:
    """Counts placed pods by claim and node. ``version`` changes with the nodes of a claim."""

    def __init__(self) -> None:
        self.version = 0
        self._pods: dict[str, tuple[str, tuple[Key, ...]]] = {}
        self._nodes: dict[Key, Counter[str]] = {}

    def put(self, pod: Pod, node: str = "") -> None:
        """A pod is on a node, or will be; one that ended uses nothing."""
        uid, node = pod.metadata.uid, node or pod.spec.node_name
        if pod.ended or not node or not pod.spec.volumes:
            self.drop(uid)
            return
        new = node, tuple((pod.metadata.namespace, name) for name in claims_of(pod))
        if self._pods.get(uid) == new:
            return
        self.drop(uid)
        if new[1]:
            self._pods[uid] = new
            self._count(*new, 1)

    def drop(self, uid: str) -> None:
        """Remove a pod from its node."""
        old = self._pods.pop(uid, None)
        if old is not None:
            self._count(*old, -1)

    def nodes(self, namespace: str, claim: str) -> frozenset[str]:
        """The nodes of pods that use a claim."""
        found = self._nodes.get((namespace, claim))
        return NOWHERE if found is None else frozenset(found)

    def _count(self, node: str, claims: tuple[Key, ...], change: int) -> None:
        for key in claims:
            counts = self._nodes.setdefault(key, Counter())
            before = counts[node]
            counts[node] = before + change
            if not counts[node]:
                del counts[node]
            if not counts:
                del self._nodes[key]
            if not before or not before + change:
                self.version += 1
