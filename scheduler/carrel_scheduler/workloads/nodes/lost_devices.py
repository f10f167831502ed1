"""GPUs that a node no longer shows: shown as lost, and the work that was on them runs again.

While the scheduler runs, every GPU that a node once showed stays in its list, marked as broken.
After a restart, those are lost that recorded work holds and the node does not show. Work on a lost
GPU is ended and queued again; that counts as no failure of its own.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from carrel_scheduler.node.contract import Device, NodeFacts
from carrel_scheduler.workloads.cache import CachedWorkload, WorkloadCache
from carrel_scheduler.workloads.gangs import membership
from carrel_scheduler.workloads.lifecycle import reasons
from carrel_scheduler.workloads.lifecycle.spec_changes import stop_for
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges

NOT_SHOWN: Final = "Lost: the node does not show this GPU any more"


def places(before: NodeFacts | None, now: NodeFacts) -> dict[int, int]:
    """Where devices belong that have other indices than before, by their present index.

    A driver that finds one GPU less counts the others anew; each keeps the index that work knows.
    """
    if before is None:
        return {}
    known = {device.uuid: device.index for device in before.devices if device.uuid}
    found = {one.index: known.get(one.uuid, one.index) for one in now.devices if one.uuid}
    moved = {index: place for index, place in found.items() if index != place}
    return moved if len(set(found.values())) == len(found) else {}


def complete(before: NodeFacts | None, now: NodeFacts, held: Collection[int]) -> NodeFacts:
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


def held_on(cache: WorkloadCache, node: str) -> set[int]:
    """The GPUs of a node that our own work holds."""
    places = (place for entry in cache.holding for place in entry.places.values())
    return {device for place in places if place.node == node for device in place.devices}


def requeue(changes: PassChanges, facts: NodeFacts) -> None:
    """End the work that holds GPUs which are lost, to be queued again."""
    lost = {device.index for device in facts.devices if device.lost}
    if not lost or facts.counted:
        return
    for entry in tuple(changes.cache.holding):
        gone = lost.intersection(_devices(entry, facts.name))
        if gone and entry.workload.status.phase in ("starting", "running") and not entry.ending:
            _end(changes, entry, reasons.gpus_lost(sorted(gone), facts.name))


def _devices(entry: CachedWorkload, node: str) -> Iterable[int]:
    for place in entry.places.values():
        if place.node == node:
            yield from place.devices


def _end(changes: PassChanges, entry: CachedWorkload, how: str) -> None:
    """A workspace stops: what ran in it is gone, and its owner starts it again."""
    if entry.workload.spec.kind == "workspace" or not entry.alive:
        stop_for(changes, entry, reasons.stopped_by_loss(how))
    else:
        membership.lose(changes, entry, how, lost=True)
