"""Known devices and claims, and which devices of a node are free for which pod. No I/O.

A device counts as given away from the decision on; the claim's status tells it later. GPUs that
claims share are given in parts: those of which a task of Carrel's own has a part to tasks only,
those of which others have parts to others only, so that the core need not know of parts of others.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.kubernetes.pods.devices.allocation import allocated_to, key_of
from carrel_scheduler.engines.kubernetes.pods.devices.counters import NONE as NONE_TAKEN
from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts, enough
from carrel_scheduler.engines.kubernetes.pods.devices.extended import (
    classes_by_resource,
    is_special,
    offered_by_plugins,
)
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import (
    GPU_DRIVERS,
    DeviceAllocation,
    DeviceId,
    Inventory,
    NodeDevice,
)
from carrel_scheduler.engines.kubernetes.pods.devices.orders import NOTHING, Key, ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.devices.task_gpus import (
    are_of,
    instance_counts,
    labels_with_gpus,
    labels_with_plugin,
    whole_of,
)
from carrel_scheduler.engines.kubernetes.pods.devices.task_shares import (
    SharingTerms,
    of_others,
    places_of,
    terms_of,
)
from carrel_scheduler.engines.kubernetes.pods.devices.types import DeviceClass, ResourceClaim
from carrel_scheduler.engines.kubernetes.pods.nodes import BY_CLAIMS, gpu_resource
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import CLAIMED_GPUS
from carrel_scheduler.engines.kubernetes.pods.types import Node
from carrel_schema.names import MIG_PREFIX, mig_resource


def _none(_node: str) -> int:
    """The core holds nothing."""
    return 0


def _nobody(_pod: str) -> bool:
    """The core placed nothing."""
    return False


@dataclass(slots=True)
class KnownDevices:
    """Claims, classes and devices. ``version`` changes with each of them.

    Attributes:
        releases: claims to be taken back from pods that are not bound.
        changed: nodes whose devices, or their use, changed.
        backed: the class of each extended resource that devices serve and no device plugin.
        task_class: of the devices that serve tasks of Carrel's own; empty: none do.
        mig_class: of the MIG instances that do; empty: none do.
        held: how many GPUs of a node the core has given away or promised.
        is_task: whether a pod, by its uid, is of a task of Carrel's own that the core placed.
    """

    inventory: Inventory = field(default_factory=lambda: Inventory(GPU_DRIVERS))
    task_class: str = ""
    mig_class: str = ""
    version: int = 0
    releases: dict[Key, ReleaseClaim] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    held: Callable[[str], int] = _none
    is_task: Callable[[str], bool] = _nobody
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    backed: dict[str, str] = field(default_factory=dict)
    backed_version: int = 0
    _claims: dict[Key, ResourceClaim] = field(default_factory=dict)
    _holders: dict[DeviceId, set[Key]] = field(default_factory=dict)
    _decided: dict[str, dict[Key, tuple[DeviceAllocation, ...]]] = field(default_factory=dict)
    _plugin: set[str] = field(default_factory=set)
    _uses: Counter[str] = field(default_factory=Counter)
    _allocatable: dict[str, frozenset[str]] = field(default_factory=dict)
    _special: dict[str, Key] = field(default_factory=dict)
    _terms: dict[str, tuple[int, SharingTerms | None]] = field(default_factory=dict)
    _held_before: dict[str, int] = field(default_factory=dict)

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
        self.classes[one.metadata.name] = one
        self._class_changed(one)

    def drop_class(self, one: DeviceClass) -> None:
        """A class is gone."""
        self.classes.pop(one.metadata.name, None)
        self._class_changed(one)

    def _class_changed(self, one: DeviceClass) -> None:
        self.version += 1
        self._follow_resources()
        if one.metadata.name in (self.task_class, self.mig_class):
            self._terms.clear()
            self.changed.update(self.inventory.nodes())

    def _follow_resources(self) -> None:
        """Classes, or what device plugins offer, may have changed."""
        plugins = frozenset[str]().union(*self._allocatable.values())
        found = classes_by_resource(self.classes.values())
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
        return any(self._gpus(node) or self.terms(node) for node in self.inventory.nodes())

    def described(self, node: Node) -> Node:
        """The node with its GPUs that claims ask for, where no device plugin offers GPUs."""
        name = node.metadata.name
        self._see_allocatable(name, node.status.allocatable)
        if bool(gpu_resource(node)) != (name in self._plugin):
            self._plugin ^= {name}
            self._terms.pop(name, None)
            self._uses[name] += 1
            self.version += 1
        meta = node.metadata
        if name in self._plugin and self.task_class:
            labels = labels_with_plugin(meta.labels)
            return msgspec.structs.replace(
                node, metadata=msgspec.structs.replace(meta, labels=labels)
            )
        gpus, terms = self._gpus(name), self.terms(name)
        if terms is not None:
            gpus = self.inventory.shared_gpus(name)
        offered = {key: str(most) for key, (most, _) in self.instances(name).items()}
        if not gpus and not offered:
            return node
        by = BY_CLAIMS if self.serves_tasks(name) else ""
        labels = labels_with_gpus(meta.labels, gpus, by if terms is None else terms.label)
        if gpus:
            offered[CLAIMED_GPUS] = str(len(gpus))
        status = msgspec.structs.replace(
            node.status,
            capacity={**node.status.capacity, **offered},
            allocatable={**node.status.allocatable, **offered},
        )
        meta = msgspec.structs.replace(meta, labels=labels)
        return msgspec.structs.replace(node, metadata=meta, status=status)

    def serves_tasks(self, node: str) -> bool:
        """Whether tasks of Carrel's own get whole GPUs of a node by claims for such."""
        return are_of(self._gpus(node), self.classes.get(self.task_class))

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
        """The number of GPUs of a node that belong to claims of pods that hold nothing in the core.

        Those of which parts are given are among them.
        """
        if self.terms(node) is not None:
            return len(self._shared_by_others(node, holds))
        left = self.left(node)
        return sum(self._is_used(one, left, holds) for one in self._gpus(node))

    def _shared_by_others(self, node: str, holds: Callable[[str], bool]) -> set[DeviceId]:
        """The shared GPUs of which nobody has a part whom the core knows at a place."""
        used: set[DeviceId] = set()
        ours: set[DeviceId] = set()
        for use, users, decided in self._uses_with_users(node):
            used.add(use.id)
            if use.place is not None and (decided or any(map(holds, users))):
                ours.add(use.id)
        return (used - ours) & {one.id for one in self.inventory.shared_gpus(node)}

    def _is_used(self, device: NodeDevice, left: Amounts, holds: Callable[[str], bool]) -> bool:
        """Whether others have a GPU, or anybody a part of it."""
        if keys := self._holders.get(device.id):
            return any(not self._is_held(key, holds) for key in keys)
        return not self._is_decided(device.id) and not enough(left, device.takes)

    def _is_decided(self, device: DeviceId) -> bool:
        return any(device == one.id for one in self._all_decided())

    def _is_held(self, key: Key, holds: Callable[[str], bool]) -> bool:
        return any(holds(one.uid) for one in self._claims[key].status.reserved_for)

    def shared_milli(self, node: str) -> int:
        """Thousandths of GPUs of a node that are shared by pods of others.

        Where tasks get parts, the others are among the GPUs that the core places work on.
        """
        if node in self._plugin:
            return 0
        shared = {one.id for one in self.inventory.shared_gpus(node)}
        if self.terms(node) is not None:
            shared &= of_others(self.uses(node))
        return MILLI * len(shared)

    def instances(self, node: str) -> dict[str, tuple[int, int]]:
        """MIG instances that tasks get by claims, by the names of resources.

        How many there may be at once, and how many of these tasks have or could have now.
        """
        devices = self._instances(node)
        if not devices:
            return {}
        most = instance_counts(devices, self.inventory.left(node, ()))
        now = instance_counts(devices, self.left(node))
        by_id = {one.id: one for one in devices}
        for use, users, _ in self._uses_with_users(node):
            if use.id in by_id and any(map(self.is_task, users)):
                now[mig_resource(by_id[use.id].profile)] += 1
        return {name: (count, min(count, now[name])) for name, count in most.items()}

    def serves_instance(self, node: str, resource: str) -> bool:
        """Whether tasks get MIG instances of that name by claims on a node."""
        return any(mig_resource(one.profile) == resource for one in self._instances(node))

    def _instances(self, node: str) -> list[NodeDevice]:
        offered = self._allocatable.get(node, NOTHING)
        if not self.mig_class or any(name.startswith(MIG_PREFIX) for name in offered):
            return []
        if node in self._plugin:
            return []
        of_class = self.classes.get(self.mig_class)
        return [one for one in self.inventory.instances(node) if are_of([one], of_class)]

    def divided_milli(self, node: str) -> int:
        """Thousandths of GPUs of a node that are divided, or only offer MIG instances.

        They are beside the GPUs that the core places work on.
        """
        devices, gpus = self._instances(node), self._gpus(node)
        left = self.left(node)
        taken = {one.id for one in self.uses(node)}
        open_ = [one for one in gpus if one.id in taken or enough(left, one.takes)]
        sets = {key[:3] for one in devices if not whole_of(open_, one) for key in one.takes}
        return MILLI * len(sets)

    def _gpus(self, node: str) -> list[NodeDevice]:
        return [] if node in self._plugin else self.inventory.gpus(node)

    # Devices of a node

    def terms(self, node: str) -> SharingTerms | None:
        """The terms by which tasks get parts of a node's GPUs; ``None``: they get none."""
        version = self.inventory.versions[node]
        known = self._terms.get(node)
        if known is None or known[0] != version:
            known = self._terms[node] = version, self._find_terms(node)
        return known[1]

    def _find_terms(self, node: str) -> SharingTerms | None:
        shared = self.inventory.shared_gpus(node)
        if node in self._plugin or self.inventory.gpus(node):
            return None
        return terms_of(shared) if are_of(shared, self.classes.get(self.task_class)) else None

    @property
    def all_terms(self) -> frozenset[SharingTerms]:
        """The terms on which tasks get parts of GPUs by claims, of all nodes."""
        if not self.task_class:
            return frozenset()
        return frozenset(found for node in self.inventory.nodes() if (found := self.terms(node)))

    def uses(self, node: str) -> list[DeviceAllocation]:
        """The allocations of a node's devices."""
        return [use for use, _, _ in self._uses_with_users(node)]

    def _uses_with_users(
        self, node: str
    ) -> Iterator[tuple[DeviceAllocation, tuple[str, ...], bool]]:
        """Uses with the uids of pods that have the device, and whether it is only decided yet."""
        there = {one.id for one in self.inventory.of_node(node)}
        for key in {key for one in there for key in self._holders.get(one, ())}:
            users = tuple(one.uid for one in self._claims[key].status.reserved_for)
            for use in allocated_to(self._claims[key]):
                if use.id in there:
                    yield use, users, False
        for uid, keys in self._decided.items():
            for use in (one for given in keys.values() for one in given):
                if use.id in there:
                    yield use, (uid,), True

    def _all_decided(self) -> Iterator[DeviceAllocation]:
        return (one for keys in self._decided.values() for given in keys.values() for one in given)

    def offered(self, node: str) -> list[NodeDevice]:
        """The devices of a node that claims may get, last those that take time to prepare."""
        plugin = node in self._plugin
        found = [
            one
            for one in self.inventory.of_node(node)
            if not (plugin and self.inventory.is_gpu(one.id))
        ]
        return sorted(found, key=lambda one: bool(one.device.binding_conditions))

    def left(self, node: str) -> Amounts:
        """The rest of the counters that devices of a node share, and of its shared devices."""
        there = {one.id: one for one in self.inventory.of_node(node)}
        if not any(one.takes or one.shared for one in there.values()):
            return NONE_TAKEN
        keys = {key for one in there for key in self._holders.get(one, ())}
        given = [one for key in keys for one in allocated_to(self._claims[key])]
        return self.inventory.left(node, [*given, *self._all_decided()])

    def free(self, node: str) -> list[NodeDevice]:
        """The devices of a node that are free for pods of others, or have a part left for them."""
        decided = {given.id for given in self._all_decided()}
        for_tasks = self._for_tasks(node)

        def is_free(one: NodeDevice) -> bool:
            if one.shared:
                return one.id not in for_tasks
            return one.id not in decided and not self._holders.get(one.id)

        return [one for one in self.offered(node) if is_free(one)]

    def _for_tasks(self, node: str) -> frozenset[DeviceId]:
        """The shared GPUs of a node that tasks have parts of, or are about to get."""
        if self.terms(node) is None:
            return frozenset()
        gpus, uses = self.inventory.shared_gpus(node), self.uses(node)
        others, known = of_others(uses), frozenset(places_of(uses).values())
        unused = [one.id for one in gpus if one.id not in others and one.id not in known]
        awaited = max(0, self.held(node) - len(known))
        return (known - others) | frozenset(unused[:awaited])

    def follow_held(self) -> None:
        """The core may have given away other GPUs of nodes: what is free for others follows."""
        if not self.task_class:
            return
        for node in self.inventory.nodes():
            count = 0 if self.terms(node) is None else self.held(node)
            if self._held_before.get(node, 0) != count:
                self._held_before[node] = count
                self._uses[node] += 1
                self.version += 1

    # Decisions

    def note_decided(
        self, uid: str, node: str, given: dict[Key, tuple[DeviceAllocation, ...]]
    ) -> None:
        """Devices were chosen for a pod; they count from now on."""
        self._decided[uid] = given
        self._uses[node] += 1
        self.version += 1
        self.changed.add(node)

    def undo(self, uid: str) -> None:
        """A pod is not bound after all, or is gone: what was decided with it counts no more."""
        for given in (one for devices in self._decided.pop(uid, {}).values() for one in devices):
            self._use_changed(given.id)
            self.version += 1

    def left_over(self, uid: str) -> str:
        """The name of a claim that an earlier try made for a pod; it is to be deleted first."""
        key = self._special.get(uid)
        if key is None or key in self._decided.get(uid, {}):
            return ""
        release = self.deletion_of(uid)
        if release is not None:
            self.releases[key] = release
        return key[1]

    def deletion_of(self, uid: str) -> ReleaseClaim | None:
        """The order to delete the claim that was made for a pod; ``None``: there is none."""
        key = self._special.get(uid)
        if key is None:
            return None
        meta = self._claims[key].metadata
        if meta.deletion_timestamp is not None:
            return None
        return ReleaseClaim(meta.namespace, meta.name, meta.resource_version, meta.uid)

    def take_release(self, uid: str) -> ReleaseClaim | None:
        """The order to take back the claim that was made for a pod, if there is one."""
        key = self._special.get(uid)
        return None if key is None else self.releases.pop(key, None)
