"""The machines, who holds them, who waits for them, and who asks."""

import msgspec

from carrel.models.workload import Reason


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the token belongs to."""

    user: str
    admin: bool = False
    projects: list[str] = []
    default_project: str | None = None


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a device. ``state``: ``running``, ``releasing`` or ``held`` (promised).

    Of projects that the caller is not in, ``uid``, ``name``, ``user`` and ``kind`` are empty.
    ``color`` is the project's colour number.
    """

    project: str = ""
    uid: str = ""
    name: str = ""
    user: str = ""
    kind: str = ""
    gpu_milli: int = 0
    borrowed: bool = False
    state: str = ""
    since: float = 0.0
    color: int | None = None


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU now. ``utilization`` is a share (0 to 1) of the last seconds."""

    index: int
    uuid: str = ""
    name: str = ""
    memory_mib: int = 0
    memory_used_mib: int = 0
    utilization: float = 0.0
    simulated: bool = False
    broken: bool = False
    message: str = ""
    allocated_milli: int = 0
    idle_since: float | None = None
    holders: list[Holder] = []


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One machine now."""

    name: str
    status: str = ""
    simulated: bool = False
    driver: str = ""
    cpu_milli: int = 0
    cpu_allocated_milli: int = 0
    memory_bytes: int = 0
    memory_allocated_bytes: int = 0
    gpu_milli: int = 0
    gpu_allocated_milli: int = 0
    largest_free_gpus: int = 0
    devices: list[Device] = []


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What one task of a waiting workload needs."""

    gpus: float = 0.0
    cpu_millicores: int = 0
    memory_bytes: int = 0


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One waiting workload, in the order of service; foreign ones carry no name and user."""

    position: int
    project: str = ""
    uid: str = ""
    name: str = ""
    user: str = ""
    kind: str = ""
    resources: Request = Request()
    tasks: int = 1
    waits_since: float = 0.0
    reason: Reason | None = None
    color: int | None = None
