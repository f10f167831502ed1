"""A workload's use of its GPUs, as measured.

Use that is not known counts as work, so that nothing is stopped as idle because nobody looked: no
reading, one that is older than ``STALE_SECONDS``, and a device without counters. A workload is idle
only while every node on which it holds GPUs has a fresh reading that says so.

On one machine the devices of a workload are known, and so is their use; of a device that several
share, each is told its own processes' part. On a cluster only the processes say which GPUs are a
workload's. A GPU whose use cannot be attributed there makes that of all work unknown that may have
it: all work of the node but for what is known to have other GPUs.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from carrel_scheduler.core.mig import counted_gpu_milli, instance_milli
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.node.contract import DeviceUse, OwnerUse
from carrel_scheduler.workloads.state.cache import CachedWorkload, GpuReading
from carrel_scheduler.workloads.state.gpu_account import GpuAccount

ACTIVE_UTILIZATION: Final = 0.01
"""A device busier than this counts as working."""
STALE_SECONDS: Final = 60.0
"""A reading that is older tells nothing of now."""


def holds_gpus(entry: CachedWorkload) -> bool:
    """Whether the workload holds GPUs, parts of one, or a MIG instance."""
    return counted_gpu_milli(entry.workload.spec.resources) > 0


def named(use: DeviceUse, name_of: Callable[[str], str | None]) -> DeviceUse:
    """The same use with the owners renamed; owners without a new name are left out."""
    found: dict[str, OwnerUse] = {}
    for one in use.owners:
        name = name_of(one.owner)
        if name is None:
            continue
        own, before = msgspec.structs.replace(one, owner=name), found.get(name)
        found[name] = own if before is None else _sum(before, own)
    return msgspec.structs.replace(use, owners=tuple(found.values()))


def _sum(one: OwnerUse, other: OwnerUse) -> OwnerUse:
    known = one.utilization is not None and other.utilization is not None
    return OwnerUse(
        owner=one.owner,
        utilization=min(1.0, (one.utilization or 0.0) + (other.utilization or 0.0))
        if known
        else None,
        memory_used_mib=one.memory_used_mib + other.memory_used_mib,
    )


def working(use: DeviceUse | None) -> bool | None:
    """Whether a device is busy; ``None`` if unknown."""
    if use is None or not use.known:
        return None
    return use.utilization > ACTIVE_UTILIZATION


def take_readings(
    entry: CachedWorkload,
    node: str,
    use: Mapping[int, DeviceUse],
    now: float,
    account: GpuAccount,
    *,
    counted: bool = False,
    has: Collection[int] = (),
    where: tuple[str, str] = ("", ""),
) -> None:
    """A look at a node: note what the GPUs that the workload holds there do.

    ``use`` is by device index; where devices are only ``counted``, processes tell whose they are,
    and ``has`` which ones the workload was given, if that is known. ``where`` is the node's GPU
    type and its group.
    """
    places = [place for place in entry.places.values() if place.node == node]
    if not places or not holds_gpus(entry):
        return
    if unknown(entry, now):
        entry.gpu_active_at = now
    devices = [device for place in places for device in place.devices]
    if counted:
        found = _of_processes(entry.uid, use, has, held=len(set(devices)))
    else:
        found = _of_devices(entry, devices, use)
    works = [one.utilization for one in found]
    known = [work for work in works if work is not None]
    busy = any(work > ACTIVE_UTILIZATION for work in known)
    if not busy and (None in works or not (counted or found)):
        entry.gpu_readings.pop(node, None)
        return
    if busy:
        entry.gpu_active_at = now
    memory = sum(one.memory_used_mib for one in found)
    before = entry.gpu_readings.get(node)
    entry.gpu_readings[node] = GpuReading(now, busy, sum(known), memory)
    fresh = [one for one in entry.gpu_readings.values() if now - one.at <= STALE_SECONDS]
    entry.gpu_series.add(
        now, sum(one.utilization for one in fresh), sum(one.memory_used_mib for one in fresh)
    )
    if before is not None and now - before.at <= STALE_SECONDS:
        asked = entry.workload.spec.resources
        milli = asked.gpu_milli or instance_milli(asked)
        held = len(devices) * (milli if 0 < milli < MILLI else MILLI) / MILLI
        idle = 0.0 if busy else held
        account.add(
            entry.workload, before.at, now, used_gpus=sum(known), idle_gpus=idle, place=where
        )


def _of_devices(
    entry: CachedWorkload, devices: Collection[int], use: Mapping[int, DeviceUse]
) -> list[OwnerUse]:
    """The workload's part of the use of its devices."""
    return [_part(entry.uid, use.get(device)) for device in devices]


def _part(uid: str, use: DeviceUse | None) -> OwnerUse:
    if use is None or not use.known:
        memory = 0 if use is None else use.memory_used_mib
        return OwnerUse(owner=uid, utilization=None, memory_used_mib=memory)
    own = next((one for one in use.owners if one.owner == uid), None)
    others = any(one.owner != uid for one in use.owners)
    if use.attributed and others:
        return own or OwnerUse(owner=uid, utilization=0.0, memory_used_mib=0)
    return OwnerUse(owner=uid, utilization=use.utilization, memory_used_mib=use.memory_used_mib)


def _of_processes(
    uid: str, use: Mapping[int, DeviceUse], has: Collection[int], held: int
) -> list[OwnerUse]:
    """The use by the workload's processes; unknown if others without an owner may be its own.

    Args:
        uid: of the workload.
        use: of all devices of the node.
        has: the devices that it was given; empty: not known.
        held: how many it was given; 0: only a part of one that has a name of its own.
    """
    found, seen_on = list[OwnerUse](), set[int]()
    for index, device in use.items():
        own = [one for one in device.owners if one.owner == uid]
        found += own
        if own:
            seen_on.add(index)
    if not has:
        has = seen_on if 0 < held <= len(seen_on) else use
    if not use or any(index not in use or not use[index].attributed for index in has):
        found.append(OwnerUse(owner=uid, utilization=None, memory_used_mib=0))
    return found


def unknown(entry: CachedWorkload, now: float) -> bool:
    """Whether the workload holds GPUs on a node without a fresh reading."""
    readings = (entry.gpu_readings.get(place.node) for place in entry.places.values())
    return holds_gpus(entry) and any(
        reading is None or now - reading.at > STALE_SECONDS for reading in readings
    )


def active(entry: CachedWorkload, now: float) -> bool:
    """Whether the workload counts as active on its GPUs now."""
    nodes = {place.node for place in entry.places.values()}
    return unknown(entry, now) or any(
        reading.working for node, reading in entry.gpu_readings.items() if node in nodes
    )
