"""GPUs that claims share, as Carrel's own tasks get parts of them. Pure.

The core chooses a node and places there, by number, and counts how much of each is taken. Which
device a place stands for follows from the claims of the tasks that have parts of it: the first one
gets a device of which nobody has a part, the others the same one. So a place needs no record of its
own, and after a restart claims tell what they told before. A device of which pods of others have
parts is at no place.

A place stands in the name of the request, and in the id of the share, which is written by whoever
allocates claims and by nobody else: a user's own claim can call its requests what it likes.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import NAMESPACE_OID, uuid5

from carrel_scheduler.core.devices.classes import GpuForm, GpuKind
from carrel_scheduler.core.devices.shares import share_of_memory
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.engines.kubernetes.pods.devices.capacity import Asked, SharedCapacity
from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts, enough, less
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import (
    DeviceAllocation,
    DeviceId,
    NodeDevice,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO

MEMORY: Final = "memory"
_PLACE: Final = "place-"
_MOST_DIGITS: Final = 4
_LOSS: Final = 100
"""A part is rounded down to what the device gives by at most this part of the GPU."""


@dataclass(frozen=True, slots=True)
class SharingTerms:
    """The capacities that the GPUs of a node share out: the same for all of them."""

    capacities: tuple[tuple[str, SharedCapacity], ...]

    @property
    def label(self) -> str:
        """The label by which the core tells nodes with other terms apart."""
        return f"shares-{hashlib.sha256(repr(self.capacities).encode()).hexdigest()[:12]}"

    @property
    def memory_mib(self) -> int:
        """The memory of each GPU."""
        return dict(self.capacities)[MEMORY].total // NANO // MIB

    def amounts(self, milli: int, asked_mib: int = 0) -> Asked | None:
        """The amount of each capacity in a part of a GPU; ``None``: the device gives no such part.

        Args:
            milli: the part, in thousandths.
            asked_mib: the memory that was asked for; 0: the part was.
        """
        found: list[tuple[str, int]] = []
        for name, one in self.capacities:
            most = one.total * milli // MILLI
            amount = one.floor(most)
            if name == MEMORY and asked_mib:
                amount = one.consumed(asked_mib * MIB * NANO)
                if amount is None or amount > most:
                    return None
            elif amount is None or (most - amount) * _LOSS > one.total:
                return None
            found.append((name, amount))
        return tuple(found)

    def gives(self, kind: GpuKind) -> bool:
        """Whether GPUs are given here as they are asked for."""
        if kind.form is GpuForm.NONE:
            return True
        if kind.form is GpuForm.WHOLE:
            return self.amounts(MILLI) is not None
        if kind.form is GpuForm.SHARE:
            return self.amounts(kind.amount) is not None
        if kind.form is GpuForm.MEMORY:
            milli = share_of_memory(kind.amount, self.memory_mib)
            return bool(milli) and self.amounts(milli, kind.amount) is not None
        return False


def terms_of(gpus: Sequence[NodeDevice]) -> SharingTerms | None:
    """The terms of the GPUs of a node; ``None`` where tasks get no parts of them."""
    terms = {tuple(sorted(one.consumables.items())) for one in gpus}
    if len(terms) != 1 or not all(one.uuid for one in gpus):
        return None
    found = terms.pop()
    memory = dict(found).get(MEMORY)
    return SharingTerms(found) if memory is not None and memory.total >= MIB * NANO else None


def request_of(place: int) -> str:
    """The name of the request for a part of the GPU at a place of its node."""
    return f"{_PLACE}{place}"


def share_id(pod_uid: str, namespace: str, claim: str, what: str) -> str:
    """The id of a pod's share of a device: the same with each try."""
    return str(uuid5(NAMESPACE_OID, f"{pod_uid}/{namespace}/{claim}/{what}"))


def place_of(request: str, share: str, pod_uid: str, namespace: str, claim: str) -> int | None:
    """The place at which a task has a share; ``None`` for shares of others."""
    digits = request.removeprefix(_PLACE)
    if digits == request or not digits.isdecimal() or len(digits) > _MOST_DIGITS:
        return None
    return int(digits) if share == share_id(pod_uid, namespace, claim, request) else None


def places_of(uses: Iterable[DeviceAllocation]) -> dict[int, DeviceId]:
    """The devices of places at which tasks have parts."""
    return {one.place: one.id for one in uses if one.place is not None}


def of_others(uses: Iterable[DeviceAllocation]) -> frozenset[DeviceId]:
    """The devices of which others have parts."""
    return frozenset(one.id for one in uses if one.place is None)


def devices_at(
    places: Sequence[int],
    gpus: Sequence[NodeDevice],
    uses: Sequence[DeviceAllocation],
    left: Amounts,
    asked: Asked,
) -> list[NodeDevice] | None:
    """The devices of a task's places; ``None`` while not enough of them is free.

    Args:
        places: that the core chose.
        gpus: of the node.
        uses: what is given of them.
        left: what is left of them.
        asked: of each.
    """
    by_id = {one.id: one for one in gpus}
    known: Mapping[int, DeviceId] = places_of(uses)
    used = {one.id for one in uses}
    unused = [one for one in gpus if one.id not in used]
    found: list[NodeDevice] = []
    for place in places:
        at = known.get(place)
        device = by_id.get(at) if at is not None else next(iter(unused), None)
        given = None if device is None else device.given(asked)
        if device is None or given is None or not enough(left, device.takes_for(given)):
            return None
        left = less(left, device.takes_for(given))
        if at is None:
            unused.remove(device)
        found.append(device)
    return found
