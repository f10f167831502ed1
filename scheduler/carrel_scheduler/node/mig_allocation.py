"""Take a MIG instance: find one that is exactly what is wanted, or make room for it and make it.

An idle instance of the profile at its place is used again, since making one takes about a second;
otherwise idle ones in the way are removed first. One that somebody holds, that processes use, or
that is not ours to take, is never touched. Taking the same one twice finds it, so whoever was
interrupted takes it again.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from carrel_scheduler.core.mig import MEDIA
from carrel_scheduler.node.mig import Instance, MigDevices, MigError

log = logging.getLogger(__name__)


class InstanceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A wanted MIG instance: ``device`` and ``bits`` as ``node.mig`` has them."""

    device: str
    profile: str
    bits: int


class InstanceInUseError(MigError):
    """An instance in the way is in use: it is free once its user has ended."""


class UnmanagedInstanceError(MigError):
    """An instance in the way was made by somebody else, who alone may remove it."""


class InstanceOwner(Protocol):
    """Decides which MIG instances may be used and removed."""

    def seen(self, device: str, there: Sequence[Instance]) -> None:
        """Record that these are all instances of a GPU."""
        ...

    def is_ours(self, device: str, instance: Instance) -> bool:
        """Whether an idle instance may be used, or removed."""
        ...

    def making(self, wanted: InstanceRequest) -> None:
        """Record that an instance is about to be made."""
        ...

    def removed(self, device: str, instance: Instance) -> None:
        """Record that an instance was removed."""
        ...


class MachineInstances:
    """The owner of all instances of the machine."""

    def seen(self, _device: str, _there: Sequence[Instance]) -> None:
        """No effect: no instances are remembered."""

    def is_ours(self, _device: str, _instance: Instance) -> bool:
        """Yes."""
        return True

    def making(self, _wanted: InstanceRequest) -> None:
        """No effect: no instances are remembered."""

    def removed(self, _device: str, _instance: Instance) -> None:
        """No effect: no instances are remembered."""


def take(
    devices: MigDevices,
    wanted: InstanceRequest,
    held: Collection[str],
    ownership: InstanceOwner,
) -> Instance:
    """The wanted instance, found or made.

    Blocks while the driver works. One caller at a time for a device.

    Raises:
        MigError: there is none, and why.
    """
    device = wanted.device
    there = devices.instances(device)
    ownership.seen(device, there)
    for one in there:
        usable = one.uuid and not is_in_use(one, held)
        if _is_it(one, wanted) and usable and ownership.is_ours(device, one):
            return one
    in_way = [one for one in there if _is_in_way(one, wanted)]
    for one in in_way:
        _check_removable(one, wanted, held, ownership)
    for one in in_way:
        log.info("GPU %s: idle instance %s is removed", device, one.profile)
        devices.remove(device, one)
        ownership.removed(device, one)
    ownership.making(wanted)
    return devices.create(device, wanted.profile, wanted.bits)


def is_in_use(one: Instance, held: Collection[str]) -> bool:
    """Whether a task holds it, or processes use it."""
    return one.busy or one.uuid in held


def _check_removable(
    one: Instance, wanted: InstanceRequest, held: Collection[str], ownership: InstanceOwner
) -> None:
    where = f"the MIG instance {one.profile} on GPU {wanted.device}, in the way of {wanted.profile}"
    if is_in_use(one, held):
        raise InstanceInUseError(f"{where}, is in use")
    if not ownership.is_ours(wanted.device, one):
        raise UnmanagedInstanceError(f"{where}, was not made by Carrel: who made it may remove it")


def _is_it(one: Instance, wanted: InstanceRequest) -> bool:
    return (one.profile, one.bits) == (wanted.profile, wanted.bits)


def _is_in_way(one: Instance, wanted: InstanceRequest) -> bool:
    """Whether the instance overlaps, or has the media engines, of which a device has one set."""
    both = one.profile.endswith(MEDIA) and wanted.profile.endswith(MEDIA)
    return both or bool(one.bits & wanted.bits)
