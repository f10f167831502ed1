"""Nodes of a cluster as the core sees them: their capacity less what unmanaged pods use.

Unmanaged pods name no devices, so theirs are chosen among those that no task uses, and reported to
the core as broken.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import NodeRemoved, NodeSet
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.state import State
from carrel_scheduler.engines import gpu_models
from carrel_scheduler.engines.core_state import close_node
from carrel_scheduler.engines.external import NodeHealth
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import ExternalPod
from carrel_scheduler.engines.kubernetes.pods.devices.claims import DeviceClaims
from carrel_scheduler.engines.kubernetes.pods.node_groups import NodeGroups
from carrel_scheduler.engines.kubernetes.pods.nodes import (
    UnmanagedUse,
    gpu_count,
    gpu_model,
    health_of,
    node_set,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO, PodRefused
from carrel_scheduler.engines.kubernetes.pods.resource_requests import CLAIMED_GPUS
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod
from carrel_scheduler.engines.mig_resources import held_milli
from carrel_scheduler.node.contract import Device, NodeFacts
from carrel_scheduler.quarantine import Quarantine

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClusterNode:
    """The last seen state of a node, with its health.

    Attributes:
        seen: as the cluster shows it.
        object: the same with the GPUs that claims ask for.
        health: how it is.
    """

    seen: Node
    object: Node
    health: NodeHealth


class ClusterNodes:
    """The nodes of the cluster. Changes are gathered, and applied once a current."""

    def __init__(
        self,
        groups: NodeGroups,
        withheld: Callable[[NodeSet], NodeSet],
        devices: DeviceClaims,
        holds: Callable[[str], bool],
    ) -> None:
        self._groups, self._withheld = groups, withheld
        self._devices, self._holds = devices, holds
        self._known: dict[str, ClusterNode] = {}
        self._unmanaged = UnmanagedUse()
        self._changed: set[str] = set()
        self._left: set[str] = set()
        self._short: set[str] = set()
        self._health_changes: dict[str, NodeHealth] = {}
        self._followed = False

    def is_lost(self, name: str) -> bool:
        """Whether a node is gone or does not answer."""
        known = self._known.get(name)
        return known is None or known.health is NodeHealth.SILENT

    def health(self, name: str) -> NodeHealth:
        """The health of a node, where nodes are followed; else it counts as in order."""
        known = self._known.get(name)
        if known is None:
            return NodeHealth.GONE if self._followed else NodeHealth.IN_ORDER
        return known.health

    def short_of_gpus(self, state: State, name: str) -> bool:
        """Whether a node offers fewer GPUs than workloads and other pods use there."""
        known, slot = self._known.get(name), state.nodes.slots.get(name)
        if known is None or slot is None:
            return False
        devices = int(state.nodes.devices[slot])
        held = (state.nodes.free.devices[:devices, slot] < MILLI).sum()
        try:
            return int(held) > gpu_count(known.object)
        except PodRefused:
            return False

    def objects(self) -> list[Node]:
        """All node objects."""
        return [known.object for known in self._known.values()]

    def health_changes(self) -> Mapping[str, NodeHealth]:
        """The nodes that are another way since this was last asked, and new ones."""
        found, self._health_changes = self._health_changes, {}
        return found

    def see(self, node: Node) -> bool:
        """Handle a node that is new or changed; returns whether it is new."""
        name = node.metadata.name
        self._followed = True
        before = self._known.get(name)
        described = self._devices.described(node)
        known = self._known[name] = ClusterNode(node, described, health_of(node))
        self._changed.add(name)
        self._left.discard(name)
        if before is None or before.health is not known.health:
            self._health_changes[name] = known.health
        return before is None

    def follow_devices(self) -> list[Node]:
        """Update nodes whose devices, or their use, changed."""
        found = []
        for name in sorted(self._devices.take_changed() & self._known.keys()):
            known = self._known[name]
            known.object = self._devices.described(known.seen)
            self._changed.add(name)
            found.append(known.object)
        return found

    def claims_changed(self, pod: ExternalPod | None, node: str) -> None:
        """Note that the allocations of a pod's claims belong to another pod from now on."""
        if pod is not None and self._devices.asks(pod.manifest):
            self._changed.add(node)

    def claims_of_task_changed(self, pod: Pod) -> None:
        """Note that the allocation of a task's claim is known to be the task's from now on."""
        ours = self._devices.task_class or self._devices.mig_class
        if ours and self._devices.asks(pod):
            self._changed.add(pod.spec.node_name)

    def described(self, name: str) -> Node:
        """The facts of a node, with the GPUs that claims ask for."""
        return self._known[name].object

    def regroup(self) -> list[Node]:
        """The groups changed: all nodes are updated again."""
        self._changed |= self._known.keys()
        return self.objects()

    def leave(self, name: str) -> None:
        """Handle a deleted node; deletions of unmanaged pods there are reported separately."""
        self._devices.forget_node(name)
        if self._known.pop(name, None) is not None:
            self._changed.add(name)
            self._health_changes[name] = NodeHealth.GONE

    def leave_unknown(self, state: State) -> None:
        """Remove all nodes of the core that were not among the delivered ones."""
        unknown = state.nodes.slots.keys() - self._known.keys()
        self._changed |= unknown
        self._health_changes |= dict.fromkeys(unknown, NodeHealth.GONE)

    def put_unmanaged(self, pod: Pod) -> None:
        """An unmanaged pod was created or changed."""
        self._changed |= self._unmanaged.put(pod)

    def drop_unmanaged(self, uid: str) -> None:
        """A pod was deleted, or is not unmanaged."""
        self._changed |= self._unmanaged.drop(uid)

    @property
    def changed(self) -> bool:
        """Whether there are changes that the core has not been sent yet."""
        return bool(self._changed or self._left or self._short)

    def leaving(self, state: State) -> list[str]:
        """Names of nodes that are to be removed from the core."""
        gone = self._changed - self._known.keys()
        return sorted(gone & state.nodes.slots.keys())

    def settle(self, state: State, quarantine: Quarantine) -> list[NodeFacts]:
        """ReportPending the core of everything that changed; returns what people are to know of it.

        A node that cannot be described is left as it was, and set aside.
        """
        changed, self._changed = sorted(self._changed | self._left | self._short), set()
        facts = []
        for name in changed:
            with quarantine.guard("node", name):
                found = self._settle(state, name)
                facts += [] if found is None else [found]
        return facts

    def _settle(self, state: State, name: str) -> NodeFacts | None:
        known = self._known.get(name)
        self._short.discard(name)
        if known is None:
            self._drop(state, name)
            return None
        changed = self._changed_fact(state, known)
        fact = changed or state.nodes.fact(state.nodes.slot(name))
        if fact.devices - len(fact.broken_devices) > gpu_count(known.object):
            self._short.add(name)  # one in use is missing: the core learns of it once it is free
        if changed is None:
            return None
        _apply(state, changed)
        return facts_of(known.object, state.nodes.fact(state.nodes.slot(name)))

    def _drop(self, state: State, name: str) -> None:
        """A node was deleted: it leaves the core once the tasks of workloads there have ended."""
        if close_node(state, name):
            self._left.add(name)
            return
        self._left.discard(name)
        if name in state.nodes.slots:
            state.apply(NodeRemoved(name))

    def _changed_fact(self, state: State, known: ClusterNode) -> NodeSet | None:
        """The node for the core; ``None`` if the core knows it. Raises ``PodRefused``."""
        name = known.object.metadata.name
        slot = state.nodes.slots.get(name)
        before = None if slot is None else state.nodes.fact(slot)
        taken = () if slot is None else taken_gpus(state, slot)
        broken = () if before is None else before.broken_devices
        group = self._groups.of(known.object)
        used = dict(self._unmanaged.of(name))
        if claimed := self._devices.used_by_others(name, self._holds):
            used[CLAIMED_GPUS] = claimed * NANO
        instances = self._devices.instances(name)
        used |= {key: (most - left) * NANO for key, (most, left) in instances.items()}
        fact = node_set(known.object, used, taken, broken, group)
        counted = fact.counted_milli + self._devices.shared_milli(name)
        if instances:  # they are made of GPUs of the node, which are counted
            made = held_milli((key, left) for key, (_, left) in instances.items())
            counted += (divided := self._devices.divided_milli(name)) - made
            fact = replace(fact, divided=bool(divided))
        fact = replace(fact, counted_milli=counted)
        fact = self._withheld(fact)
        if before is not None and taken and fact.mig_model != before.mig_model:
            self._short.add(name)
            fact = _as_divided_before(fact, before)
        return None if fact == before else fact


def facts_of(node: Node, fact: NodeSet) -> NodeFacts:
    """A node's hardware as shown to users."""
    model = gpu_model(node) or gpu_models.UNTOLD
    return NodeFacts(
        name=fact.name,
        cpu_milli=fact.cpu_milli,
        memory_mib=fact.memory_mib,
        devices=tuple(
            Device(
                index=index,
                uuid=f"{fact.name}/{index}",
                name=model,
                memory_mib=fact.gpu_memory_mib,
                simulated=False,
                broken=index in fact.broken_devices,
            )
            for index in range(fact.devices)
        ),
        simulated=False,
        counted=True,
        mig_model=fact.mig_model,
    )


def _as_divided_before(fact: NodeSet, before: NodeSet) -> NodeSet:
    """A node whose GPUs begin, or cease, to be divided: nothing starts until all are free."""
    return replace(
        fact,
        mig_model=before.mig_model,
        instances_only=before.instances_only,
        profiles=before.profiles,
        divided=before.divided,
        schedulable=False,
    )


def taken_gpus(state: State, slot: int) -> list[int]:
    """The GPUs of a node that the core has given away or promised."""
    devices = int(state.nodes.devices[slot])
    free = state.nodes.free.devices[:devices, slot].tolist()
    promised = state.nodes.reserved.devices[:devices, slot].tolist()
    return [index for index in range(devices) if free[index] < MILLI or promised[index]]


def _apply(state: State, fact: NodeSet) -> None:
    """ReportPending the core; devices that went away under work that runs there count as broken."""
    try:
        state.apply(fact)
    except InvalidEvent as error:
        before = state.nodes.fact(state.nodes.slot(fact.name))
        if fact.devices >= before.devices:
            raise
        log.warning("node %s shows fewer GPUs than are in use there: %s", fact.name, error)
        broken = fact.broken_devices | frozenset(range(fact.devices, before.devices))
        state.apply(replace(fact, devices=before.devices, broken_devices=broken))
