"""What is known of nodes and their devices, and what follows from a look at them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.node.contract import Device, DeviceUse, NodeFacts
from carrel_scheduler.workloads.faults.withheld import Withheld
from carrel_scheduler.workloads.nodes import lost_devices
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges

Indexed = TypeVar("Indexed", Device, DeviceUse)
ACTIVE_UTILIZATION = 0.01
"""A device busier than this counts as working."""


@dataclass(slots=True)
class NodeState:
    """The latest facts and use of a node; ``idle_since`` by device index."""

    facts: NodeFacts
    use: dict[int, DeviceUse]
    idle_since: dict[int, float]


def take(
    changes: PassChanges,
    nodes: dict[str, NodeState],
    facts: NodeFacts,
    use: tuple[DeviceUse, ...],
    withheld: Withheld,
) -> None:
    """Take in a look at a node: changed facts, idle devices, workloads that work on theirs."""
    known = nodes.get(facts.name)
    if moved := lost_devices.places(known.facts if known else None, facts):
        facts, use = _moved(facts, use, moved)
    held = lost_devices.held_on(changes.cache, facts.name)
    facts = lost_devices.complete(known.facts if known else None, facts, held)
    if known is None or known.facts != facts:
        changes.state.apply(withheld.added_to(node_event(facts)))
        changes.cache.largest_gpus = max(changes.cache.largest_gpus, len(facts.devices))
    idle = known.idle_since if known else {}
    working = {one.index for one in use if one.utilization > ACTIVE_UTILIZATION or not one.known}
    for one in use:
        if one.index in working:
            idle.pop(one.index, None)
        else:
            idle.setdefault(one.index, changes.now)
    nodes[facts.name] = NodeState(facts, {one.index: one for one in use}, idle)
    for entry in changes.cache:
        here = [place for place in entry.places.values() if place.node == facts.name]
        if any(working.intersection(place.devices) for place in here):
            entry.gpu_active_at = changes.now
            entry.working_on.add(facts.name)
        else:
            entry.working_on.discard(facts.name)
    lost_devices.requeue(changes, facts)


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
