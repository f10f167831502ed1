"""One choice for all forms of requests, and the count that it keeps."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.core import mig
from carrel_scheduler.core.devices.classes import NO_GPU, GpuForm, GpuKind
from carrel_scheduler.core.devices.device_choice import (
    UNBOUNDED,
    Choice,
    DeviceCapacity,
    Hardware,
    capacity,
    choose,
    hardware_of,
    share_on,
)
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import Link, NodeSet

MODELS = ("A100-40GB", "A100-80GB", "A30-24GB")


def node(devices: int = 4, memory: int = 40_960, model: str = "", *links: Link) -> NodeSet:
    return NodeSet("n", devices, 8000, 65_536, gpu_memory_mib=memory, mig_model=model, links=links)


def view(milli: list[int], slots: list[int] | None = None) -> DeviceCapacity:
    return DeviceCapacity(np.array(milli, np.int16), np.array(slots or [0] * len(milli), np.uint8))


def divided(model: str, slots: list[int]) -> DeviceCapacity:
    worth = 1000 // mig.model_of(model).slots
    return view([worth * bits.bit_count() for bits in slots], slots)


def whole(count: int) -> GpuKind:
    return GpuKind(GpuForm.WHOLE, count)


def share(milli: int, devices: int = 1) -> GpuKind:
    return GpuKind(GpuForm.SHARE, milli, devices)


def memory(mib: int, devices: int = 1) -> GpuKind:
    return GpuKind(GpuForm.MEMORY, mib, devices)


def instance(profile: str) -> GpuKind:
    return GpuKind(GpuForm.MIG, 1, 1, profile)


def counted(kind: GpuKind, event: NodeSet, room: DeviceCapacity, media: int = 0) -> int:
    used = np.array([[bool(media >> d & 1)] for d in range(len(room.devices))])
    return int(
        capacity(
            kind,
            room.devices[:, None],
            room.slots[:, None],
            np.array([event.gpu_memory_mib]),
            np.array([mig.model_code(event.mig_model)], np.uint8),
            used,
        )[0]
    )


PLAIN = hardware_of(node())


def test_a_task_without_gpus_takes_none() -> None:
    assert choose(NO_GPU, PLAIN, view([0, 0, 0, 0])) == Choice((), 0)
    assert counted(NO_GPU, node(), view([0] * 4)) == UNBOUNDED


def test_whole_devices_are_those_that_nobody_uses() -> None:
    room = view([900, 1000, 1000, 1000])
    assert choose(whole(2), PLAIN, room) == Choice((1, 2), 1000)
    assert choose(whole(4), PLAIN, room) is None
    assert counted(whole(2), node(), room) == 1


def test_whole_devices_are_well_connected() -> None:
    hardware = hardware_of(node(4, 0, "", Link(0, 1, 0), Link(2, 3, 0)))
    assert choose(whole(2), hardware, view([1000, 0, 1000, 1000])) == Choice((2, 3), 1000)


def test_devices_that_are_idle_are_enough_when_there_are_enough() -> None:
    hardware = hardware_of(node(4, 0, "", Link(0, 1, 0)))
    soon, idle = view([1000] * 4), view([1000, 0, 0, 1000])
    assert choose(whole(2), hardware, soon, idle=idle) == Choice((0, 3), 1000)
    assert choose(whole(3), hardware, soon, idle=idle) == Choice((0, 1, 3), 1000)


def test_whole_devices_spare_instances_that_are_kept() -> None:
    hardware = hardware_of(node(3, 0, "A100-40GB"))
    room = divided("A100-40GB", [255, 255, 255])
    warm = [(("7g.40gb", 255),), (), ()]
    assert choose(whole(2), hardware, room, warm=warm) == Choice((1, 2), 1000, 255)
    assert choose(whole(3), hardware, room, warm=warm) == Choice((0, 1, 2), 1000, 255)


def test_devices_that_are_idle_come_before_the_sparing_of_kept_instances() -> None:
    hardware = hardware_of(node(4, 0, "A100-40GB"))
    soon = divided("A100-40GB", [255] * 4)
    warm = [(("7g.40gb", 255),), (), (), ()]
    enough = divided("A100-40GB", [255, 255, 0, 0])
    assert choose(whole(2), hardware, soon, idle=enough, warm=warm) == Choice((0, 1), 1000, 255)
    too_few = divided("A100-40GB", [0, 255, 0, 0])
    assert choose(whole(2), hardware, soon, idle=too_few, warm=warm) == Choice((1, 2), 1000, 255)


def test_shares_and_memory_go_to_the_tightest_device() -> None:
    room = view([1000, 600, 700, 0])
    assert choose(share(600), PLAIN, room) == Choice((1,), 600)
    assert choose(share(600, 2), PLAIN, room) == Choice((1, 2), 600)
    assert choose(memory(26_000), PLAIN, room) == Choice((2,), 640)
    assert choose(memory(41_000), PLAIN, room) is None
    assert choose(memory(10), hardware_of(node(4, 0)), room) is None


def test_a_form_without_share_has_none() -> None:
    assert share_on(whole(1), 40_960) == 0
    assert share_on(instance("1g.5gb"), 40_960) == 0


def test_shares_are_not_used_where_gpus_are_divided() -> None:
    event = node(1, 40_960, "A100-40GB")
    room = divided("A100-40GB", [255])
    assert choose(share(500), hardware_of(event), room) is None
    assert counted(share(500), event, room) == 0
    assert choose(memory(9_000, 2), hardware_of(event), room) is None
    assert counted(memory(9_000, 2), event, room) == 0


def test_instances_do_not_exist_where_gpus_are_not_divided() -> None:
    room = view([1000] * 4)
    assert choose(instance("1g.5gb"), PLAIN, room) is None
    assert counted(instance("1g.5gb"), node(), room) == 0
    event = node(1, 81_920, "A100-80GB")
    full = divided("A100-80GB", [255])
    assert choose(instance("1g.5gb"), hardware_of(event), full) is None
    assert counted(instance("1g.5gb"), event, full) == 0


def test_three_tasks_of_ten_gigabytes_and_then_a_large_one_on_one_device() -> None:
    event = node(1, 40_960, "A100-40GB")
    hardware, free, lying = hardware_of(event), 255, []
    for kind in (memory(9_537), instance("2g.10gb"), instance("2g.10gb")):
        choice = choose(kind, hardware, divided("A100-40GB", [free]))
        assert choice is not None
        assert choice.milli == 250
        free &= ~choice.slots
        lying.append(choice.slots)
    assert choose(instance("3g.20gb"), hardware, divided("A100-40GB", [free])) is None
    tasks = [mig.InstanceUser(bits, 1, -order, evictable=True) for order, bits in enumerate(lying)]
    profile = mig.model_of("A100-40GB").profiles["3g.20gb"]
    found = mig.cheapest_clearing(profile, [(free, tasks)])
    assert found is not None
    assert len(found.victims) == 1


def test_the_fullest_divided_device_is_used_and_an_empty_one_last() -> None:
    hardware = hardware_of(node(3, 0, "A100-40GB"))
    room = divided("A100-40GB", [255, 0b1111, 0b111111])
    assert choose(instance("2g.10gb"), hardware, room) == Choice((1,), 250, 0b1100)


def test_kept_instances_are_used_before_others_are_removed() -> None:
    hardware = hardware_of(node(2, 0, "A100-40GB"))
    room = divided("A100-40GB", [0b1111, 0b111111])
    warm = [(("3g.20gb", 0b1111),), (("2g.10gb", 0b11),)]
    assert choose(instance("2g.10gb"), hardware, room, warm=warm) == Choice((1,), 250, 0b11)
    assert choose(instance("3g.20gb"), hardware, room, warm=warm) == Choice((0,), 500, 0b1111)


def test_a_kept_instance_goes_rather_than_that_an_empty_device_is_opened() -> None:
    hardware = hardware_of(node(3, 0, "A100-40GB"))
    warm = [(("3g.20gb", 0b1111),), ()]
    in_use = divided("A100-40GB", [0b1111, 255])
    assert choose(instance("2g.10gb"), hardware, in_use, warm=warm) == Choice((0,), 250, 0b1100)
    room_beside = divided("A100-40GB", [0b1111, 0b11111111, 0b1111111])
    chosen = choose(instance("2g.10gb"), hardware, room_beside, warm=[*warm, ()])
    assert chosen is not None
    assert chosen.devices == (2,)


def test_slots_that_are_idle_come_before_slots_that_are_coming() -> None:
    hardware = hardware_of(node(2, 0, "A100-40GB"))
    soon = divided("A100-40GB", [0b1100, 0b1111])
    idle = divided("A100-40GB", [0, 0b11])
    assert choose(instance("2g.10gb"), hardware, soon, idle=idle) == Choice((1,), 250, 0b11)


def test_slots_count_only_where_the_device_is_not_used_as_a_whole() -> None:
    event = node(2, 0, "A100-40GB")
    room = view([0, 1000], [255, 255])
    assert counted(instance("3g.20gb"), event, room) == 2
    choice = choose(instance("3g.20gb"), hardware_of(event), room)
    assert choice is not None
    assert choice.devices == (1,)


def test_hardware_is_shared_between_nodes_of_one_type() -> None:
    assert hardware_of(node(4, 1, "", Link(0, 1, 0))) is hardware_of(node(4, 1, "", Link(1, 0, 0)))
    with pytest.raises(InvalidEvent, match="unknown_mig_model"):
        hardware_of(node(4, 1, "RTX 2080"))


def random_room(draw: random.Random, event: NodeSet) -> DeviceCapacity:
    if not event.mig_model:
        return view([draw.choice((0, 1000, draw.randrange(1001))) for _ in range(event.devices)])
    model = mig.model_of(event.mig_model)
    slots = [
        draw.choice((model.full, draw.randrange(256) & model.full)) for _ in range(event.devices)
    ]
    room = divided(event.mig_model, slots)
    for device in range(event.devices):
        if slots[device] == model.full and draw.random() < 0.3:
            room.devices[device] = 0
    return room


def random_kind(draw: random.Random) -> GpuKind:
    names = sorted({name for model in MODELS for name in mig.model_of(model).profiles})
    return draw.choice(
        (
            whole(draw.randint(1, 4)),
            share(draw.randint(20, 999), draw.choice((1, 1, 2, 3, 4))),
            memory(draw.randint(500, 90_000), draw.choice((1, 1, 1, 2, 3))),
            instance(draw.choice(names)),
        )
    )


def random_node(draw: random.Random) -> NodeSet:
    devices = draw.randint(1, 8)
    model = draw.choice(("", *MODELS))
    links = tuple(
        Link(a, b, draw.randrange(3))
        for a in range(devices)
        for b in range(a)
        if draw.random() < 0.3
    )
    return node(devices, draw.choice((0, 24_576, 40_960, 81_920)), model, *links)


def take(room: DeviceCapacity, choice: Choice, *, divided_up: bool) -> None:
    for device in choice.devices:
        assert room.devices[device] >= choice.milli
        room.devices[device] -= choice.milli
        if divided_up and choice.slots:
            assert int(room.slots[device]) & choice.slots == choice.slots
            room.slots[device] &= ~choice.slots & 0xFF


@given(st.integers(0, 10**9))
def test_repeated_choices_place_exactly_what_was_counted(seed: int) -> None:
    draw = random.Random(seed)
    event, kind = random_node(draw), random_kind(draw)
    hardware, room = hardware_of(event), random_room(draw, event)
    media = draw.randrange(256)
    is_media, placed = kind.profile.endswith("+me"), 0
    expected = counted(kind, event, room, media)
    while True:
        left = max(1, expected - placed)
        choice = choose(kind, hardware, room, media=media, tasks=left)
        if choice is None:
            break
        assert len(set(choice.devices)) == len(choice.devices)
        assert list(choice.devices) == sorted(choice.devices)
        take(room, choice, divided_up=hardware.model is not None)
        if is_media:
            media |= 1 << choice.devices[0]
        placed += 1
    assert placed == expected


@given(st.integers(0, 10**9))
def test_counts_of_all_nodes_and_of_some_columns_agree_with_single_nodes(seed: int) -> None:
    draw = random.Random(seed)
    events = [random_node(draw) for _ in range(6)]
    rooms = [random_room(draw, event) for event in events]
    devices, slots = np.zeros((8, 6), np.int16), np.zeros((8, 6), np.uint8)
    for column, room in enumerate(rooms):
        devices[: len(room.devices), column] = room.devices
        slots[: len(room.slots), column] = room.slots
    sizes = np.array([event.gpu_memory_mib for event in events])
    models = np.array([mig.model_code(event.mig_model) for event in events], np.uint8)
    some = np.array([4, 1])
    kinds = [random_kind(draw) for _ in range(4)]
    for kind in kinds:
        found = capacity(kind, devices, slots, sizes, models)
        single = [counted(kind, event, room) for event, room in zip(events, rooms, strict=True)]
        assert found.dtype == np.int64
        assert found.tolist() == single
        part = capacity(
            kind, devices.take(some, 1), slots.take(some, 1), sizes.take(some), models.take(some)
        )
        assert part.tolist() == [single[4], single[1]]


def fill(
    draw: random.Random, hardware: Hardware, room: DeviceCapacity
) -> list[tuple[int, int, int]]:
    taken = []
    for _ in range(40):
        choice = choose(random_kind(draw), hardware, room)
        if choice is not None:
            take(room, choice, divided_up=hardware.model is not None)
            taken += [(device, choice.milli, choice.slots) for device in choice.devices]
    return taken


@given(st.integers(0, 10**9))
def test_no_device_is_filled_beyond_itself_and_no_slot_twice(seed: int) -> None:
    draw = random.Random(seed)
    event = random_node(draw)
    hardware = hardware_of(event)
    full = mig.full_slots(event.mig_model) if event.mig_model else 0
    room = view([1000] * event.devices, [full] * event.devices)
    taken = fill(draw, hardware, room)
    for device in range(event.devices):
        mine = [(milli, slots) for d, milli, slots in taken if d == device]
        assert sum(milli for milli, _ in mine) + int(room.devices[device]) == 1000
        used = [slots for _, slots in mine if slots]
        assert sum(slots.bit_count() for slots in used) <= 8
        assert sum(used) & ~full == 0
        for milli, slots in mine:
            assert not slots or milli == slots.bit_count() * 1000 // full.bit_count()


@given(st.integers(0, 10**9))
def test_the_same_state_gives_the_same_choice(seed: int) -> None:
    def run() -> list[tuple[int, int, int]]:
        draw = random.Random(seed)
        hardware = hardware_of(event := random_node(draw))
        full = mig.full_slots(event.mig_model) if event.mig_model else 0
        return fill(draw, hardware, view([1000] * event.devices, [full] * event.devices))

    assert run() == run()
