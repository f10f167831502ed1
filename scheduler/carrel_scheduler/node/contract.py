"""GPU facts and use of one machine, real (NVML) or simulated. Read-only.

The same structures are what an agent on a node of a cluster reports to the scheduler.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Protocol

import msgspec

from carrel_schema.constraints import Constraint

MOST_DEVICES: Final = 64
Index = Annotated[int, Constraint(ge=0, le=MOST_DEVICES - 1)]
Mib = Annotated[int, Constraint(ge=0, le=2**40)]
Share = Annotated[float, Constraint(ge=0, le=1)]
Text = Annotated[str, Constraint(max_length=256)]


class HealthCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a device.

    Attributes:
        key: the same for as long as it is the same trouble: ``xid:79:1700000000``, ``link:3``;
            ``xid:79:0``: the last Xid 79, of unknown time.
        severity: ``failed``: no work can go on there; ``degraded``: work is slow or uncertain;
            ``closed``: nothing new can start there, what runs goes on.
        message: in words.
    """

    key: Text
    severity: Literal["failed", "degraded", "closed"]
    message: Text


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of a divided device."""

    uuid: Text
    name: Text
    memory_mib: Mib
    memory_used_mib: Mib


class DeviceLink(msgspec.Struct, frozen=True):
    """The distance between two devices of a node; ``hops`` as in ``core.events.Link``."""

    first: Index
    second: Index
    hops: Annotated[int, Constraint(ge=0, le=9)]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as the scheduler and users see it.

    ``broken``: nothing new starts there; ``lost``: it is also gone, so tasks on it cannot go on.
    ``message`` says why. ``conditions``: what health checks found; ``numa_node``: -1 if unknown.
    ``undivided``: it has no MIG, where the others of its node are divided as work asks.
    """

    index: Index
    uuid: Text
    name: Text
    memory_mib: Mib
    simulated: bool
    broken: bool = False
    lost: bool = False
    message: Text = ""
    conditions: Annotated[tuple[HealthCondition, ...], Constraint(max_length=64)] = ()
    instances: Annotated[tuple[MigInstance, ...], Constraint(max_length=64)] = ()
    numa_node: Annotated[int, Constraint(ge=-1, le=4096)] = -1
    undivided: bool = False


class OwnerUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a device by one owner's processes.

    Attributes:
        owner: a process id (of the root of a task), the uid of a pod or of a workload; whoever
            reads it knows which.
        utilization: 0..1 of the device; ``None``: the device does not tell.
    """

    owner: Text
    utilization: Share | None
    memory_used_mib: Mib


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of a device over the last sampling window.

    ``utilization`` is 0..1. ``known`` is false where the device does not report it (partitioned,
    not answering): it then counts as busy, so that no task is stopped as idle. ``owners`` are whose
    processes use it; ``attributed`` is false while some of them belong to nobody known.
    """

    index: Index
    utilization: Share
    memory_used_mib: Mib
    known: bool = True
    pids: Annotated[tuple[int, ...], Constraint(max_length=4096)] = ()
    power_watts: Annotated[float, Constraint(ge=0, le=100_000)] | None = None
    temperature_c: Annotated[int, Constraint(ge=-273, le=10_000)] | None = None
    owners: Annotated[tuple[OwnerUse, ...], Constraint(max_length=1024)] = ()
    attributed: bool = True


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a machine.

    ``counted``: only the number of its devices is known, not which of them is lost.
    ``fractions``: whether fractions of its GPUs are kept within their memory, in a sentence.
    ``mig_model``: of GPUs that are divided as work asks (``core.mig``); empty: they are not.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    devices: tuple[Device, ...]
    simulated: bool
    driver: str = ""
    counted: bool = False
    fractions: str = ""
    mig_model: str = ""
    links: tuple[DeviceLink, ...] = ()


LIMITER: Final = "the limiter"
DRIVER_LIMIT: Final = "the driver's limit"


def fractions_kept_by(*names: str) -> str:
    """What keeps fractions of GPUs within their memory, as a sentence."""
    return f"Fractions of GPUs are kept within their part of the memory by {' and '.join(names)}."


def limit_refused(why: str) -> str:
    """The sentence after that one, where the driver refused its limit; empty where it did not."""
    return f" The driver refused its limit of a task: {why}." if why else ""


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report of an agent on its node. ``owners`` of the use are pods.

    ``limits_memory``: it has the driver limit the memory of pods with a part of a GPU;
    ``limit_refusal``: why the driver last refused that; empty: it did not.
    """

    driver: Text
    devices: Annotated[tuple[Device, ...], Constraint(max_length=MOST_DEVICES)]
    use: Annotated[tuple[DeviceUse, ...], Constraint(max_length=MOST_DEVICES)]
    links: Annotated[tuple[DeviceLink, ...], Constraint(max_length=2016)] = ()
    limits_memory: bool = False
    limit_refusal: Text = ""


class MemoryLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a GPU's memory that a pod has.

    Attributes:
        pod: its uid.
        device: UUID of the GPU.
        memory_mib: that all its processes may hold together.
    """

    pod: Text
    device: Text
    memory_mib: Mib


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a report: the parts of GPUs that pods of the node have."""

    limits: tuple[MemoryLimit, ...] = ()


Slots = Annotated[int, Constraint(ge=1, le=255)]
"""Memory slots of a device as bits."""


class MigOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG instance that the scheduler wants on a node: the agent finds or makes it.

    Attributes:
        id: the same for as long as the scheduler asks for it.
        device: UUID of the GPU.
        profile: as ``2g.20gb``.
        slots: where it is to lie.
        held: UUIDs of the instances of the node that pods have: they are not touched.
    """

    id: Text
    device: Text
    profile: Text
    slots: Slots
    held: Annotated[tuple[Text, ...], Constraint(max_length=1024)] = ()


class MigResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an order: the UUID of the instance, or why there is none.

    Attributes:
        made: it was not there before.
        removed: profiles of the idle instances that went for it.
    """

    id: Text
    uuid: Annotated[str, Constraint(pattern=r"^(MIG-[0-9A-Za-z/-]{1,120})?$")] = ""
    error: Annotated[str, Constraint(max_length=1024)] = ""
    made: bool = False
    removed: Annotated[tuple[Text, ...], Constraint(max_length=16)] = ()


class MigReport(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that an agent which divides GPUs has made since it last asked."""

    results: Annotated[tuple[MigResult, ...], Constraint(max_length=1024)] = ()


class MigOrders(msgspec.Struct, frozen=True, kw_only=True):
    """The orders to an agent; the agent asks again once it is done."""

    orders: tuple[MigOrder, ...] = ()


class DeviceProvider(Protocol):
    """A source of facts about GPUs."""

    def facts(self) -> NodeFacts:
        """The devices and resources of the machine."""
        ...

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:
        """The use of every device; a simulation derives it from the process trees given."""
        ...
