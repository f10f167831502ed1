"""GPU facts and use of one machine, real (NVML) or simulated. Read-only."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as the scheduler and people see it.

    ``broken``: nothing new starts there; ``lost``: it is also gone, so tasks on it cannot go on.
    ``message`` says why.
    """

    index: int
    uuid: str
    name: str
    memory_mib: int
    simulated: bool
    broken: bool = False
    lost: bool = False
    message: str = ""


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a device did over the last sampling window.

    ``utilization`` is 0..1. ``known`` is false where the device does not report it (partitioned,
    not answering): it is then shown as 0 and counts as busy, so that no task is stopped as idle.
    """

    index: int
    utilization: float
    memory_used_mib: int
    known: bool = True
    pids: tuple[int, ...] = ()


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


class DeviceProvider(Protocol):
    """Where GPU facts come from."""

    def facts(self) -> NodeFacts:
        """What is in the machine."""
        ...

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:
        """Use of every device; a simulation derives it from the process trees given."""
        ...
