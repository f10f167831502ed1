"""Devices of a node that are not equal to a task: of types that it asks for, or to be avoided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.core.devices.classes import GpuKind, gpu_kind
from carrel_scheduler.core.devices.device_choice import hardware_of
from carrel_scheduler.core.devices.preferred_devices import Preferences, choose_preferred
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.requests import NodeConstraint, Request
from unit.core.clusters import cluster
from unit.core.clusters import node as machine
from unit.core.test_device_choice import (
    counted,
    divided,
    instance,
    memory,
    node,
    share,
    view,
    whole,
)


@pytest.mark.parametrize(
    ("kind", "milli", "avoided", "chosen"),
    [
        (whole(1), [1000, 1000, 1000], (0, 1), (2,)),
        (whole(2), [1000, 1000, 1000], (0, 1), (1, 2)),
        (whole(2), [1000, 1000, 1000], (1, 0), (0, 2)),
        (whole(3), [1000, 1000, 1000], (0, 1), (0, 1, 2)),
        (whole(3), [1000, 0, 1000], (0, 1), None),
        (share(300), [500, 1000], (0,), (1,)),
        (share(300), [500, 200], (0,), (0,)),
        (memory(8_000), [500, 1000], (0,), (1,)),
        (share(300, 2), [500, 1000, 1000], (0,), (1, 2)),
    ],
)
def test_avoided_devices_are_taken_last_and_the_first_of_them_least(
    kind: GpuKind, milli: list[int], avoided: tuple[int, ...], chosen: tuple[int, ...] | None
) -> None:
    found = choose_preferred(
        kind, hardware_of(node(len(milli))), view(milli), Preferences(avoided=avoided)
    )
    assert (found and found.devices) == chosen


def test_instances_are_made_elsewhere_than_on_avoided_devices() -> None:
    room = divided("A100-40GB", [0b11111111, 0b11111111])
    hardware = hardware_of(node(2, 40_960, "A100-40GB"))
    found = choose_preferred(instance("1g.5gb"), hardware, room, Preferences(avoided=(0,)))
    assert found is not None
    assert found.devices == (1,)


@given(
    st.lists(st.integers(0, 10).map(lambda tenths: tenths * 100), min_size=2, max_size=6),
    st.sampled_from([whole(1), whole(2), share(300), share(300, 2), share(200, 3)]),
    st.sets(st.integers(0, 5)),
)
def test_avoiding_devices_keeps_no_task_from_fitting(
    milli: list[int], kind: GpuKind, avoid: set[int]
) -> None:
    event = node(len(milli))
    avoided = tuple(device for device in sorted(avoid) if device < len(milli))
    room = view(milli)
    tasks = counted(kind, event, room)
    for left in range(tasks, 0, -1):
        hardware = hardware_of(event)
        found = choose_preferred(kind, hardware, room, Preferences(avoided=avoided), tasks=left)
        assert found is not None
        room.devices[list(found.devices)] -= found.milli
    assert (room.devices >= 0).all()


MIXED = machine("mixed", 4, types=("A100", "T4", "A100", "T4"))


def asking(*types: str) -> NodeConstraint:
    return NodeConstraint(device_types=tuple(frozenset({one}) for one in types))


def taken(request: Request, *used: int) -> tuple[int, ...] | None:
    """The devices that a request gets of the mixed machine."""
    room = view([0 if device in used else 1000 for device in range(4)])
    chosen = Preferences.of(request.where, MIXED)
    found = choose_preferred(gpu_kind(request), hardware_of(MIXED), room, chosen)
    return None if found is None else found.devices


@pytest.mark.parametrize(
    ("types", "gpus", "used", "devices"),
    [
        (("T4", "A100"), 1, (), (1,)),
        (("T4", "A100"), 1, (1, 3), (0,)),
        (("A100",), 1, (0, 2), None),
        (("T4", "A100"), 2, (1,), (0, 2)),
        (("T4", "A100"), 2, (1, 0), (2, 3)),
        (("T4", "A100"), 3, (), (0, 1, 2)),
        (("H100",), 1, (), None),
        ((), 1, (), None),
    ],
)
def test_the_first_type_that_is_free_is_taken_alone_if_possible(
    types: tuple[str, ...], gpus: int, used: tuple[int, ...], devices: tuple[int, ...] | None
) -> None:
    assert taken(Request(gpus=gpus, where=asking(*types)), *used) == devices


def test_what_names_no_type_takes_any() -> None:
    assert taken(Request(gpus=4)) == (0, 1, 2, 3)


@pytest.mark.parametrize("used", [(), (0,), (0, 1, 2)])
def test_devices_of_other_types_are_not_counted(used: tuple[int, ...]) -> None:
    world = cluster(MIXED, machine("plain", 2))
    world.take("mixed", used)
    there = {"A100": 2 - len({0, 2} & set(used)), "T4": 2 - len({1, 3} & set(used))}
    for name, number in there.items():
        for request in (
            Request(gpus=1, where=asking(name)),
            Request(share_milli=1, where=asking(name)),
        ):
            each = 1 if request.gpus else 1000
            expected = {"mixed": number * each, "plain": 2 * each}
            assert world.counts(request) == {k: v for k, v in expected.items() if v}
            cls = world.waiting(request)
            world.room()
            column = world.capacity.column(cls)
            found = {one: int(column[slot]) for one, slot in world.nodes.slots.items()}
            assert found == expected
    assert world.counts(Request(gpus=1, where=asking())) == {"plain": 2}


def test_types_are_told_of_all_devices_or_of_none() -> None:
    with pytest.raises(InvalidEvent, match="one for each of 4 devices"):
        cluster(machine("mixed", 4, types=("A100",)))
