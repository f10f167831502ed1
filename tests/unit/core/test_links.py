"""Choosing devices by their links."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.core.devices.classes import GpuForm, GpuKind
from carrel_scheduler.core.devices.device_choice import DeviceCapacity, Hardware, choose
from carrel_scheduler.core.devices.links import FAR, Links, links_of
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import Link

MOST = 64


def connected(links: tuple[Link, ...], devices: int) -> Links:
    """Links that are not all alike."""
    found = links_of(links, devices)
    assert found is not None
    return found


def of_groups(sizes: list[int], inside: int = 0) -> Links | None:
    """Groups of devices that are well connected among themselves."""
    edges, start = [], 0
    for size in sizes:
        pairs = itertools.combinations(range(start, start + size), 2)
        edges += [Link(a, b, inside) for a, b in pairs]
        start += size
    return links_of(tuple(edges), start)


def mask(*devices: int) -> int:
    return sum(1 << device for device in devices)


def taken(links: Links | None, available: int, wanted: int, free: int = -1) -> object:
    """The devices of a task with whole ones; ``None``: there are not enough."""
    if links is not None:
        return links.choose(available, wanted, free)
    view, idle = (
        DeviceCapacity(
            np.array([1000 * (mask >> device & 1) for device in range(MOST)], np.int16),
            np.zeros(MOST, np.uint8),
        )
        for mask in (available, available & free)
    )
    found = choose(GpuKind(GpuForm.WHOLE, wanted), Hardware(0, None, None), view, idle=idle)
    return None if found is None else found.devices


def rank(
    links: Links | None, available: list[int], free: int, chosen: tuple[int, ...]
) -> tuple[int, int, int, int, tuple[int, ...]]:
    def hops(devices: list[int]) -> list[int]:
        pairs = itertools.combinations(devices, 2)
        return [FAR if links is None else links.hops[a][b] for a, b in pairs]

    rest = [device for device in available if device not in chosen]
    mine = hops(list(chosen))
    coming = sum(1 for device in chosen if not free >> device & 1)
    return (sum(mine), max(mine, default=0), coming, sum(hops(rest)), chosen)


def random_links(seed: int, devices: int, levels: int = 4) -> Links | None:
    draw = random.Random(seed)
    pairs = itertools.combinations(range(devices), 2)
    return links_of(tuple(Link(a, b, draw.randrange(levels)) for a, b in pairs), devices)


def test_without_links_the_lowest_devices_are_taken() -> None:
    assert links_of((), 8) is None
    assert taken(None, mask(1, 3, 4, 6), 2) == (1, 3)


def test_without_links_devices_that_are_free_already_come_first() -> None:
    assert taken(None, mask(0, 1, 4, 6), 3, free=mask(4, 6)) == (0, 4, 6)


def test_not_enough_devices_is_no_choice() -> None:
    assert taken(None, mask(1), 2) is None
    assert taken(of_groups([2, 2]), mask(1), 2) is None


def test_a_pair_is_taken_from_one_group_and_completes_a_broken_one() -> None:
    links = of_groups([4, 4])
    assert taken(links, mask(0, 1, 2, 3, 6, 7), 2) == (6, 7)
    assert taken(links, mask(0, 3, 4, 5, 6), 3) == (4, 5, 6)


def test_a_single_device_leaves_the_rest_connected() -> None:
    assert taken(of_groups([2, 2]), mask(0, 1, 3), 1) == (3,)


def test_the_longest_hop_decides_between_equal_sums() -> None:
    edges = (Link(0, 1, 3), Link(0, 2, 0), Link(1, 2, 0))
    even = (Link(3, 4, 1), Link(3, 5, 1), Link(4, 5, 1))
    apart = tuple(Link(a, b, 9) for a in range(3) for b in range(3, 6))
    links = links_of(edges + even + apart, 6)
    assert taken(links, mask(*range(6)), 3) == (3, 4, 5)
    assert taken(links, mask(*range(6)), 3, free=mask(0, 1, 2)) == (3, 4, 5)


def test_good_links_are_worth_waiting_for_and_only_then_free_devices_are() -> None:
    links = of_groups([2, 2, 2])
    assert taken(links, mask(0, 1, 2, 4), 2, free=mask(2, 4)) == (0, 1)
    assert taken(links, mask(0, 1, 2, 3), 2, free=mask(2, 3)) == (2, 3)


def test_equal_links_are_one_object_whatever_their_order() -> None:
    one = links_of((Link(0, 1, 0), Link(2, 3, 1)), 4)
    assert links_of((Link(3, 2, 1), Link(1, 0, 0)), 4) is one
    assert links_of((Link(0, 1, 0),), 4) is not one


def test_of_a_pair_named_twice_the_better_link_counts() -> None:
    links = connected((Link(0, 1, 2), Link(1, 0, 1)), 3)
    assert (links.hops[0][1], links.hops[1][0], links.hops[0][2]) == (1, 1, FAR)


@pytest.mark.parametrize(
    ("link", "code"),
    [
        (Link(0, 4, 1), "unknown_device"),
        (Link(-1, 2, 1), "unknown_device"),
        (Link(2, 2, 1), "unknown_device"),
        (Link(0, 1, -1), "bad_amount"),
    ],
)
def test_impossible_links_are_refused(link: Link, code: str) -> None:
    with pytest.raises(InvalidEvent, match=code):
        links_of((link,), 4)


@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 4), st.data())
def test_the_choice_is_the_best_of_all(
    seed: int, devices: int, levels: int, data: st.DataObject
) -> None:
    links = random_links(seed, devices, levels)
    available = data.draw(st.lists(st.integers(0, devices - 1), unique=True, min_size=1))
    available.sort()
    wanted = data.draw(st.integers(1, len(available)))
    free = data.draw(st.integers(0, (1 << devices) - 1)) & mask(*available)
    best = min(
        itertools.combinations(available, wanted),
        key=lambda chosen: rank(links, available, free, chosen),
    )
    assert taken(links, mask(*available), wanted, free) == best


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(1, 3), st.data())
def test_the_choice_is_the_best_of_all_in_groups(
    sizes: list[int], inside: int, data: st.DataObject
) -> None:
    links = of_groups(sizes, inside - 1)
    count = sum(sizes)
    chosen_mask = data.draw(st.integers(1, (1 << count) - 1))
    available = [device for device in range(count) if chosen_mask >> device & 1]
    wanted = data.draw(st.integers(1, len(available)))
    free = data.draw(st.integers(0, (1 << count) - 1)) & chosen_mask
    best = min(
        itertools.combinations(available, wanted),
        key=lambda chosen: rank(links, available, free, chosen),
    )
    assert taken(links, chosen_mask, wanted, free) == best


def test_many_devices_in_groups_are_still_chosen_exactly() -> None:
    links = of_groups([16, 16, 16, 16])
    available = mask(*range(10), *range(16, 32), *range(32, 44), *range(48, 61))
    assert taken(links, available, 13) == tuple(range(48, 61))
    assert taken(links, available, 16) == tuple(range(16, 32))


def test_many_devices_without_regularity_come_within_twice_the_optimum() -> None:
    draw = random.Random(7)
    spots = [(draw.randrange(40), draw.randrange(40)) for _ in range(18)]
    distances = tuple(
        Link(a, b, abs(spots[a][0] - spots[b][0]) + abs(spots[a][1] - spots[b][1]))
        for a, b in itertools.combinations(range(18), 2)
    )
    links = connected(distances, 18)

    def total(chosen: tuple[int, ...]) -> int:
        return sum(links.hops[a][b] for a, b in itertools.combinations(chosen, 2))

    found = links.choose((1 << 18) - 1, 9)
    assert found is not None
    assert len(set(found)) == 9
    assert total(found) <= 2 * min(map(total, itertools.combinations(range(18), 9)))
    swaps = [
        tuple(sorted({*found, new} - {old}))
        for old in found
        for new in range(18)
        if new not in found
    ]
    assert total(found) <= min(map(total, swaps))


@pytest.mark.parametrize("seed", range(6))
def test_no_single_swap_improves_a_choice_that_was_not_searched_in_full(seed: int) -> None:
    links = random_links(seed, 18, 20)
    assert links is not None
    found = links.choose((1 << 18) - 1, 9)
    assert found is not None

    def total(chosen: set[int]) -> int:
        return sum(links.hops[a][b] for a, b in itertools.combinations(chosen, 2))

    outside = set(range(18)) - set(found)
    swaps = (total({*found, new} - {old}) for old in found for new in outside)
    assert total(set(found)) <= min(swaps)
    assert links.choose((1 << 18) - 1, 9) == found
