"""Choice of a task's GPUs on a node, and the number of such tasks that fit on every node.

One entry for all four forms of requests. ``choose`` looks at one node and names devices; it gives
the same answer for the same state. ``capacity`` counts for all nodes at once, or for some columns
of them, and its count is exactly what repeated choices deliver.

Both take a view of the capacity, what is idle or what will be soon; in the latter ``choose``
prefers what is idle already. On nodes whose GPUs are divided into MIG instances a request for
memory gets the smallest instance that has it, shares are not used, and memory slots count only on
devices that have free thousandths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core import mig
from carrel_scheduler.core.devices import shares
from carrel_scheduler.core.devices.classes import GpuForm, GpuKind
from carrel_scheduler.core.devices.links import Links, links_of
from carrel_scheduler.core.events import Devices, NodeSet
from carrel_scheduler.core.layers import Bools, Counts, Milli, Slots
from carrel_scheduler.core.resources import MILLI

UNBOUNDED = 1 << 40
"""Tasks that fit as far as GPUs go when none are asked for."""

Warm = Sequence[Sequence[mig.Instance]]


class Choice(NamedTuple):
    """The devices of a task: ascending, thousandths and memory slots (bits) of each.

    Slots are those of a MIG instance, or all of a whole device where instances are made; else 0.
    """

    devices: Devices
    milli: int
    slots: int = 0


class DeviceCapacity(NamedTuple):
    """Capacity on the devices of one node: (D,) thousandths and (D,) bits of free memory slots."""

    devices: Milli
    slots: Slots


@dataclass(frozen=True, slots=True, eq=False)
class Hardware:
    """The properties of a node's GPUs on which the choice depends; shared by equal nodes.

    Attributes:
        gpu_memory_mib: of each device, 0 when unknown.
        model: its GPU model where MIG instances are made, else ``None``.
        links: how its devices are connected; ``None``: each to each equally well.
        undivided: bits of the devices without MIG, where others are divided.
    """

    gpu_memory_mib: int
    model: mig.Model | None
    links: Links | None
    undivided: int = 0


def hardware_of(node: NodeSet) -> Hardware:
    """The hardware of a node; equal ones give the same object.

    Raises:
        InvalidEvent: links of devices that are not there, or an unknown MIG model.
    """
    undivided = sum(1 << device for device in node.undivided) if node.mig_model else 0
    links = links_of(node.links, node.devices) if node.links else None
    return _interned(node.gpu_memory_mib, node.mig_model, links, undivided)


@lru_cache(maxsize=1024)
def _interned(memory_mib: int, model: str, links: Links | None, undivided: int) -> Hardware:
    return Hardware(memory_mib, mig.model_of(model) if model else None, links, undivided)


# One node


def choose(
    kind: GpuKind,
    hardware: Hardware,
    view: DeviceCapacity,
    *,
    idle: DeviceCapacity | None = None,
    warm: Warm = (),
    media: int = 0,
    tasks: int = 1,
) -> Choice | None:
    """The devices that a task takes on a node, or ``None`` where it does not fit.

    Args:
        kind: what it asks for.
        hardware: of the node.
        view: what may be used.
        idle: what of it is free at once, when ``view`` counts on capacity that is being
            released. Whole devices come from it alone where it has enough, else as ``links`` ranks
            them.
        warm: of each device the MIG instances that nobody uses.
        media: bits of the devices whose media engines are in use.
        tasks: how many such tasks are about to be placed here, see ``shares.tightest``.
    """
    if kind.form is GpuForm.NONE:
        return Choice((), 0)
    if kind.form is GpuForm.WHOLE:
        return _whole(kind.amount, hardware, view, idle, warm)
    if hardware.model is not None:
        return _instance(kind, hardware.model, view, idle, warm, media)
    share = share_on(kind, hardware.gpu_memory_mib)
    if not share:
        return None
    now = None if idle is None else idle.devices.tolist()
    devices = shares.tightest(view.devices.tolist(), share, kind.devices, now, tasks)
    return None if devices is None else Choice(devices, share)


def share_on(kind: GpuKind, gpu_memory_mib: int) -> int:
    """Thousandths of a device that a share or memory takes on a node without MIG; 0: it cannot."""
    if kind.form is GpuForm.SHARE:
        return kind.amount
    if kind.form is GpuForm.MEMORY:
        return shares.share_of_memory(kind.amount, gpu_memory_mib)
    return 0


def profile_on(kind: GpuKind, model: mig.Model) -> mig.Profile | None:
    """The MIG profile that serves a request on a GPU model, or ``None``."""
    if kind.form is GpuForm.MIG:
        return model.profiles.get(kind.profile)
    if kind.form is GpuForm.MEMORY and kind.devices == 1:
        return mig.smallest_profile(model, kind.amount)
    return None


def _whole(
    wanted: int, hardware: Hardware, view: DeviceCapacity, idle: DeviceCapacity | None, warm: Warm
) -> Choice | None:
    available = _bits_of(view.devices)
    if hardware.undivided:
        # A whole GPU without MIG is worth least to others; a task takes none of both kinds.
        plain = available & hardware.undivided
        available = plain if plain.bit_count() >= wanted else available & ~hardware.undivided
    free = available if idle is None else available & _bits_of(idle.devices)
    kept = sum(1 << device for device, instances in enumerate(warm) if instances) if warm else 0
    for few in (free & ~kept, free, available & ~kept):
        if few.bit_count() >= wanted:
            available = few
            break
    if hardware.links is None:
        devices = _first(available & free, available & ~free, wanted)
    else:
        devices = hardware.links.choose(available, wanted, free)
    if devices is None:
        return None
    divided = hardware.model is not None and not hardware.undivided >> devices[0] & 1
    return Choice(devices, MILLI, hardware.model.full if hardware.model and divided else 0)


@lru_cache(maxsize=1 << 15)
def _first(free: int, coming: int, wanted: int) -> Devices | None:
    """The first devices, free ones before those that are being released; ascending."""
    found: list[int] = []
    for bits in (free, coming):
        found += (device for device in range(bits.bit_length()) if bits >> device & 1)
    return tuple(sorted(found[:wanted])) if len(found) >= wanted else None


def _bits_of(devices: Milli) -> int:
    bits, bit = 0, 1
    for free in devices.tolist():
        if free >= MILLI:
            bits |= bit
        bit <<= 1
    return bits


def _instance(
    kind: GpuKind,
    model: mig.Model,
    view: DeviceCapacity,
    idle: DeviceCapacity | None,
    warm: Warm,
    media: int,
) -> Choice | None:
    """The fullest device that fits; an unused one last, few removals of idle instances first."""
    profile = profile_on(kind, model)
    if profile is None:
        return None
    best: tuple[tuple[bool, bool, int, bool, int, int], int] | None = None
    now = _open_slots(view if idle is None else idle)
    for device, free in enumerate(_open_slots(view)):
        if not free:
            continue
        there = warm[device] if device < len(warm) else ()
        used = bool(media >> device & 1)
        place = mig.place(model, profile, free & now[device], there, media_used=used)
        later = place is None
        if place is None:
            place = mig.place(model, profile, free, there, media_used=used)
        if place is None:
            continue
        removed, fresh = len(place.removed), not place.reused
        key = (free == model.full, later, removed, fresh, free.bit_count(), device)
        if best is None or key < best[0]:
            best = (key, place.bits)
    if best is None:
        return None
    return Choice((best[0][-1],), profile.milli, best[1])


def _open_slots(view: DeviceCapacity) -> list[int]:
    milli, slots = view.devices.tolist(), view.slots.tolist()
    return [bits if free else 0 for free, bits in zip(milli, slots, strict=True)]


# All nodes


def capacity(
    kind: GpuKind,
    devices: Milli,
    slots: Slots,
    memory_mib: Counts,
    models: npt.NDArray[np.uint8],
    media_used: Bools | None = None,
) -> Counts:
    """(N,) how many tasks fit on every node as far as GPUs go.

    Args:
        kind: what each asks for.
        devices: (D, N) free thousandths, 0 to 1000.
        slots: (D, N) bits of free memory slots, 0 where there are no MIG instances.
        memory_mib: (N,) memory of each GPU, 0 unknown.
        models: (N,) ``mig.model_code`` of each node, 0 where no MIG instances are made.
        media_used: (D, N) whether the media engines are in use; ``None`` means nowhere.
    """
    if kind.form is GpuForm.NONE:
        return np.full(devices.shape[1], UNBOUNDED, np.int64)
    if kind.form is GpuForm.WHOLE:
        return whole_counts(devices, kind.amount)
    if kind.form is GpuForm.SHARE:
        found = shares.counts(devices, kind.amount, kind.devices)
        return np.where(models, 0, found) if models.any() else found
    if kind.form is GpuForm.MIG:
        table = mig.profile_rows(kind.profile)
        if not kind.profile.endswith(mig.MEDIA):
            media_used = None
        return instance_counts(table, devices, slots, models, media_used)
    found = _memory_counts(kind, devices, memory_mib, models)
    if kind.devices == 1 and models.any():
        found += instance_counts(mig.memory_rows(kind.amount), devices, slots, models)
    return found


def whole_counts(devices: Milli, wanted: int) -> Counts:
    """(N,) how many tasks of ``wanted`` whole devices fit."""
    free = (devices >= MILLI).view(np.uint8)
    found: Slots = np.add.reduce(free, axis=0, dtype=np.uint8)
    if wanted > 1:
        found //= np.uint8(min(wanted, 255))
    return found.astype(np.int64)


def _memory_counts(
    kind: GpuKind, devices: Milli, memory_mib: Counts, models: npt.NDArray[np.uint8]
) -> Counts:
    """Clusters have few sizes of GPU memory, so every share size that occurs is counted once."""
    share = shares.shares_of_memory(kind.amount, memory_mib)
    share[models > 0] = 0
    sizes = np.flatnonzero(np.bincount(share, minlength=1)[1:]) + 1
    found = np.zeros(len(share), np.int64)
    for size in sizes.tolist():
        np.copyto(found, shares.counts(devices, size, kind.devices), where=share == size)
    return found


def instance_counts(
    table: Slots,
    devices: Milli,
    slots: Slots,
    models: npt.NDArray[np.uint8],
    media_used: Bools | None = None,
) -> Counts:
    """(N,) how many MIG instances fit, by a table of ``mig.profile_rows``."""
    found: Counts = np.zeros(len(models), np.int64)
    nodes = np.flatnonzero(models)
    if not len(nodes):
        return found
    open_slots = slots.take(nodes, 1) * (devices.take(nodes, 1) > 0)
    rows = models.take(nodes).astype(np.int64) * mig.MASKS
    each = table.ravel().take(open_slots + rows)
    if media_used is not None:
        each = each * ~media_used.take(nodes, 1)
    found[nodes] = each.sum(axis=0, dtype=np.int64)
    return found
