"""What the state says about nodes to those who show them: plain facts, made when asked for.

Amounts: GPU thousandths, millicores, MiB. Rooms that are being released still count as held.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carrel_scheduler.core.layers import CPU, MEMORY

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns
    from carrel_scheduler.core.work.jobs import Job

Slot = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DeviceHolding:
    """A task on a device; ``releasing`` when it was told to stop.

    ``slots`` are the bits of its MIG instance, ``profile`` its name; 0 and empty for other tasks.
    """

    uid: str
    index: int
    gpu_milli: int
    releasing: bool
    slots: int = 0
    profile: str = ""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device.

    Attributes:
        promised_to: the uid of a workload that it is held for, or empty; ``promises`` all of them,
            since shares and MIG instances of a device may be held for several.
        free_slots: bits of free memory slots where MIG instances are made, else 0.
        warm: MIG instances that nobody uses: profile and slots.
    """

    index: int
    broken: bool
    free_milli: int
    holders: tuple[DeviceHolding, ...]
    promised_to: str
    promises: tuple[str, ...] = ()
    free_slots: int = 0
    warm: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Attributes:
        extended: countable resources: name, how many there are, how many are held.
    """

    name: str
    schedulable: bool
    cpu_milli: int
    cpu_allocated_milli: int
    memory_mib: int
    memory_allocated_mib: int
    devices: tuple[DeviceView, ...]
    draining: bool = False
    mig_model: str = ""
    extended: tuple[tuple[str, int, int], ...] = ()


def node_views(state: "Columns") -> list[NodeView]:
    """All nodes by name."""
    holders: dict[Slot, list[DeviceHolding]] = {}
    for job in state.holding.values():
        for index, row in sorted(job.rows.items()):
            place = state.tasks.footprint(row)
            profile = job.shape.requests[index].mig_profile
            holding = DeviceHolding(
                job.spec.uid,
                index,
                place.share,
                index in job.halted,
                place.slots,
                profile if place.slots else "",
            )
            for device in place.devices:
                holders.setdefault((place.node, device), []).append(holding)
    promises = _promises(state.promised.values())
    return [_node_view(state, name, holders, promises) for name in sorted(state.nodes.slots)]


def _promises(jobs: Iterable["Job"]) -> dict[Slot, list[str]]:
    found: dict[Slot, list[str]] = {}
    for job in jobs:
        for _, place in job.promise:
            for device in place.devices:
                uids = found.setdefault((place.node, device), [])
                if job.spec.uid not in uids:
                    uids.append(job.spec.uid)
    return found


def _node_view(
    state: "Columns",
    name: str,
    holders: dict[Slot, list[DeviceHolding]],
    promises: dict[Slot, list[str]],
) -> NodeView:
    nodes, slot = state.nodes, state.nodes.slots[name]
    fact = nodes.fact(slot)
    devices = tuple(
        _device_view(
            state, slot, device, holders.get((slot, device), []), promises.get((slot, device), [])
        )
        for device in range(fact.devices)
    )
    capacity, free = nodes.capacity[:, slot].tolist(), nodes.free.host[:, slot].tolist()
    held = [has - left for has, left in zip(capacity, free, strict=True)]
    extended = sorted((key, row) for key, row in nodes.extended.items() if capacity[row])
    return NodeView(
        name=name,
        schedulable=bool(nodes.schedulable[slot]),
        cpu_milli=capacity[CPU],
        cpu_allocated_milli=held[CPU],
        memory_mib=capacity[MEMORY],
        memory_allocated_mib=held[MEMORY],
        devices=devices,
        draining=fact.draining,
        mig_model=fact.mig_model,
        extended=tuple((key, capacity[row], held[row]) for key, row in extended),
    )


def _device_view(
    state: "Columns", slot: int, device: int, holders: list[DeviceHolding], promises: list[str]
) -> DeviceView:
    nodes, uids = state.nodes, sorted(promises)
    warm = state.warm.on(slot, device) if nodes.mig[slot] else ()
    return DeviceView(
        index=device,
        broken=not bool(nodes.usable[device, slot]),
        free_milli=int(nodes.free.devices[device, slot]),
        holders=tuple(sorted(holders, key=lambda one: (one.uid, one.index))),
        promised_to=uids[0] if uids else "",
        promises=tuple(uids),
        free_slots=int(nodes.free.slots[device, slot]),
        warm=tuple((profile, bits) for profile, bits in warm),
    )
