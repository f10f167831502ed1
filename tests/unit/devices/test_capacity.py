"""What requests consume of the capacity of devices that claims share."""

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from carrel_scheduler.engines.kubernetes.pods.devices.capacity import (
    Asked,
    SharedCapacity,
    asked_of,
    consumables,
    consumption,
    has,
    written,
)
from carrel_scheduler.engines.kubernetes.pods.devices.inventory import NodeDevice
from carrel_scheduler.engines.kubernetes.pods.devices.matching import RequestedDevices, match
from carrel_scheduler.engines.kubernetes.pods.devices.types import SliceDevice
from carrel_scheduler.engines.kubernetes.pods.quantities import NANO, PodRefused, nanos
from unit.devices.making_devices import DRIVER, device

SMALL = st.integers(0, 12)


def shared(name: str = "gpu-0", **policy: Any) -> SliceDevice:
    made = device(name, allowMultipleAllocations=True)
    if policy:
        made["capacity"]["memory"]["requestPolicy"] = policy
    return msgspec.convert(made, SliceDevice)


@st.composite
def capacities(draw: st.DrawFn) -> SharedCapacity:
    total = draw(st.integers(1, 12))
    values = tuple(sorted(draw(st.sets(SMALL, max_size=4))))
    least, step = draw(SMALL), draw(st.integers(0, 4))
    most = draw(st.none() | SMALL)
    if values:
        return SharedCapacity(total, draw(SMALL), values)
    return SharedCapacity(total, draw(SMALL), (), least, most, step)


def allowed(one: SharedCapacity) -> set[int]:
    """All amounts that may be consumed, as the documentation of the API says it."""
    if one.values:
        found = set(one.values)
    elif one.step:
        found = {one.least + number * one.step for number in range(50)}
    else:
        found = set(range(one.least, 50))
    most = one.total if one.most is None else min(one.total, one.most)
    return {amount for amount in found if amount <= most}


@given_any(capacities(), SMALL)
def test_an_amount_is_raised_to_the_next_that_is_allowed(one: SharedCapacity, asked: int) -> None:
    assert one.consumed(asked) == min((a for a in allowed(one) if a >= asked), default=None)
    assert one.consumed(None) == (one.default if one.default <= one.total else None)


@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        ({}, "10Gi", "10Gi"),
        ({}, None, "80Gi"),
        ({}, "81Gi", None),
        ({"default": "20Gi"}, None, "20Gi"),
        ({"default": "20Gi", "validValues": ["20Gi", "40Gi"]}, "21Gi", "40Gi"),
        ({"default": "20Gi", "validValues": ["20Gi", "40Gi"]}, "41Gi", None),
        ({"default": "8Gi", "validRange": {"min": "4Gi"}}, "1Gi", "4Gi"),
        ({"default": "8Gi", "validRange": {"min": "4Gi", "step": "4Gi"}}, "9Gi", "12Gi"),
        ({"default": "8Gi", "validRange": {"min": "4Gi", "max": "16Gi"}}, "17Gi", None),
    ],
)
def test_policies_of_devices(
    policy: dict[str, Any], asked: str | None, consumed: str | None
) -> None:
    there = consumables(shared(**policy))
    wanted = () if asked is None else asked_of({"memory": asked}, "f")
    expected = None if consumed is None else (("memory", nanos(consumed)),)
    assert consumption(there, wanted) == expected


def test_what_a_device_does_not_have_nobody_consumes() -> None:
    asked = asked_of({"bandwidth": "1"}, "f")
    assert consumption(consumables(shared()), asked) is None
    whole = msgspec.convert(device("gpu-0"), SliceDevice)
    assert not has(whole, asked)
    assert has(whole, asked_of({"memory": "80Gi"}, "f"))
    assert not has(whole, asked_of({"memory": "81Gi"}, "f"))


def test_amounts_below_zero_are_refused() -> None:
    with pytest.raises(PodRefused):
        asked_of({"memory": "-1"}, "f")
    with pytest.raises(PodRefused):
        consumables(shared(default="-1"))


@given_any(st.integers(0, 10**12))
def test_amounts_are_written_as_they_are_read(nano: int) -> None:
    assert nanos(written(nano)) == nano


def node_device(number: int, total: int, *, whole: bool) -> NodeDevice:
    told = {
        "name": f"gpu-{number}",
        "capacity": {"memory": {"value": str(total)}},
        "allowMultipleAllocations": not whole,
    }
    made = msgspec.convert(told, SliceDevice)
    there = {} if whole else consumables(made)
    return NodeDevice((DRIVER, "n0", made.name), "n0", made, consumables=there)


def brute(asks: list[int], devices: list[tuple[int, bool]]) -> bool:
    """Whether some choice of devices serves all: every one is tried."""
    for chosen in itertools.product(range(len(devices)), repeat=len(asks)):
        used: dict[int, list[int]] = {}
        for ask, number in zip(asks, chosen, strict=True):
            used.setdefault(number, []).append(ask)
        if all(
            (len(amounts) == 1 and amounts[0] <= devices[number][0])
            if devices[number][1]
            else sum(amounts) <= devices[number][0]
            for number, amounts in used.items()
        ):
            return True
    return False


@given_any(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=3),
)
def test_an_assignment_is_found_if_there_is_one(
    asks: list[int], devices: list[tuple[int, bool]]
) -> None:
    there = [node_device(i, total, whole=whole) for i, (total, whole) in enumerate(devices)]
    left = {key: amount for one in there for key, amount in one.capacity.items()}

    def ask(number: int, amount: int) -> RequestedDevices:
        capacity: Asked = (("memory", amount * NANO),)
        return RequestedDevices(0, f"r{number}", (), 1, capacity=capacity)

    wanted = [ask(number, amount) for number, amount in enumerate(asks)]
    found = match(wanted, there, left)
    assert (found is not None) == brute(asks, devices)
    for one in there:
        amounts = [request.capacity[0][1] for request, given in found or () if given is one]
        assert sum(amounts) <= nanos(one.device.capacity["memory"].value)
        assert one.shared or len(amounts) <= 1
