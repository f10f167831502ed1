"""GPU facts and use of one machine, real (NVML) or simulated. Read-only.

The same structures are what an agent on a node of a cluster reports to the scheduler.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec


class HealthCondition(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong with a device.

    Attributes:
        key: the same for as long as it is the same trouble: ``xid:79:1700000000``, ``link:3``.
        severity: ``failed``: no work can go on there; ``degraded``: work is slow or uncertain.
        message: in words.
    """

    key: str
    severity: Literal["failed", "degraded"]
    message: str


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of a divided device."""

    uuid: str
    name: str
    memory_mib: int
    memory_used_mib: int


class DeviceLink(msgspec.Struct, frozen=True):
    """How well two devices of a node are connected; ``hops`` as in ``core.events.Link``."""

    first: int
    second: int
    hops: int


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as the scheduler and people see it.

    ``broken``: nothing new starts there; ``lost``: it is also gone, so tasks on it cannot go on.
    ``message`` says why. ``conditions``: what health checks found; ``numa_node``: -1 if unknown.
    """

    index: int
    uuid: str
    name: str
    memory_mib: int
    simulated: bool
    broken: bool = False
    lost: bool = False
    message: str = ""
    conditions: tuple[HealthCondition, ...] = ()
    instances: tuple[MigInstance, ...] = ()
    numa_node: int = -1


class OwnerUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one owner's processes do on a device.

    Attributes:
        owner: a process id (of the root of a task), the uid of a pod or of a workload; whoever
            reads it knows which.
        utilization: 0..1 of the device; ``None``: the device does not tell.
    """

    owner: str
    utilization: float | None
    memory_used_mib: int


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a device did over the last sampling window.

    ``utilization`` is 0..1. ``known`` is false where the device does not report it (partitioned,
    not answering): it then counts as busy, so that no task is stopped as idle. ``owners`` are whose
    processes use it; ``attributed`` is false while some of them belong to nobody known.
    """

    index: int
    utilization: float
    memory_used_mib: int
    known: bool = True
    pids: tuple[int, ...] = ()
    power_watts: float | None = None
    temperature_c: int | None = None
    owners: tuple[OwnerUse, ...] = ()
    attributed: bool = True


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One machine.

    ``counted``: only the number of its devices is known, not which of them is lost.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    devices: tuple[Device, ...]
    simulated: bool
    driver: str = ""
    counted: bool = False
    links: tuple[DeviceLink, ...] = ()


class DeviceProvider(Protocol):
    """Where GPU facts come from."""

    def facts(self) -> NodeFacts:
        """What is in the machine."""
        ...

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:
        """Use of every device; a simulation derives it from the process trees given."""
        ...
