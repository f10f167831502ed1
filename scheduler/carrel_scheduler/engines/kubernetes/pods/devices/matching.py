"""Which devices serve the requests of claims: an assignment that is found if there is one.

A request for several devices is several slots; slots and devices are matched along augmenting
paths, so a choosy request gets its device from one that could have another. Constraints that
devices agree in an attribute are tried value by value.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.devices import counters
from carrel_scheduler.engines.kubernetes.pods.devices.capacity import Asked, asked_of
from carrel_scheduler.engines.kubernetes.pods.devices.counters import Amounts
from carrel_scheduler.engines.kubernetes.pods.devices.expressions import attribute_of, program_of
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import DeviceUse, NodeDevice
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
"""So many combinations of alternatives are tried: each costs a look at all nodes."""
MOST_VALUES: Final = 64
"""So many combinations of values of attributes are tried on a node."""
MOST_DEVICES: Final = 32
"""A claim is given no more, whoever allocates it; nor are the claims of a pod together."""


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """One request, with the chosen alternative.

    Attributes:
        claim: which of the pod's claims, by number: equal pods ask for the same.
        request: its name as allocations have it, ``gpu`` or ``gpu/large``.
        expressions: all hold for each of its ``count`` devices.
        agree: full names of attributes that have one value within the claim.
        capacity: asked of each of its devices.
        place: the number by which the core knows the device; ``None``: it knows none.
    """

    claim: int
    request: str
    expressions: tuple[str, ...]
    count: int
    tolerations: tuple[Toleration, ...] = ()
    agree: tuple[str, ...] = ()
    capacity: Asked = ()
    place: int | None = None


Match = list[tuple[RequestedDevices, NodeDevice]]


def given_to(ask: RequestedDevices, device: NodeDevice) -> DeviceUse:
    """A device of a match as its request gets it."""
    given = device.given(ask.capacity)
    if given is None:
        raise ValueError(f"{device.id} does not serve the request {ask.request}")
    return replace(given, place=ask.place)


def choices(
    claim: ResourceClaim, number: int, classes: Mapping[str, DeviceClass]
) -> list[tuple[RequestedDevices, ...]]:
    """What a claim asks for: each combination of its requests' alternatives, the best first.

    Args:
        claim: with its specification.
        number: of the claim among the pod's.
        classes: by name.

    Raises:
        PodRefused: it asks for what is not given out.
        KeyError: no class of this name.
    """
    devices = claim.spec.devices
    for constraint in devices.constraints:
        if constraint.distinct_attribute:
            field = f"{claim.metadata.name}.constraints.distinctAttribute"
            raise PodRefused("claim", field, constraint.distinct_attribute, "left out")
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
    if request.allocation_mode != "ExactCount":
        expected = "ExactCount: devices are given by number"
        raise PodRefused("claim", f"{field}.allocationMode", request.allocation_mode, expected)
    if request.admin_access:
        expected = "false: devices are given to one claim each"
        raise PodRefused("claim", f"{field}.adminAccess", "true", expected)
    asked = {} if request.capacity is None else request.capacity.requests
    if not 1 <= request.count <= MOST_DEVICES:
        expected = f"from 1 to {MOST_DEVICES}"
        raise PodRefused("claim", f"{field}.count", request.count, expected)
    selectors = (*classes[request.device_class_name].spec.selectors, *request.selectors)
    for selector in selectors:
        program_of(selector.cel.expression)
    parent = name.partition("/")[0]
    return RequestedDevices(
        claim=0,
        request=name,
        expressions=tuple(selector.cel.expression for selector in selectors),
        count=request.count,
        tolerations=request.tolerations,
        capacity=asked_of(asked, f"{field}.capacity.requests"),
        agree=tuple(
            constraint.match_attribute
            for constraint in claim.spec.devices.constraints
            if constraint.match_attribute
            and (not constraint.requests or {name, parent} & set(constraint.requests))
        ),
    )


MOST_STEPS: Final = 2_000
"""So many choices are tried where devices of one match share counters."""


def match(
    asks: Sequence[RequestedDevices], devices: Sequence[NodeDevice], left: Amounts = counters.NONE
) -> Match | None:
    """An assignment of devices to all requests; ``None`` if there is none, or none was found.

    Args:
        asks: the requests.
        devices: that may be given.
        left: what is left of the counters that devices share, and of devices that claims share.
    """
    devices = [one for one in devices if counters.enough(left, one.takes)]
    slots = [ask for ask in asks for _ in range(ask.count)]
    if len(slots) > len(devices) and not any(one.shared for one in devices):
        return None
    fitting = {ask: [one for one in devices if _serves(one, ask)] for ask in asks}
    for agreed in _agreements(asks, devices):
        allowed = [[one for one in fitting[ask] if _agrees(one, ask, agreed)] for ask in slots]
        there = [one for few in allowed for one in few]
        counted = any(one.shared or (one.takes and len(slots) > 1) for one in there)
        found = _Counted(slots, allowed, left).assigned() if counted else _assign(allowed)
        if found is not None:
            return list(zip(slots, found, strict=True))
    return None


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


class _Counted:
    """A device for each slot where devices take from the same counters: tried one by one.

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
            takes = device.takes_for(given_to(self._asks[slot], device))
            again = not device.shared and device in self._chosen.values()
            if again or not counters.enough(left, takes):
                continue
            self._chosen[slot] = device
            if self._place(at + 1, counters.less(left, takes)):
                return True
            del self._chosen[slot]
        return False
