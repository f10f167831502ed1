"""Choice of a node's devices for a task that prefers some of them.

On a node whose devices are unlike, a request names the types that will do, the best first: devices
of one type are tried alone, type after type, then all of them together. Within that, devices on
which its last attempts failed are taken last. Only the types are a condition; ``capacity`` counts
them as such.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from carrel_scheduler.core.devices import shares
from carrel_scheduler.core.devices.classes import GpuKind
from carrel_scheduler.core.devices.device_choice import (
    Choice,
    DeviceCapacity,
    Hardware,
    Warm,
    choose,
    share_on,
)
from carrel_scheduler.core.events import Devices, NodeSet
from carrel_scheduler.core.requests import NodeConstraint

NO_DEVICE = -1


@dataclass(frozen=True, slots=True)
class Preferences:
    """A request's order of preference among the devices of one node.

    Attributes:
        groups: devices to take together, one group after the other; ``None``: all are equal.
        avoided: devices that are taken last, the first of them least of all.
        valued: the device for a share after which the node is worth most; ``NO_DEVICE``: no
            opinion.
    """

    groups: tuple[Devices, ...] | None = None
    avoided: Devices = ()
    valued: int = NO_DEVICE

    @classmethod
    def of(cls, where: NodeConstraint, node: NodeSet, valued: int = NO_DEVICE) -> "Preferences":
        """The preferences of a request on a node."""
        avoided = tuple(
            device
            for name, device in where.avoided_devices
            if name == node.name and 0 <= device < node.devices
        )
        if where.device_types is None or not node.types:
            return cls(None, avoided, valued)
        several = (*where.device_types, frozenset[str]().union(*where.device_types))
        groups = tuple(
            tuple(device for device, name in enumerate(node.types) if name in types)
            for types in dict.fromkeys(several)
        )
        return cls(groups, avoided)


def choose_preferred(
    kind: GpuKind,
    hardware: Hardware,
    view: DeviceCapacity,
    preferences: Preferences,
    *,
    idle: DeviceCapacity | None = None,
    warm: Warm = (),
    tasks: int = 1,
) -> Choice | None:
    """``choose`` by preferences; ``None`` where the task does not fit."""
    valued, avoided = preferences.valued, preferences.avoided
    if valued >= 0 and valued not in avoided:
        return Choice((valued,), kind.amount)
    for among in _in_order(preferences.groups, view):
        for some in _without(kind, hardware, among, avoided, tasks):
            found = choose(kind, hardware, some, idle=idle, warm=warm, tasks=tasks)
            if found is not None:
                return found
        if valued >= 0:
            return Choice((valued,), kind.amount)
        found = choose(kind, hardware, among, idle=idle, warm=warm, tasks=tasks)
        if found is not None:
            return found
    return None


def _in_order(groups: tuple[Devices, ...] | None, view: DeviceCapacity) -> Iterator[DeviceCapacity]:
    """The view of each group of devices alone."""
    if groups is None:
        yield view
        return
    for group in groups:
        others = [device for device in range(len(view.devices)) if device not in group]
        yield _masked(view, others)


def _without(
    kind: GpuKind, hardware: Hardware, view: DeviceCapacity, avoided: Devices, tasks: int
) -> Iterator[DeviceCapacity]:
    """The view without the avoided devices, then without fewer and fewer of them.

    A share of several devices is left out where that would keep others of the ``tasks`` from
    fitting: they fit only if the devices with most capacity are taken, see ``shares``.
    """
    for number in range(len(avoided), 0, -1):
        others = _masked(view, avoided[:number])
        if kind.devices > 1 and _count(kind, hardware, others) < min(
            tasks, _count(kind, hardware, view)
        ):
            continue
        yield others


def _masked(view: DeviceCapacity, devices: Devices | list[int]) -> DeviceCapacity:
    """The view with nothing free on these devices."""
    free = view.devices.copy()
    free[list(devices)] = 0
    return DeviceCapacity(free, view.slots)


def _count(kind: GpuKind, hardware: Hardware, view: DeviceCapacity) -> int:
    """The number of tasks with a share of several devices that fit."""
    share = share_on(kind, hardware.gpu_memory_mib)
    return int(shares.counts(view.devices[:, None], share, kind.devices)[0]) if share else 0
