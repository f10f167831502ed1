"""Claims of pods for devices: what they wait for, where they can be served, and who gets which.

A claim serves one pod at a time. While the pod waits, its claims name the nodes that have what they
ask for; when it is placed, the devices are chosen (``decide``), written into the claims' status and
count as given away from then on. A claim that was left allocated to a pod that is not bound, as by
a scheduler that was killed, is released before the pod is placed anew.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any, Final

import msgspec
from cachetools import LRUCache

from carrel_scheduler.engines.kubernetes.pods.devices.inventory import (
    GPU_DRIVERS,
    DeviceId,
    Inventory,
    NodeDevice,
)
from carrel_scheduler.engines.kubernetes.pods.devices.matching import (
    MOST_CHOICES,
    MOST_DEVICES,
    Match,
    RequestedDevices,
    choices,
    match,
)
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    AllocatedDevice,
    DeviceClass,
    ResourceClaim,
)
from carrel_scheduler.engines.kubernetes.pods.nodes import gpu_resource
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import CLAIMED_GPUS
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod, PodResourceClaim

Key = tuple[str, str]
"""Namespace and name of a claim."""
NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class AllocateClaim:
    """A claim is given devices, and reserved for a pod, before the pod is bound.

    Attributes:
        claim_uid: it is that very claim.
        allocation: what its status says from then on.
    """

    namespace: str
    claim: str
    claim_uid: str
    pod: str
    pod_uid: str
    allocation: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReleaseClaim:
    """A claim is taken back from a pod that was not bound; in this version only."""

    namespace: str
    claim: str
    version: str


@dataclass(frozen=True, slots=True)
class ClaimAccess:
    """The requirements that a pod's claims add up to.

    Attributes:
        gpus: so many of the devices are GPUs.
        nodes: where they can be served; ``None`` without claims.
        waits: what has to happen before, in words; empty when nothing.
    """

    gpus: int = 0
    nodes: frozenset[str] | None = None
    waits: str = ""


NO_CLAIMS: Final = ClaimAccess()
MOST_KEPT: Final = 1000
_Asks = tuple[RequestedDevices, ...]


@dataclass(frozen=True, slots=True)
class _Served:
    """GPUs that requests come to, and nodes: with devices free, and where GPUs have to become free.

    A node with so many free GPUs that the core would place the pod, but not the right ones, is
    neither.
    """

    gpus: int
    now: frozenset[str]
    later: frozenset[str]


@dataclass(slots=True)
class _Kept:
    """Answers for equal requests, and for each node with the version that they are of."""

    version: int = -1
    served: _Served | None = None
    nodes: dict[str, tuple[tuple[int, int], tuple[int | None, bool]]] = field(default_factory=dict)


class _Waits(Exception):  # noqa: N818 - an outcome to handle
    """Why a claim cannot be served yet."""


@dataclass(slots=True)
class DeviceClaims:
    """Claims, classes and devices. ``version`` changes with each of them.

    Attributes:
        releases: claims to be taken back from pods that are not bound.
        changed: nodes whose devices, or their use, changed.
    """

    inventory: Inventory = field(default_factory=lambda: Inventory(GPU_DRIVERS))
    version: int = 0
    releases: dict[Key, ReleaseClaim] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    _claims: dict[Key, ResourceClaim] = field(default_factory=dict)
    _classes: dict[str, DeviceClass] = field(default_factory=dict)
    _holders: dict[DeviceId, set[Key]] = field(default_factory=dict)
    _decided: dict[str, dict[Key, tuple[DeviceId, ...]]] = field(default_factory=dict)
    _plugin: set[str] = field(default_factory=set)
    _kept: LRUCache[_Asks, "_Kept"] = field(default_factory=lambda: LRUCache(MOST_KEPT))
    _uses: Counter[str] = field(default_factory=Counter)

    # Events

    def set_claim(self, claim: ResourceClaim) -> None:
        """A claim appeared or changed."""
        self.drop_claim(claim)
        key = _key(claim)
        self._claims[key] = claim
        if claim.status.allocation is not None:
            for decided in self._decided.values():
                for device in decided.pop(key, ()):  # its status tells it from now on
                    self._use_changed(device)
        for device in _allocated(claim):
            self._holders.setdefault(device, set()).add(key)
            self._use_changed(device)

    def drop_claim(self, claim: ResourceClaim) -> None:
        """A claim is gone."""
        key = _key(claim)
        before = self._claims.pop(key, None)
        self.releases.pop(key, None)
        for device in () if before is None else _allocated(before):
            self._holders.get(device, set()).discard(key)
            self._use_changed(device)
        self.version += 1

    def _use_changed(self, device: DeviceId) -> None:
        node = self.inventory.node_of(device)
        self.changed.add(node)
        self._uses[node] += 1

    def set_class(self, one: DeviceClass) -> None:
        """A class appeared or changed."""
        self._classes[one.metadata.name] = one
        self.version += 1

    def drop_class(self, one: DeviceClass) -> None:
        """A class is gone."""
        self._classes.pop(one.metadata.name, None)
        self.version += 1

    def take_changed(self) -> set[str]:
        """The nodes whose devices, or their use, changed since the last call."""
        found = (self.changed | self.inventory.changed) - {""}
        self.changed, self.inventory.changed = set(), set()
        return found

    # Nodes

    @property
    def has_gpus(self) -> bool:
        """Whether claims ask for GPUs of any node."""
        return any(self._gpus(node) for node in self.inventory.nodes())

    def described(self, node: Node) -> Node:
        """The node with its GPUs that claims ask for, where no device plugin offers GPUs."""
        name = node.metadata.name
        if bool(gpu_resource(node)) != (name in self._plugin):
            self._plugin ^= {name}
            self._uses[name] += 1
            self.version += 1
        if name in self._plugin:
            return node
        gpus = self._gpus(name)
        if not gpus:
            return node
        offered = {CLAIMED_GPUS: str(len(gpus))}
        status = msgspec.structs.replace(
            node.status,
            capacity={**node.status.capacity, **offered},
            allocatable={**node.status.allocatable, **offered},
        )
        return msgspec.structs.replace(node, status=status)

    def used_by_others(self, node: str, holds: Callable[[str], bool]) -> int:
        """How many GPUs of a node belong to claims of pods that hold nothing in the core."""
        return sum(
            any(not self._is_held(key, holds) for key in self._holders.get(device.id, ()))
            for device in self._gpus(node)
        )

    def _is_held(self, key: Key, holds: Callable[[str], bool]) -> bool:
        return any(holds(one.uid) for one in self._claims[key].status.reserved_for)

    def _gpus(self, node: str) -> list[NodeDevice]:
        return [] if node in self._plugin else self.inventory.gpus(node)

    # Pods

    def access(self, pod: Pod) -> ClaimAccess:
        """The present requirements of a pod's claims.

        Raises:
            PodRefused: they ask for what is not given out.
        """
        if not pod.spec.resource_claims:
            return NO_CLAIMS
        if pod.spec.node_name:
            return ClaimAccess(gpus=self._gpus_of_bound(pod))
        try:
            options = self._options(pod)
        except _Waits as error:
            return ClaimAccess(nodes=NOTHING, waits=str(error))
        best = self._serving(options[0])
        for asks in options:
            found = self._serving(asks)
            if found.now:
                best = found
                break
            if not best.later:
                best = found
        return ClaimAccess(gpus=best.gpus, nodes=best.now | best.later)

    def decide(self, pod: Pod, node: str, gpus: int) -> tuple[AllocateClaim, ...]:
        """The allocations to write before a pod is bound to a node; they count from now on."""
        found = self.fit(pod, node, gpus)
        if not found:
            return ()
        by_claim: dict[str, Match] = {}
        names = [self._claim_name(pod, use) for use in pod.spec.resource_claims]
        for ask, device in found:
            by_claim.setdefault(names[ask.claim] or "", []).append((ask, device))
        namespace = pod.metadata.namespace
        self._decided[pod.metadata.uid] = {
            (namespace, name): tuple(device.id for _, device in matched)
            for name, matched in by_claim.items()
        }
        self._uses[node] += 1
        self.version += 1
        return tuple(
            AllocateClaim(
                namespace=namespace,
                claim=name,
                claim_uid=self._claims[namespace, name].metadata.uid,
                pod=pod.metadata.name,
                pod_uid=pod.metadata.uid,
                allocation=self._allocation(self._claims[namespace, name], matched, node),
            )
            for name, matched in by_claim.items()
        )

    def undo(self, uid: str) -> None:
        """A pod is not bound after all, or is gone: what was decided with it counts no more."""
        decided = self._decided.pop(uid, {})
        for device in (device for devices in decided.values() for device in devices):
            self._use_changed(device)
            self.version += 1

    def fit(self, pod: Pod, node: str, gpus: int | None = None) -> Match | None:
        """The devices that a node has free for all claims of a pod; ``None`` if too few.

        Args:
            pod: that is not bound.
            node: its name.
            gpus: so many of them are GPUs; ``None``: any number.
        """
        try:
            options = self._options(pod)
        except (_Waits, PodRefused):
            return None
        for asks in options:
            found = match(asks, self._free(node))
            if found is not None and gpus in (None, self._count(found)):
                return found
        return None

    def _options(self, pod: Pod) -> list[_Asks]:
        """The requests of a pod's claims: each combination of alternatives, the best first."""
        uses = pod.spec.resource_claims
        names = [name for use in uses if (name := self._claim_name(pod, use))]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise PodRefused("claim", "spec.resourceClaims", twice, "each claim once")
        each = [self._choices(pod, use, number) for number, use in enumerate(uses)]
        found = [
            tuple(ask for asks in combined for ask in asks)
            for combined in islice(product(*each), MOST_CHOICES)
        ]
        for asks in found:
            wanted = sum(ask.count for ask in asks)
            if wanted > MOST_DEVICES:
                expected = f"of {MOST_DEVICES} devices together, or fewer"
                raise PodRefused("claim", "spec.resourceClaims", wanted, expected)
        return found

    def _choices(self, pod: Pod, use: PodResourceClaim, number: int) -> list[_Asks]:
        claim = self._free_claim(pod, use)
        if claim is None:
            return [()]
        try:
            return choices(claim, number, self._classes)
        except KeyError as error:
            name, of = error.args[0], claim.metadata.name
            raise _Waits(
                f"the device class `{name}` of its resource claim `{of}` does not exist"
            ) from None

    def _free_claim(self, pod: Pod, use: PodResourceClaim) -> ResourceClaim | None:
        """The claim, if it can be given devices for the pod; ``None`` if none is needed."""
        name = self._claim_name(pod, use)
        if name is None:
            template = use.resource_claim_template_name
            raise _Waits(
                f"its resource claim `{use.name}` is not made from the template `{template}` yet"
            )
        if not name:
            return None
        key = (pod.metadata.namespace, name)
        claim = self._claims.get(key)
        if claim is None:
            raise _Waits(f"its resource claim `{name}` does not exist")
        if not use.resource_claim_name and not _is_made_for(claim, pod):
            raise _Waits(f"its resource claim `{name}` was made for somebody else")
        if claim.metadata.deletion_timestamp is not None:
            raise _Waits(f"its resource claim `{name}` is being deleted")
        self._check_unused(claim, pod)
        return claim

    def _claim_name(self, pod: Pod, use: PodResourceClaim) -> str | None:
        """The name of a claim: empty where none is needed, ``None`` while it is not made."""
        if use.resource_claim_name:
            return use.resource_claim_name
        made = {one.name: one for one in pod.status.resource_claim_statuses}
        return made[use.name].resource_claim_name if use.name in made else None

    def _check_unused(self, claim: ResourceClaim, pod: Pod) -> None:
        key, uid = _key(claim), pod.metadata.uid
        others = [one.name for one in claim.status.reserved_for if one.uid != uid]
        if others or any(key in keys for one, keys in self._decided.items() if one != uid):
            by = f"the pod `{others[0]}`" if others else "another pod"
            raise _Waits(
                f"its resource claim `{claim.metadata.name}` is in use by {by}; "
                "a claim serves one pod at a time"
            )
        if claim.status.allocation is not None and key not in self._decided.get(uid, {}):
            meta = claim.metadata
            self.releases[key] = ReleaseClaim(meta.namespace, meta.name, meta.resource_version)
            raise _Waits(f"the devices of its resource claim `{meta.name}` are being released")

    def _serving(self, asks: _Asks) -> "_Served":
        """The devices that serve these requests; equal pods share one cached answer."""
        version = self.version + self.inventory.version
        kept = self._kept.get(asks)
        if kept is None:
            kept = self._kept[asks] = _Kept()
        if kept.version != version or kept.served is None:
            kept.version, kept.served = version, self._find(asks, kept)
        return kept.served

    def _find(self, asks: _Asks, kept: "_Kept") -> "_Served":
        now: set[str] = set()
        later: set[str] = set()
        most = 0
        for node in self.inventory.nodes():
            version = self._uses[node], self.inventory.versions[node]
            known = kept.nodes.get(node)
            if known is None or known[0] != version:
                known = kept.nodes[node] = version, self._find_on(node, asks)
            gpus, free = known[1]
            if gpus is not None:
                most = max(most, gpus)
                (now if free else later).add(node)
        return _Served(most, frozenset(now), frozenset(later))

    def _find_on(self, node: str, asks: _Asks) -> tuple[int | None, bool]:
        """How many GPUs requests come to on a node, and whether devices are free for them.

        ``None``: the node does not serve them, or not as long as other GPUs are free there.
        """
        free = self._free(node)
        found = match(asks, free)
        if found is not None:
            return self._count(found), True
        found = match(asks, self._offered(node))
        count = 0 if found is None else self._count(found)
        if sum(self.inventory.is_gpu(one.id) for one in free) < count:
            return count, False
        return None, False

    def _offered(self, node: str) -> list[NodeDevice]:
        """The devices of a node that claims may get."""
        plugin = node in self._plugin
        return [
            one
            for one in self.inventory.of_node(node)
            if not (plugin and self.inventory.is_gpu(one.id))
        ]

    def _free(self, node: str) -> list[NodeDevice]:
        decided = {
            device for keys in self._decided.values() for ids in keys.values() for device in ids
        }
        return [
            one
            for one in self._offered(node)
            if one.id not in decided and not self._holders.get(one.id)
        ]

    def _count(self, found: Match) -> int:
        return sum(self.inventory.is_gpu(device.id) for _, device in found)

    def _gpus_of_bound(self, pod: Pod) -> int:
        """The GPUs allocated to a pod's claims."""
        found = {
            device
            for use in pod.spec.resource_claims
            if (name := self._claim_name(pod, use))
            and (claim := self._claims.get((pod.metadata.namespace, name))) is not None
            for device in _allocated(claim)
        }
        return sum(self.inventory.is_gpu(device) for device in found)

    def _allocation(self, claim: ResourceClaim, matched: Match, node: str) -> dict[str, Any]:
        results = [
            {"request": ask.request, "driver": one.id[0], "pool": one.id[1], "device": one.id[2]}
            | ({"tolerations": msgspec.to_builtins(ask.tolerations)} if ask.tolerations else {})
            for ask, one in matched
        ]
        config: list[dict[str, Any]] = []
        for ask in dict.fromkeys(ask for ask, _ in matched):
            of = self._classes[_class_of(claim, ask.request)]
            config += [
                {"source": "FromClass", "requests": [ask.request], **one} for one in of.spec.config
            ]
        config += [{"source": "FromClaim", **one} for one in claim.spec.devices.config]
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {
            "devices": {"results": results, **({"config": config} if config else {})},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }


def _key(claim: ResourceClaim) -> Key:
    return claim.metadata.namespace, claim.metadata.name


def _allocated(claim: ResourceClaim) -> Iterable[DeviceId]:
    """The devices allocated to a claim."""
    if claim.status.allocation is None:
        return ()
    return [_id(one) for one in claim.status.allocation.devices.results if not one.admin_access]


def _id(one: AllocatedDevice) -> DeviceId:
    return one.driver, one.pool, one.device


def _is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    owner = claim.metadata.controller
    return owner is not None and owner.uid == pod.metadata.uid


def _class_of(claim: ResourceClaim, name: str) -> str:
    """The class of a request, or of its alternative ``request/alternative``."""
    parent, _, alternative = name.partition("/")
    request = next(one for one in claim.spec.devices.requests if one.name == parent)
    of = request.exactly or next(one for one in request.first_available if one.name == alternative)
    return of.device_class_name
