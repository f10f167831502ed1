"""Observed nodes and devices: facts, use, devices that are lost, and devices that are withheld.

While the scheduler runs, every GPU that a node once showed stays in its list, marked as broken.
After a restart, those are lost that recorded work holds and the node does not show. Work on a lost
GPU, or on one whose health checks fail, is ended and queued again; that counts as no failure of its
own.

Devices are withheld, which the core is told as broken, while a task runs on them that no live
workload owns (it is being ended), and while they are cordoned for their health (``nodes.health``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeVar

import msgspec

from carrel_scheduler.core.events import Link, NodeSet
from carrel_scheduler.core.state import State
from carrel_scheduler.engines import gpu_models
from carrel_scheduler.engines.contract import TaskId, TaskStatus
from carrel_scheduler.engines.external import ExternalPods
from carrel_scheduler.engines.gpu_models import place_of
from carrel_scheduler.node.contract import (
    DRIVER_LIMIT,
    LIMITER,
    Device,
    DeviceLink,
    DeviceUse,
    HealthCondition,
    NodeFacts,
    NodeReport,
    fractions_kept_by,
    limit_refused,
)
from carrel_scheduler.workloads.gangs import membership
from carrel_scheduler.workloads.lifecycle.termination import stop_for
from carrel_scheduler.workloads.nodes import health
from carrel_scheduler.workloads.nodes.device_records import DeviceRecords, moved_places, with_lost
from carrel_scheduler.workloads.nodes.health import Cordons
from carrel_scheduler.workloads.nodes.reported import devices_of, places_of, uuids_at_places
from carrel_scheduler.workloads.state import failure_reasons, gpu_use
from carrel_scheduler.workloads.state.cache import CachedWorkload, WorkloadCache
from carrel_scheduler.workloads.state.pass_changes import PassChanges

UNLIKE_HOPS = 9
"""The distance between GPUs of different models, farther than any of one model."""


class WithheldDevices:
    """Cordoned devices, and devices with a task that is not released yet.

    ``tasks``: node and devices of each such task.
    """

    def __init__(self) -> None:
        self.cordons = Cordons()
        self.tasks: dict[TaskId, tuple[str, frozenset[int]]] = {}

    def keep(self, task: TaskStatus, state: State) -> None:
        """Withhold the devices of a task."""
        if task.node and task.devices:
            self.tasks[task.id] = (task.node, frozenset(task.devices))
            self._tell(state, task.node, ())

    def ended(self, task: TaskId, state: State) -> None:
        """Release the devices of one of these tasks, which has ended."""
        self._tell(state, *self.tasks.pop(task))

    def on(self, node: str) -> frozenset[int]:
        """The withheld devices of a node."""
        cordoned = self.cordons.on(node)
        if not self.tasks:
            return cordoned
        return cordoned.union(
            device for name, devices in self.tasks.values() if name == node for device in devices
        )

    def check(
        self, node: str, devices: Iterable[Device], state: State
    ) -> Mapping[int, Sequence[HealthCondition]]:
        """Cordon the devices of a node that are not well; returns what is wrong, by index."""
        before, devices = self.cordons.on(node), tuple(devices)
        found = self.cordons.see(node, devices)
        out_of_order = {device.index for device in devices if device.broken}
        if before != self.cordons.on(node):
            self._tell(state, node, before - self.cordons.on(node) - out_of_order)
        return found

    def uncordon(self, node: str, device: Device, state: State) -> bool:
        """Return a device to service for an admin; returns whether it was cordoned."""
        if not self.cordons.acknowledge(node, device):
            return False
        self._tell(state, node, () if device.broken else (device.index,))
        return True

    def added_to(self, event: NodeSet) -> NodeSet:
        """The node's event for the core, with withheld devices marked as broken."""
        there = frozenset(range(event.devices)) & self.on(event.name)
        return replace(event, broken_devices=event.broken_devices | there) if there else event

    def _tell(self, state: State, node: str, given_back: Iterable[int]) -> None:
        slot = state.nodes.slots.get(node)
        if slot is None:
            return
        fact = state.nodes.fact(slot)
        usable = replace(fact, broken_devices=fact.broken_devices - frozenset(given_back))
        told = self.added_to(usable)
        if told != fact:
            state.apply(told)


Indexed = TypeVar("Indexed", Device, DeviceUse)


@dataclass(slots=True)
class NodeState:
    """The latest facts and use of a node.

    Attributes:
        use, idle_since: by device index.
        reported: on a cluster, the real devices by the index that they are shown at.
        read_at: when ``use`` was read; 0: never.
    """

    facts: NodeFacts
    use: dict[int, DeviceUse] = field(default_factory=dict)
    idle_since: dict[int, float] = field(default_factory=dict)
    reported: dict[int, Device] = field(default_factory=dict)
    read_at: float = 0.0

    def take_use(self, use: Mapping[int, DeviceUse], now: float) -> None:
        """Record a sample of the devices' use."""
        self.use, self.read_at = dict(use), now
        for index in range(len(self.facts.devices)):
            if gpu_use.working(use.get(index)) is False:
                self.idle_since.setdefault(index, now)
            else:
                self.idle_since.pop(index, None)

    def hardware(self, device: Device) -> Device:
        """The facts of the real device at the index of this one."""
        real = self.reported.get(device.index)
        if real is None:
            return device
        broken, message = device.broken or real.broken, device.message or real.message
        return msgspec.structs.replace(real, broken=broken, message=message)

    def seen_facts(self) -> NodeFacts:
        """The node's facts with the devices that its agent reports, at their indices."""
        devices = tuple(map(self.hardware, self.facts.devices))
        return msgspec.structs.replace(self.facts, devices=devices)

    def fresh_use(self, index: int, now: float) -> DeviceUse | None:
        """The use of a device, if it was sampled recently."""
        return self.use.get(index) if now - self.read_at <= gpu_use.STALE_SECONDS else None


def observe(
    changes: PassChanges,
    nodes: dict[str, NodeState],
    facts: NodeFacts,
    use: tuple[DeviceUse, ...],
    withheld: WithheldDevices,
    known_devices: DeviceRecords,
) -> None:
    """Take in a look at a node: changed facts, idle devices, workloads that work on theirs."""
    known = nodes.get(facts.name)
    before = known.facts if known else known_devices.before(facts.name)
    held = _held_on(changes.cache, facts.name)
    # Work is not known yet at the first look after a restart: it may hold any of what was there.
    kept = held if known or before is None else {one.index for one in before.devices}
    if moved := moved_places(before, facts, kept):
        facts, use = _moved(facts, use, moved)
    facts = with_lost(before, facts, held)
    known_devices.see(facts)
    if known is None or known.facts != facts:
        changes.state.apply(withheld.added_to(node_event(facts, changes.external_pods)))
        changes.cache.node_seen(facts)
    node = nodes[facts.name] = known_as(known, facts)
    if use:
        by_index = {one.index: one for one in use}
        node.take_use(by_index, changes.now)
        account = changes.cache.gpu_account
        for entry in changes.cache.holding:
            where = place_of(changes.state, facts.name, set(_devices(entry, facts.name)))
            gpu_use.take_readings(entry, facts.name, by_index, changes.now, account, where=where)
    _requeue_lost(changes, facts)
    if facts.counted:
        return  # the node's agent reports the health of its devices
    sick = withheld.check(facts.name, facts.devices, changes.state)
    for index, conditions in sick.items():
        for entry in tuple(changes.cache.holding):
            if index in _devices(entry, facts.name):
                _requeue_from_sick(changes, entry, index, facts.name, conditions)


def follow_groups(
    changes: PassChanges, nodes: Mapping[str, NodeState], withheld: WithheldDevices
) -> None:
    """Describe nodes again where groups of nodes changed, and queue waiting work again."""
    if changes.external_pods.take_regrouped():
        for node in nodes.values():
            event = node_event(node.facts, changes.external_pods)
            changes.state.apply(withheld.added_to(event))
        changes.cache.outdated = True


def take_report(
    changes: PassChanges,
    node: NodeState,
    report: NodeReport,
    withheld: WithheldDevices,
    here: Collection[CachedWorkload],
    known_gpus: Mapping[str, frozenset[str]],
) -> None:
    """Take in what the agent of a node of a cluster reports, with workloads as owners.

    ``here`` is the work that holds places on the node, ``known_gpus`` the UUIDs of what it has.
    """
    name, cache = node.facts.name, changes.cache
    owners = {one.index: {own.owner for own in one.owners} for one in report.use}
    held: dict[int, set[str]] = {}
    for entry in here:
        for index in _devices(entry, name):
            held.setdefault(index, set()).add(entry.uid)
    before = {device.uuid: index for index, device in node.reported.items()}
    size = max(len(node.facts.devices), len(report.devices))
    places = places_of(report.devices, owners, held, before, size)
    _, use = _moved(node.facts, report.use, places)
    node.reported = {
        places[one.index]: msgspec.structs.replace(one, index=places[one.index])
        for one in report.devices
    }
    node.facts = msgspec.structs.replace(
        node.facts,
        driver=report.driver,
        fractions=_fractions(report),
        links=tuple(
            DeviceLink(places[link.first], places[link.second], link.hops) for link in report.links
        ),
    )
    by_index = {one.index: one for one in use}
    node.take_use(by_index, changes.now)
    account, where = cache.gpu_account, place_of(changes.state, name)
    places_by_uuid = uuids_at_places(node.reported)
    for entry in here:
        has = devices_of(known_gpus.get(entry.uid, frozenset()), places_by_uuid)
        gpu_use.take_readings(
            entry, name, by_index, changes.now, account, counted=True, has=has, where=where
        )
    sick = withheld.check(name, node.reported.values(), changes.state)
    for index, conditions in sick.items():
        for own in by_index[index].owners if index in by_index else ():
            victim = cache.get(own.owner)
            if victim is not None and any(victim is one for one in here):
                _requeue_from_sick(changes, victim, index, name, conditions)


def _fractions(report: NodeReport) -> str:
    """What the driver of a node does for fractions, as a sentence; empty: nothing."""
    if not report.limits_memory:
        return ""
    text = fractions_kept_by(LIMITER, DRIVER_LIMIT)
    return text + limit_refused(report.limit_refusal)


def _moved(
    facts: NodeFacts, use: tuple[DeviceUse, ...], moved: Mapping[int, int]
) -> tuple[NodeFacts, tuple[DeviceUse, ...]]:
    """The same sample with other device indices."""

    def at_place(one: Indexed) -> Indexed:
        return msgspec.structs.replace(one, index=moved.get(one.index, one.index))

    there = tuple(sorted(map(at_place, facts.devices), key=lambda one: one.index))
    return msgspec.structs.replace(facts, devices=there), tuple(map(at_place, use))


def known_as(known: NodeState | None, facts: NodeFacts) -> NodeState:
    """A node with these facts, and the samples of its use."""
    if known is None:
        return NodeState(facts)
    if facts.counted:
        told = known.facts  # by the agent of the node
        facts = msgspec.structs.replace(
            facts, driver=told.driver, fractions=told.fractions, links=told.links
        )
    return replace(known, facts=facts)


def node_event(facts: NodeFacts, external_pods: ExternalPods) -> NodeSet:
    """The event that describes a node to the core; ``external_pods`` knows the groups of nodes."""
    models = gpu_models.of_node(device.name for device in facts.devices)
    types = gpu_models.types_of(device.name for device in facts.devices)
    group = external_pods.group_of(facts.name, gpu_models.selectable(facts.name, models))
    return NodeSet(
        name=facts.name,
        devices=len(facts.devices),
        cpu_milli=facts.cpu_milli,
        memory_mib=facts.memory_mib,
        gpu_memory_mib=min((device.memory_mib for device in facts.devices), default=0),
        broken_devices=frozenset(device.index for device in facts.devices if device.broken),
        labels=gpu_models.labels_of(models, group),
        links=_links(facts, types),
        mig_model=facts.mig_model,
        types=types,
        undivided=frozenset(device.index for device in facts.devices if device.undivided),
        instances_only=facts.counted and bool(facts.mig_model),
    )


def _links(facts: NodeFacts, types: Sequence[str]) -> tuple[Link, ...]:
    """The links of a node's GPUs; unlike ones are far apart, so that work gets equal ones."""
    told = tuple(Link(link.first, link.second, link.hops) for link in facts.links)
    if not types:
        return told
    unlike = tuple(
        Link(first, second, UNLIKE_HOPS)
        for first, second in combinations(range(len(types)), 2)
        if types[first] != types[second]
    )
    return (*(link for link in told if types[link.first] == types[link.second]), *unlike)


def _held_on(cache: WorkloadCache, node: str) -> set[int]:
    """The GPUs of a node that workloads hold."""
    places = (place for entry in cache.holding for place in entry.places.values())
    return {device for place in places if place.node == node for device in place.devices}


def _requeue_lost(changes: PassChanges, facts: NodeFacts) -> None:
    """End work that holds lost GPUs, and queue it again."""
    lost = {device.index for device in facts.devices if device.lost}
    if not lost or facts.counted:
        return
    for entry in tuple(changes.cache.holding):
        gone = lost.intersection(_devices(entry, facts.name))
        if gone and entry.workload.status.phase in ("starting", "running") and not entry.ending:
            how = failure_reasons.gpus_lost(sorted(gone), facts.name)
            _end_lost(changes, entry, how, facts.name, gone)


def _devices(entry: CachedWorkload, node: str) -> Iterable[int]:
    for place in entry.places.values():
        if place.node == node:
            yield from place.devices


def _requeue_from_sick(
    changes: PassChanges,
    entry: CachedWorkload,
    index: int,
    node: str,
    conditions: Sequence[HealthCondition],
) -> None:
    """End work on a device that is not well; people stay where it is only slow."""
    if entry.workload.status.phase not in ("starting", "running") or entry.ending:
        return
    if not health.ends_work(conditions):
        return
    if health.is_fatal(conditions) or entry.workload.spec.kind != "workspace":
        how = failure_reasons.gpu_cordoned(index, node, health.in_words(conditions))
        _end_lost(changes, entry, how, node, (index,))


def _end_lost(
    changes: PassChanges, entry: CachedWorkload, how: str, node: str, gone: Collection[int]
) -> None:
    """A workspace stops: what ran in it is gone, and its owner starts it again."""
    if entry.workload.spec.kind == "workspace" or not entry.alive:
        stop_for(changes, entry, failure_reasons.stopped_by_loss(how))
    else:
        membership.lose(changes, entry, how, lost=True, loss="gpu", node=node, devices=gone)
