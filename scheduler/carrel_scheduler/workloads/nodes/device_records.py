"""Indices of a node's GPUs, stable for as long as work knows a GPU by its index.

A driver that finds one GPU less, or was reset, counts the others anew. A GPU keeps the index at
which it was seen first, by its UUID, also over restarts of the scheduler while tasks live on the
node (``DeviceRecords``): they hold the GPU, wherever it is counted now.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from carrel_scheduler.node.contract import Device, NodeFacts

SETTING: Final = "known_devices"
"""The ledger's setting that holds the record."""
NOT_SHOWN: Final = "Lost: the node does not show this GPU any more"


class DeviceRecords:
    """The GPUs of nodes at their last known indices.

    Attributes:
        changed: something that ``record`` returns changed since the attribute was last unset.
    """

    def __init__(self) -> None:
        self.changed = False
        self._restored: dict[str, NodeFacts] = {}
        self._seen: dict[str, tuple[Device, ...]] = {}

    def before(self, node: str) -> NodeFacts | None:
        """The facts of a node that the earlier scheduler had seen; ``None``: none that count."""
        return self._restored.get(node)

    def see(self, facts: NodeFacts) -> None:
        """A node has these devices. Where they are only counted, they have no indices to keep."""
        if facts.counted:
            return
        self._restored.pop(facts.name, None)
        now = tuple(
            Device(
                index=one.index,
                uuid=one.uuid,
                name=one.name,
                memory_mib=one.memory_mib,
                simulated=one.simulated,
            )
            for one in facts.devices
            if one.uuid or not one.lost  # one that nobody ever saw is kept for its work only
        )
        if self._seen.get(facts.name) != now:
            self._seen[facts.name] = now
            self.changed = True

    def record(self) -> Mapping[str, tuple[Device, ...]]:
        """The records to keep over a restart: devices by node."""
        return dict(self._seen)

    def restore(self, kept: Mapping[str, tuple[Device, ...]], nodes: Collection[str]) -> None:
        """Restore the records of these nodes, on which tasks run."""
        for name in kept.keys() & set(nodes):
            self._restored[name] = NodeFacts(
                name=name, cpu_milli=0, memory_mib=0, devices=kept[name], simulated=False
            )


def moved_places(
    before: NodeFacts | None, now: NodeFacts, held: Collection[int] = ()
) -> dict[int, int]:
    """The recorded indices of devices that have other ones now, by present index.

    One that was not there before takes the index that the driver gives it, where that is free:
    neither that of a device which is there, nor that of a lost one on which work still lives. One
    without a UUID, as of a simulated node, is always the one at its index.

    Args:
        before: what was known of the node.
        now: what it shows.
        held: indices of GPUs that workloads hold there.
    """
    if before is None:
        return {}
    known = {device.uuid: device.index for device in before.devices if device.uuid}
    found = {
        one.index: known.get(one.uuid, one.index)
        for one in now.devices
        if one.uuid in known or not one.uuid
    }
    if len(set(found.values())) < len(found):
        return {}
    taken = {*found.values(), *held}
    for device in now.devices:
        if device.index in found:
            continue
        free = (i for i in range(len(now.devices) + len(taken)) if i not in taken)
        found[device.index] = next(free) if device.index in taken else device.index
        taken.add(found[device.index])
    return {index: place for index, place in found.items() if index != place}


def with_lost(before: NodeFacts | None, now: NodeFacts, held: Collection[int]) -> NodeFacts:
    """The facts of a node, with the GPUs that it showed before or that are in use there.

    Args:
        before: what was known of it.
        now: what it shows.
        held: indices of GPUs that workloads hold there.
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
