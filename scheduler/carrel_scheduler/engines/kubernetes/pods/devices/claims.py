"""Claims of pods for devices: what they wait for, where they can be served, and who gets which.

A claim serves one pod at a time. While the pod waits, its claims name the nodes that have what they
ask for; when it is placed, the devices are chosen (``decide``), written into the claims' status and
count as given away from then on. A claim that was left allocated to a pod that is not bound, as by
a scheduler that was killed, is released before the pod is placed anew.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, product

import msgspec

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.kubernetes.pods.devices.allocation import (
    allocated_to,
    allocation_of,
    claim_name,
    is_made_for,
    key_of,
)
from carrel_scheduler.engines.kubernetes.pods.devices.counters import NONE as NONE_TAKEN
from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts, enough
from carrel_scheduler.engines.kubernetes.pods.devices.extended import (
    ExtendedClaim,
    classes_by_resource,
    is_special,
    offered_by_plugins,
    special_claim,
)
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import (
    GPU_DRIVERS,
    DeviceId,
    DeviceUse,
    Inventory,
    NodeDevice,
)
from carrel_scheduler.engines.kubernetes.pods.devices.matching import (
    MOST_CHOICES,
    MOST_DEVICES,
    Match,
    choices,
    given_to,
    match,
)
from carrel_scheduler.engines.kubernetes.pods.devices.orders import (
    NO_CLAIMS,
    NOTHING,
    AllocateClaim,
    ClaimAccess,
    Key,
    ReleaseClaim,
)
from carrel_scheduler.engines.kubernetes.pods.devices.serving import Asks, ServingNodes
from carrel_scheduler.engines.kubernetes.pods.devices.task_gpus import (
    are_of,
    labels_with_gpus,
    labels_with_plugin,
)
from carrel_scheduler.engines.kubernetes.pods.devices.types import DeviceClass, ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.nodes import gpu_resource
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import (
    CLAIMED_GPUS,
    GPU_RESOURCES,
)
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod, PodResourceClaim
from carrel_schema.names import TASK


class _Waits(Exception):  # noqa: N818 - an outcome to handle
    """Why a claim cannot be served yet."""


@dataclass(slots=True)
class DeviceClaims:
    """Claims, classes and devices. ``version`` changes with each of them.

    Attributes:
        releases: claims to be taken back from pods that are not bound.
        changed: nodes whose devices, or their use, changed.
        backed: the class of each extended resource that devices serve and no device plugin.
        task_class: of the devices that serve tasks of Carrel's own; empty: none do.
    """

    inventory: Inventory = field(default_factory=lambda: Inventory(GPU_DRIVERS))
    task_class: str = ""
    version: int = 0
    releases: dict[Key, ReleaseClaim] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    _claims: dict[Key, ResourceClaim] = field(default_factory=dict)
    _classes: dict[str, DeviceClass] = field(default_factory=dict)
    _holders: dict[DeviceId, set[Key]] = field(default_factory=dict)
    _decided: dict[str, dict[Key, tuple[DeviceUse, ...]]] = field(default_factory=dict)
    _plugin: set[str] = field(default_factory=set)
    _uses: Counter[str] = field(default_factory=Counter)
    backed: dict[str, str] = field(default_factory=dict)
    backed_version: int = 0
    _allocatable: dict[str, frozenset[str]] = field(default_factory=dict)
    _special: dict[str, Key] = field(default_factory=dict)
    _serving: ServingNodes = field(init=False)

    def __post_init__(self) -> None:
        self._serving = ServingNodes(
            self.inventory, self._uses, self._offered, self._free, self._left
        )

    # Events

    def set_claim(self, claim: ResourceClaim) -> None:
        """A claim appeared or changed."""
        self.drop_claim(claim)
        key = key_of(claim)
        self._claims[key] = claim
        if is_special(claim) and (owner := claim.metadata.controller) is not None:
            self._special[owner.uid] = key
        if claim.status.allocation is not None:
            for decided in self._decided.values():
                for given in decided.pop(key, ()):  # its status tells it from now on
                    self._use_changed(given.id)
        for given in allocated_to(claim):
            self._holders.setdefault(given.id, set()).add(key)
            self._use_changed(given.id)

    def drop_claim(self, claim: ResourceClaim) -> None:
        """A claim is gone."""
        key = key_of(claim)
        before = self._claims.pop(key, None)
        self.releases.pop(key, None)
        if before is not None and (owner := before.metadata.controller) is not None:
            self._special.pop(owner.uid, None)
        for given in () if before is None else allocated_to(before):
            self._holders.get(given.id, set()).discard(key)
            self._use_changed(given.id)
        self.version += 1

    def _use_changed(self, device: DeviceId) -> None:
        node = self.inventory.node_of(device)
        self.changed.add(node)
        self._uses[node] += 1

    def set_class(self, one: DeviceClass) -> None:
        """A class appeared or changed."""
        self._classes[one.metadata.name] = one
        self._class_changed(one)

    def drop_class(self, one: DeviceClass) -> None:
        """A class is gone."""
        self._classes.pop(one.metadata.name, None)
        self._class_changed(one)

    def _class_changed(self, one: DeviceClass) -> None:
        self.version += 1
        self._follow_resources()
        if one.metadata.name == self.task_class:
            self.changed.update(self.inventory.nodes())

    def _follow_resources(self) -> None:
        """Classes, or what device plugins offer, may have changed."""
        plugins = frozenset[str]().union(*self._allocatable.values())
        found = classes_by_resource(self._classes.values())
        backed = {name: of for name, of in found.items() if name not in plugins}
        if backed != self.backed:
            self.backed = backed
            self.backed_version += 1
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
        self._see_allocatable(name, node.status.allocatable)
        if bool(gpu_resource(node)) != (name in self._plugin):
            self._plugin ^= {name}
            self._uses[name] += 1
            self.version += 1
        meta = node.metadata
        if name in self._plugin and self.task_class:
            labels = labels_with_plugin(meta.labels)
            return msgspec.structs.replace(
                node, metadata=msgspec.structs.replace(meta, labels=labels)
            )
        gpus = self._gpus(name)
        if not gpus:
            return node
        labels = labels_with_gpus(meta.labels, gpus, for_tasks=self.serves_tasks(name))
        offered = {CLAIMED_GPUS: str(len(gpus))}
        status = msgspec.structs.replace(
            node.status,
            capacity={**node.status.capacity, **offered},
            allocatable={**node.status.allocatable, **offered},
        )
        meta = msgspec.structs.replace(meta, labels=labels)
        return msgspec.structs.replace(node, metadata=meta, status=status)

    def serves_tasks(self, node: str) -> bool:
        """Whether tasks of Carrel's own get the GPUs of a node by claims."""
        return are_of(self._gpus(node), self._classes.get(self.task_class))

    def _see_allocatable(self, node: str, allocatable: Mapping[str, str]) -> None:
        try:
            offered = offered_by_plugins(allocatable)
        except PodRefused:
            offered = NOTHING
        if self._allocatable.get(node, NOTHING) != offered:
            self._allocatable[node] = offered
            self._follow_resources()

    def forget_node(self, node: str) -> None:
        """A node is gone, and what its device plugins offered."""
        if self._allocatable.pop(node, NOTHING):
            self._follow_resources()

    def used_by_others(self, node: str, holds: Callable[[str], bool]) -> int:
        """How many GPUs of a node belong to claims of pods that hold nothing in the core.

        Those of which parts are given are among them.
        """
        left = self._left(node)
        return sum(self._is_used(one, left, holds) for one in self._gpus(node))

    def _is_used(self, device: NodeDevice, left: Amounts, holds: Callable[[str], bool]) -> bool:
        """Whether others have a GPU, or anybody a part of it."""
        if keys := self._holders.get(device.id):
            return any(not self._is_held(key, holds) for key in keys)
        return not self._is_decided(device.id) and not enough(left, device.takes)

    def _is_decided(self, device: DeviceId) -> bool:
        return any(device == one.id for one in self._all_decided())

    def _all_decided(self) -> Iterator[DeviceUse]:
        return (one for keys in self._decided.values() for given in keys.values() for one in given)

    def _is_held(self, key: Key, holds: Callable[[str], bool]) -> bool:
        return any(holds(one.uid) for one in self._claims[key].status.reserved_for)

    def shared_milli(self, node: str) -> int:
        """How much the GPUs of a node are that claims share, in thousandths of a GPU."""
        return 0 if node in self._plugin else MILLI * len(self.inventory.shared_gpus(node))

    def _gpus(self, node: str) -> list[NodeDevice]:
        return [] if node in self._plugin else self.inventory.gpus(node)

    # Pods

    def access(self, pod: Pod) -> ClaimAccess:
        """The present requirements of a pod's claims.

        Raises:
            PodRefused: they ask for what is not given out.
        """
        if pod.spec.node_name:
            return self._of_bound(pod)
        special = self._special_of(pod)
        if not pod.spec.resource_claims and special is None:
            return NO_CLAIMS
        instead = NOTHING if special is None else special.names
        try:
            options = self._options(pod)
        except _Waits as error:
            return ClaimAccess(nodes=NOTHING, waits=str(error), instead=instead)
        best = self._serving.of(options[0], self.version)
        for asks in options:
            found = self._serving.of(asks, self.version)
            if found.now:
                best = found
                break
            if not best.later:
                best = found
        return ClaimAccess(best.gpus, best.now | best.later, "", instead, best.parts_milli)

    def asks(self, pod: Pod) -> bool:
        """Whether a pod asks for devices, by claims or by extended resources."""
        if pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None:
            return True
        return self._special_of(pod) is not None

    def _special_of(self, pod: Pod) -> ExtendedClaim | None:
        """The claim for what a pod asks for by name; a task's GPUs are those of the task class."""
        backed = self.backed
        if self.task_class and TASK in pod.metadata.labels:
            backed = dict.fromkeys(GPU_RESOURCES, self.task_class)
        return special_claim(pod, backed) if backed else None

    def decide(
        self, pod: Pod, node: str, gpus: int, parts_milli: int = MILLI * MOST_DEVICES
    ) -> tuple[AllocateClaim, ...]:
        """The allocations to write before a pod is bound to a node; they count from now on."""
        found = self.fit(pod, node, gpus, parts_milli)
        if not found:
            return ()
        by_claim: dict[str, Match] = {}
        namespace = pod.metadata.namespace
        names = [claim_name(pod, use) for use in pod.spec.resource_claims]
        claims = {name: self._claims[namespace, name] for name in names if name}
        special = self._special_of(pod)
        if special is not None:
            names.append(special.claim.metadata.name)
            claims[special.claim.metadata.name] = special.claim
        for ask, device in found:
            by_claim.setdefault(names[ask.claim] or "", []).append((ask, device))
        self._decided[pod.metadata.uid] = {
            (namespace, name): tuple(given_to(ask, device) for ask, device in matched)
            for name, matched in by_claim.items()
        }
        self._uses[node] += 1
        self.version += 1
        self.changed.add(node)
        return tuple(
            AllocateClaim(
                namespace=namespace,
                claim=name,
                claim_uid=claims[name].metadata.uid,
                pod=pod.metadata.name,
                pod_uid=pod.metadata.uid,
                allocation=allocation_of(
                    claims[name], matched, node, self._classes, pod.metadata.uid
                ),
                special=special if special is not None and claims[name] is special.claim else None,
            )
            for name, matched in by_claim.items()
        )

    def take_release(self, uid: str) -> ReleaseClaim | None:
        """The order to take back the claim that was made for a pod, if there is one."""
        key = self._special.get(uid)
        return None if key is None else self.releases.pop(key, None)

    def undo(self, uid: str) -> None:
        """A pod is not bound after all, or is gone: what was decided with it counts no more."""
        for given in (one for devices in self._decided.pop(uid, {}).values() for one in devices):
            self._use_changed(given.id)
            self.version += 1

    def fit(
        self,
        pod: Pod,
        node: str,
        gpus: int | None = None,
        parts_milli: int = MILLI * MOST_DEVICES,
    ) -> Match | None:
        """The devices that a node has free for all claims of a pod; ``None`` if too few.

        Args:
            pod: that is not bound.
            node: its name.
            gpus: so many of them are whole GPUs; ``None``: any number.
            parts_milli: the others are at most so much of GPUs.
        """
        try:
            options = self._options(pod)
        except (_Waits, PodRefused):
            return None
        for asks in options:
            found = match(asks, self._free(node), self._left(node))
            if found is None or self._serving.parts(found) > parts_milli:
                continue
            if gpus in (None, self._serving.count(found)):
                return found
        return None

    def _options(self, pod: Pod) -> list[Asks]:
        """The requests of a pod's claims: each combination of alternatives, the best first."""
        uses = pod.spec.resource_claims
        names = [name for use in uses if (name := claim_name(pod, use))]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise PodRefused("claim", "spec.resourceClaims", twice, "each claim once")
        each = [self._choices(pod, use, number) for number, use in enumerate(uses)]
        if (special := self._special_of(pod)) is not None:
            self._check_special(pod)
            each.append(choices(special.claim, len(uses), self._classes))
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

    def _check_special(self, pod: Pod) -> None:
        """A claim that was made for the pod's extended resources before is deleted first."""
        uid = pod.metadata.uid
        key = self._special.get(uid)
        if key is None or key in self._decided.get(uid, {}):
            return
        meta = self._claims[key].metadata
        if meta.deletion_timestamp is None:
            self.releases[key] = ReleaseClaim(
                meta.namespace, meta.name, meta.resource_version, meta.uid
            )
        raise _Waits(f"the devices of its resource claim `{meta.name}` are being released")

    def _choices(self, pod: Pod, use: PodResourceClaim, number: int) -> list[Asks]:
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
        name = claim_name(pod, use)
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
        if not use.resource_claim_name and not is_made_for(claim, pod):
            raise _Waits(f"its resource claim `{name}` was made for somebody else")
        if claim.metadata.deletion_timestamp is not None:
            raise _Waits(f"its resource claim `{name}` is being deleted")
        self._check_unused(claim, pod)
        return claim

    def _check_unused(self, claim: ResourceClaim, pod: Pod) -> None:
        key, uid = key_of(claim), pod.metadata.uid
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

    def _offered(self, node: str) -> list[NodeDevice]:
        """The devices of a node that claims may get."""
        plugin = node in self._plugin
        return [
            one
            for one in self.inventory.of_node(node)
            if not (plugin and self.inventory.is_gpu(one.id))
        ]

    def _left(self, node: str) -> Amounts:
        """What is left of the counters that devices of a node share, and of those it shares."""
        there = {one.id: one for one in self.inventory.of_node(node)}
        if not any(one.takes or one.shared for one in there.values()):
            return NONE_TAKEN
        keys = {key for one in there for key in self._holders.get(one, ())}
        given = [one for key in keys for one in allocated_to(self._claims[key])]
        return self.inventory.left(node, [*given, *self._all_decided()])

    def _free(self, node: str) -> list[NodeDevice]:
        decided = {given.id for given in self._all_decided()}
        return [
            one
            for one in self._offered(node)
            if one.shared or (one.id not in decided and not self._holders.get(one.id))
        ]

    def _of_bound(self, pod: Pod) -> ClaimAccess:
        """The GPUs allocated to the claims of a bound pod."""
        special = pod.status.extended_resource_claim_status
        if not pod.spec.resource_claims and special is None:
            return NO_CLAIMS
        names = [claim_name(pod, use) for use in pod.spec.resource_claims]
        instead = NOTHING
        if special is not None:
            names.append(special.resource_claim_name)
            instead = frozenset(one.resource_name for one in special.request_mappings)
        found = [
            given
            for name in dict.fromkeys(names)
            if name and (claim := self._claims.get((pod.metadata.namespace, name))) is not None
            for given in allocated_to(claim)
        ]
        gpus, parts = self._serving.gpus(found), self._serving.parts_of(found)
        return ClaimAccess(gpus=gpus, instead=instead, parts_milli=parts)
