"""Matching of devices to the requests of claims: an assignment is found if there is one.

A request for several devices is several slots; slots and devices are matched along augmenting
paths, so a choosy request gets its device from one that could have another. Constraints that
devices agree in an attribute are tried value by value. A request for all devices has a slot for
each that it selects on the node, be it free or not. One with access as an administrator looks at
devices whoever has them, and takes nothing of them.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.devices import counters
from carrel_scheduler.engines.kubernetes.pods.devices.capacity import Asked, asked_of
from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts
from carrel_scheduler.engines.kubernetes.pods.devices.expressions import attribute_of, program_of
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import DeviceAllocation, NodeDevice
from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    ClaimRequest,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
)
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.selectors import HARD, tolerated
from carrel_scheduler.engines.kubernetes.pods.types import Toleration

MOST_CHOICES: Final = 8
"""The most combinations of alternatives that are tried: each costs a look at all nodes."""
MOST_VALUES: Final = 64
"""The most combinations of values of attributes that are tried on a node."""
MOST_DEVICES: Final = 32
"""A claim is given no more, whoever allocates it; nor are the claims of a pod together."""


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """The devices of a request, with the chosen alternative.

    Attributes:
        claim: which of the pod's claims, by number: equal pods ask for the same.
        request: its name as allocations have it, ``gpu`` or ``gpu/large``.
        expressions: all hold for each of its ``count`` devices.
        agree: full names of attributes that have one value within the claim.
        differ: full names of those that have another value for each device.
        capacity: asked of each of its devices.
        place: the number by which the core knows the device; ``None``: it knows none.
        every: all devices of a node are asked for, ``count`` is 0.
        admin: as an administrator, beside whoever has them.
    """

    claim: int
    request: str
    expressions: tuple[str, ...]
    count: int
    tolerations: tuple[Toleration, ...] = ()
    agree: tuple[str, ...] = ()
    capacity: Asked = ()
    place: int | None = None
    differ: tuple[str, ...] = ()
    every: bool = False
    admin: bool = False


Match = list[tuple[RequestedDevices, NodeDevice]]


def given_to(ask: RequestedDevices, device: NodeDevice) -> DeviceAllocation:
    """A device of a match as its request gets it."""
    given = device.given(ask.capacity)
    if given is None:
        raise ValueError(f"{device.id} does not serve the request {ask.request}")
    return replace(given, place=ask.place)


def taken_by(matched: Match) -> tuple[DeviceAllocation, ...]:
    """The allocations of a match; an administrator's request takes nothing."""
    return tuple(given_to(ask, device) for ask, device in matched if not ask.admin)


def choices(
    claim: ResourceClaim, number: int, classes: Mapping[str, DeviceClass]
) -> list[tuple[RequestedDevices, ...]]:
    """The requests of a claim: each combination of their alternatives, the best first.

    Args:
        claim: with its specification.
        number: of the claim among the pod's.
        classes: by name.

    Raises:
        PodRefused: it asks for what is not given out.
        KeyError: no class of this name.
    """
    devices = claim.spec.devices
    options = [
        [replace(ask, claim=number) for ask in _options(claim, request, classes)]
        for request in devices.requests
    ]
    return list(itertools.islice(itertools.product(*options), MOST_CHOICES))


def _options(
    claim: ResourceClaim, request: ClaimRequest, classes: Mapping[str, DeviceClass]
) -> list[RequestedDevices]:
    if request.exactly is not None:
        return [_ask(claim, request.name, request.exactly, classes)]
    if not request.first_available:
        field = f"{claim.metadata.name}.requests[{request.name}]"
        raise PodRefused("claim", field, "", "`exactly` or `firstAvailable`")
    return [
        _ask(claim, f"{request.name}/{one.name}", one, classes) for one in request.first_available
    ]


def _ask(
    claim: ResourceClaim, name: str, request: DeviceRequest, classes: Mapping[str, DeviceClass]
) -> RequestedDevices:
    field = f"{claim.metadata.name}.requests[{name}]"
    every = request.allocation_mode == "All"
    if not every and request.allocation_mode != "ExactCount":
        expected = "ExactCount or All"
        raise PodRefused("claim", f"{field}.allocationMode", request.allocation_mode, expected)
    asked = {} if request.capacity is None else request.capacity.requests
    if not every and not 1 <= request.count <= MOST_DEVICES:
        expected = f"from 1 to {MOST_DEVICES}"
        raise PodRefused("claim", f"{field}.count", request.count, expected)
    selectors = (*classes[request.device_class_name].spec.selectors, *request.selectors)
    for selector in selectors:
        program_of(selector.cel.expression)
    constraints = [
        one
        for one in claim.spec.devices.constraints
        if not one.requests or {name, name.partition("/")[0]} & set(one.requests)
    ]
    return RequestedDevices(
        claim=0,
        request=name,
        expressions=tuple(selector.cel.expression for selector in selectors),
        count=0 if every else request.count,
        tolerations=request.tolerations,
        capacity=asked_of(asked, f"{field}.capacity.requests"),
        agree=tuple(one.match_attribute for one in constraints if one.match_attribute),
        differ=tuple(one.distinct_attribute for one in constraints if one.distinct_attribute),
        every=every,
        admin=request.admin_access,
    )


MOST_STEPS: Final = 2_000
"""The most choices that are tried where devices of one match share counters."""


def match(
    asks: Sequence[RequestedDevices],
    devices: Sequence[NodeDevice],
    left: Amounts = counters.NONE,
    there: Sequence[NodeDevice] = (),
) -> Match | None:
    """An assignment of devices to all requests; ``None`` if there is none, or none was found.

    Args:
        asks: the requests.
        devices: that may be given.
        left: what is left of the counters that devices share, and of devices that claims share.
        there: all devices of the node; none: those that may be given.
    """
    there = there or devices
    free = [one for one in devices if counters.enough(left, one.takes)]
    slots = _slots(asks, free, there)
    if slots is None or len(slots) > MOST_DEVICES:
        return None
    one_by_one = any(ask.admin or ask.differ for ask in asks)
    for agreed in _agreements(asks, there if one_by_one else free):
        allowed = [[one for one in few if _agrees(one, ask, agreed)] for ask, few in slots]
        counted = one_by_one or any(
            one.shared or (one.takes and len(slots) > 1) for few in allowed for one in few
        )
        wanted = [ask for ask, _ in slots]
        found = _CounterSearch(wanted, allowed, left).assigned() if counted else _assign(allowed)
        if found is not None:
            return list(zip(wanted, found, strict=True))
    return None


_Slots = list[tuple[RequestedDevices, Sequence[NodeDevice]]]


def _slots(
    asks: Sequence[RequestedDevices], free: Sequence[NodeDevice], there: Sequence[NodeDevice]
) -> _Slots | None:
    """The devices that each slot may have; ``None`` where that cannot be."""
    count = sum(ask.count for ask in asks if not ask.admin)
    if count > len(free) and not any(one.shared for one in free):
        return None
    found: _Slots = []
    for ask in asks:
        of = there if ask.admin else free
        if not ask.every:
            fitting = [one for one in of if _serves(one, ask)]
            found += [(ask, fitting)] * ask.count
            continue
        wanted = [one for one in there if one.is_selected(ask.expressions)]
        may = {one.id for one in of if _serves(one, ask)}
        if not wanted or any(one.id not in may for one in wanted):
            return None
        found += [(ask, [one]) for one in wanted]
    return found


def _serves(device: NodeDevice, ask: RequestedDevices) -> bool:
    taints = [taint for taint in device.device.taints if taint.effect in HARD]
    if not device.is_selected(ask.expressions) or device.given(ask.capacity) is None:
        return False
    return all(tolerated(ask.tolerations, taint) for taint in taints)


_Agreed = Mapping[tuple[int, str], object]
"""Claim and attribute -> its value."""


def _agreements(
    asks: Sequence[RequestedDevices], devices: Sequence[NodeDevice]
) -> Iterator[_Agreed]:
    keys = sorted({(ask.claim, name) for ask in asks for name in ask.agree})
    values = [
        dict.fromkeys(v for one in devices if (v := _attribute(one, name)) is not None)
        for _, name in keys
    ]
    for chosen in itertools.islice(itertools.product(*values), MOST_VALUES):
        yield dict(zip(keys, chosen, strict=True))


def _agrees(device: NodeDevice, ask: RequestedDevices, agreed: _Agreed) -> bool:
    return all(_attribute(device, name) == agreed[ask.claim, name] for name in ask.agree)


def _attribute(device: NodeDevice, name: str) -> object:
    return attribute_of(device.id[0], device.device, name)


def _assign(allowed: Sequence[Sequence[NodeDevice]]) -> list[NodeDevice] | None:
    """A device for each slot, each device once."""
    owner: dict[NodeDevice, int] = {}

    def place(slot: int, tried: set[NodeDevice]) -> bool:
        for device in allowed[slot]:
            if device in tried:
                continue
            tried.add(device)
            if device not in owner or place(owner[device], tried):
                owner[device] = slot
                return True
        return False

    if not all(place(slot, set()) for slot in range(len(allowed))):
        return None
    by_slot = {slot: device for device, slot in owner.items()}
    return [by_slot[slot] for slot in range(len(allowed))]


class _CounterSearch:
    """A device for each slot where devices take from the same counters: tried one by one.

    So are those that have to differ in an attribute, and those of administrators.
    Devices that take least come first, so that of equal choices the one is made that leaves most;
    before them those that are shared, the one of which least is left first.
    """

    def __init__(
        self,
        asks: Sequence[RequestedDevices],
        allowed: Sequence[Sequence[NodeDevice]],
        left: Amounts,
    ) -> None:
        self._asks = asks

        def order(one: NodeDevice) -> tuple[bool, int, int]:
            own = sum(left.get(key, 0) for key in one.capacity)
            return (not one.shared, own, one.part_milli)

        self._allowed = [sorted(few, key=order) for few in allowed]
        self._order = sorted(range(len(allowed)), key=lambda slot: len(allowed[slot]))
        self._left, self._steps = left, 0
        self._chosen: dict[int, NodeDevice] = {}

    def assigned(self) -> list[NodeDevice] | None:
        """The devices in the order of the slots."""
        if not self._place(0, self._left):
            return None
        return [self._chosen[slot] for slot in range(len(self._allowed))]

    def _place(self, at: int, left: Amounts) -> bool:
        if at == len(self._order):
            return True
        slot = self._order[at]
        for device in self._allowed[slot]:
            self._steps += 1
            if self._steps > MOST_STEPS:
                return False
            if self._is_taken(slot, device):
                continue
            ask = self._asks[slot]
            takes = counters.NONE if ask.admin else device.takes_for(given_to(ask, device))
            if not counters.enough(left, takes):
                continue
            self._chosen[slot] = device
            if self._place(at + 1, counters.less(left, takes)):
                return True
            del self._chosen[slot]
        return False

    def _is_taken(self, slot: int, device: NodeDevice) -> bool:
        """Whether another slot has the device, or one that has to differ from it."""
        ask = self._asks[slot]
        values = [(name, _attribute(device, name)) for name in ask.differ]
        for at, other in self._chosen.items():
            theirs = self._asks[at]
            same = other is device and theirs.admin == ask.admin
            if same and (ask.admin or not device.shared):
                return True
            if theirs.claim == ask.claim and any(
                name in theirs.differ and _attribute(other, name) == value for name, value in values
            ):
                return True
        return any(value is None for _, value in values)
