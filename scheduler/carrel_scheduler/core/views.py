"""What the state says about itself to those who show it: plain facts, made when asked for.

Amounts: GPU thousandths, millicores, MiB. Rooms that are being released still count as held.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.resources import UNLIMITED

if TYPE_CHECKING:
    from carrel_scheduler.core.state import State
    from carrel_scheduler.core.workloads import Record


@dataclass(frozen=True, slots=True)
class ProjectUse:
    """What a project holds and waits for.

    Attributes:
        gpu_fixed_milli, cpu_fixed_milli, memory_fixed_mib: the part held by non-preemptible work,
            less what was told to stop.
        gpu_borrowed_milli: held beyond the quota.
        running, waiting: numbers of workloads.
    """

    name: str
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    gpu_fixed_milli: int
    cpu_fixed_milli: int
    memory_fixed_mib: int
    gpu_borrowed_milli: int
    gpu_waiting_milli: int
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class DeviceHolding:
    """A task on a device; ``releasing`` when it was told to stop."""

    uid: str
    index: int
    gpu_milli: int
    releasing: bool


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device; ``promised_to`` is the uid of the waiting workload it is held for, or empty."""

    index: int
    broken: bool
    free_milli: int
    holders: tuple[DeviceHolding, ...]
    promised_to: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node."""

    name: str
    schedulable: bool
    cpu_milli: int
    cpu_allocated_milli: int
    memory_mib: int
    memory_allocated_mib: int
    devices: tuple[DeviceView, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task is."""

    index: int
    node: str
    devices: tuple[int, ...]
    releasing: bool


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One workload: what was asked for and where it stands.

    Attributes:
        started_at: when it last got its place; ``None`` when it has none.
        checkpoint_at: its last checkpoint, ``None`` before the first.
        promised: the places held for it.
    """

    queued: WorkloadQueued
    waiting: bool
    places: tuple[Place, ...]
    started_at: float | None
    checkpoint_at: float | None
    promised: tuple[tuple[str, tuple[int, ...]], ...]


def project_use(state: "State", name: str) -> ProjectUse:
    """What a project holds and waits for. Raises ``KeyError`` for an unknown name."""
    columns = state.project_columns
    slot = columns.slots[name]
    held = columns.used[slot] + columns.releasing[slot]
    fixed = columns.used_fixed[slot]
    quota = columns.rule(slot).quota.gpu_milli
    gpu = int(held[0])
    return ProjectUse(
        name=name,
        gpu_milli=gpu,
        cpu_milli=int(held[1]),
        memory_mib=int(held[2]),
        gpu_fixed_milli=int(fixed[0]),
        cpu_fixed_milli=int(fixed[1]),
        memory_fixed_mib=int(fixed[2]),
        gpu_borrowed_milli=0 if quota == UNLIMITED else max(0, gpu - quota),
        gpu_waiting_milli=int(columns.waiting[slot, 0]),
        running=sum(record.project == slot for record in state.holding_records()),
        waiting=sum(record.project == slot for record in state.waiting_records()),
    )


def node_views(state: "State") -> list[NodeView]:
    """All nodes by name."""
    holders: dict[tuple[int, int], list[DeviceHolding]] = {}
    for record in state.holding_records():
        for index, row in sorted(record.rows.items()):
            place = state.tasks.footprint(row)
            stopping = bool(state.tasks.stopping[row])
            holding = DeviceHolding(record.spec.uid, index, place.share, stopping)
            for device in place.devices:
                holders.setdefault((place.node, device), []).append(holding)
    promised: dict[tuple[int, int], str] = {}
    for record in state.waiting_records():
        for place in record.promise:
            for device in place.devices:
                promised[place.node, device] = record.spec.uid
    return [_node_view(state, name, holders, promised) for name in sorted(state.nodes.slots)]


def _node_view(
    state: "State",
    name: str,
    holders: dict[tuple[int, int], list[DeviceHolding]],
    promised: dict[tuple[int, int], str],
) -> NodeView:
    nodes, slot = state.nodes, state.nodes.slots[name]
    devices = tuple(
        DeviceView(
            index=device,
            broken=not bool(nodes.usable[device, slot]),
            free_milli=int(nodes.free.devices[device, slot]),
            holders=tuple(sorted(holders.get((slot, device), ()), key=lambda h: (h.uid, h.index))),
            promised_to=promised.get((slot, device), ""),
        )
        for device in range(int(nodes.devices[slot]))
    )
    cpu, memory = (int(value) for value in nodes.capacity[:, slot])
    free_cpu, free_memory = (int(value) for value in nodes.free.host[:, slot])
    return NodeView(
        name=name,
        schedulable=bool(nodes.schedulable[slot]),
        cpu_milli=cpu,
        cpu_allocated_milli=cpu - free_cpu,
        memory_mib=memory,
        memory_allocated_mib=memory - free_memory,
        devices=devices,
    )


def workload_view(state: "State", record: "Record") -> WorkloadView:
    """One workload as it stands."""
    names, tasks = state.nodes.names, state.tasks
    places = []
    for index, row in sorted(record.rows.items()):
        place = tasks.footprint(row)
        stopping = bool(tasks.stopping[row])
        places.append(Place(index, names[place.node], place.devices, stopping))
    return WorkloadView(
        queued=record.spec,
        waiting=record.waiting,
        places=tuple(places),
        started_at=record.started if record.rows else None,
        checkpoint_at=record.saved,
        promised=tuple((names[place.node], place.devices) for place in record.promise),
    )
