"""Observed nodes and devices: facts, use, devices that are lost, and devices that are withheld.

While the scheduler runs, every GPU that a node once showed stays in its list, marked as broken.
After a restart, those are lost that recorded work holds and the node does not show. Work on a lost
GPU is ended and queued again; that counts as no failure of its own.

Devices are withheld while a task runs on them that no live workload owns: it is being ended, and
until the engine reports its end they are told to the core as broken, so that none is used twice.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import msgspec

from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.contract import TaskId, TaskStatus
from carrel_scheduler.node.contract import Device, DeviceUse, NodeFacts
from carrel_scheduler.workloads.cache import CachedWorkload, WorkloadCache
from carrel_scheduler.workloads.gangs import membership
from carrel_scheduler.workloads.lifecycle import reasons
from carrel_scheduler.workloads.lifecycle.termination import stop_for
from carrel_scheduler.workloads.nodes import gpu_use
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges


class WithheldDevices:
    """Devices by the task that runs on them."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, tuple[str, frozenset[int]]] = {}

    def keep(self, task: TaskStatus, state: State) -> None:
        """Withhold the devices of a task."""
        if task.node and task.devices:
            self._tasks[task.id] = (task.node, frozenset(task.devices))
            self._tell(state, task.node, ())

    def ended(self, task: TaskId, state: State) -> None:
        """The task has ended; its devices may be used again."""
        found = self._tasks.pop(task, None)
        if found is not None:
            self._tell(state, *found)

    def on(self, node: str) -> frozenset[int]:
        """The devices of a node that are withheld."""
        if not self._tasks:
            return frozenset()
        return frozenset(
            device for name, devices in self._tasks.values() if name == node for device in devices
        )

    def added_to(self, event: NodeSet) -> NodeSet:
        """A node as the core is to be told of it."""
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
NOT_SHOWN: Final = "Lost: the node does not show this GPU any more"


@dataclass(slots=True)
class NodeState:
    """The latest facts and use of a node; ``idle_since`` by device index."""

    facts: NodeFacts
    use: dict[int, DeviceUse]
    idle_since: dict[int, float]


def observe(
    changes: PassChanges,
    nodes: dict[str, NodeState],
    facts: NodeFacts,
    use: tuple[DeviceUse, ...],
    withheld: WithheldDevices,
) -> None:
    """Take in a look at a node: changed facts, idle devices, workloads that work on theirs."""
    known = nodes.get(facts.name)
    if moved := _moved_places(known.facts if known else None, facts):
        facts, use = _moved(facts, use, moved)
    held = _held_on(changes.cache, facts.name)
    facts = with_lost(known.facts if known else None, facts, held)
    if known is None or known.facts != facts:
        changes.state.apply(withheld.added_to(node_event(facts)))
        changes.cache.largest_gpus = max(changes.cache.largest_gpus, len(facts.devices))
    idle = known.idle_since if known else {}
    by_index = {one.index: one for one in use}
    for device in facts.devices:
        if gpu_use.working(by_index.get(device.index)) is False:
            idle.setdefault(device.index, changes.now)
        else:
            idle.pop(device.index, None)
    nodes[facts.name] = NodeState(facts, by_index, idle)
    if use:
        for entry in changes.cache.holding:
            gpu_use.take_readings(entry, facts.name, by_index, changes.now)
    _requeue_lost(changes, facts)


def _moved(
    facts: NodeFacts, use: tuple[DeviceUse, ...], moved: Mapping[int, int]
) -> tuple[NodeFacts, tuple[DeviceUse, ...]]:
    """The same look with other indices of devices."""

    def at_place(one: Indexed) -> Indexed:
        return msgspec.structs.replace(one, index=moved.get(one.index, one.index))

    there = tuple(sorted(map(at_place, facts.devices), key=lambda one: one.index))
    return msgspec.structs.replace(facts, devices=there), tuple(map(at_place, use))


def known_as(known: NodeState | None, facts: NodeFacts) -> NodeState:
    """A node with these facts, and what was seen of its use."""
    return NodeState(facts, known.use, known.idle_since) if known else NodeState(facts, {}, {})


def node_event(facts: NodeFacts) -> NodeSet:
    """What the core has to know of a node."""
    return NodeSet(
        name=facts.name,
        devices=len(facts.devices),
        cpu_milli=facts.cpu_milli,
        memory_mib=facts.memory_mib,
        gpu_memory_mib=min((device.memory_mib for device in facts.devices), default=0),
        broken_devices=frozenset(device.index for device in facts.devices if device.broken),
    )


def _moved_places(before: NodeFacts | None, now: NodeFacts) -> dict[int, int]:
    """Where devices belong that have other indices than before, by their present index.

    A driver that finds one GPU less counts the others anew; each keeps the index that work knows.
    """
    if before is None:
        return {}
    known = {device.uuid: device.index for device in before.devices if device.uuid}
    found = {one.index: known.get(one.uuid, one.index) for one in now.devices if one.uuid}
    moved = {index: place for index, place in found.items() if index != place}
    return moved if len(set(found.values())) == len(found) else {}


def with_lost(before: NodeFacts | None, now: NodeFacts, held: Collection[int]) -> NodeFacts:
    """The facts of a node, with the GPUs that it showed before or that are in use there.

    Args:
        before: what was known of it.
        now: what it shows.
        held: indices of GPUs that work of ours holds there.
    """
    there = {device.index: device for device in now.devices}
    known = {} if before is None else {device.index: device for device in before.devices}
    if max((*there, *known, *held), default=-1) < len(now.devices):
        return now
    last = max((*there, *known, *held))
    devices = tuple(there.get(index) or _lost(index, known, now) for index in range(last + 1))
    return msgspec.structs.replace(now, devices=devices)


def _lost(index: int, known: dict[int, Device], node: NodeFacts) -> Device:
    device = known.get(index)
    if device is None:
        alike = node.devices[0] if node.devices else None
        device = Device(
            index=index,
            uuid="",
            name=alike.name if alike else "GPU",
            memory_mib=alike.memory_mib if alike else 0,
            simulated=node.simulated,
        )
    return msgspec.structs.replace(device, broken=True, lost=True, message=NOT_SHOWN)


def _held_on(cache: WorkloadCache, node: str) -> set[int]:
    """The GPUs of a node that our own work holds."""
    places = (place for entry in cache.holding for place in entry.places.values())
    return {device for place in places if place.node == node for device in place.devices}


def _requeue_lost(changes: PassChanges, facts: NodeFacts) -> None:
    """End the work that holds GPUs which are lost, to be queued again."""
    lost = {device.index for device in facts.devices if device.lost}
    if not lost or facts.counted:
        return
    for entry in tuple(changes.cache.holding):
        gone = lost.intersection(_devices(entry, facts.name))
        if gone and entry.workload.status.phase in ("starting", "running") and not entry.ending:
            _end_lost(changes, entry, reasons.gpus_lost(sorted(gone), facts.name))


def _devices(entry: CachedWorkload, node: str) -> Iterable[int]:
    for place in entry.places.values():
        if place.node == node:
            yield from place.devices


def _end_lost(changes: PassChanges, entry: CachedWorkload, how: str) -> None:
    """A workspace stops: what ran in it is gone, and its owner starts it again."""
    if entry.workload.spec.kind == "workspace" or not entry.alive:
        stop_for(changes, entry, reasons.stopped_by_loss(how))
    else:
        membership.lose(changes, entry, how, lost=True)
