"""Shares of GPUs: sizes, counts, and where they go."""

from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from carrel_scheduler.core.devices import shares

free_lists = st.lists(st.integers(0, 1000), min_size=1, max_size=8)


def one(free: list[int], share: int, each: int = 1) -> int:
    return int(shares.counts(np.array(free, np.int16)[:, None], share, each)[0])


def most_by_definition(free: list[int], share: int, each: int) -> int:
    fits = [amount // share for amount in free]
    return max(t for t in range(sum(fits) + 1) if sum(min(t, fit) for fit in fits) >= each * t)


def placeable(fits: tuple[int, ...], each: int) -> int:
    """The most tasks of ``each`` different devices, by trying the devices with most room."""
    count, left = 0, sorted(fits, reverse=True)
    while len(left) >= each and left[each - 1] > 0:
        left = sorted([f - 1 for f in left[:each]] + left[each:], reverse=True)
        count += 1
    return count


@pytest.mark.parametrize(
    ("memory", "node", "share"),
    [
        (4096, 15360, 270),
        (40, 100, 400),
        (40, 199, 400),
        (100, 100, 1000),
        (101, 199, 0),
        (1, 81559, 10),
        (50, 99, 0),
        (50, 0, 0),
    ],
)
def test_memory_becomes_hundredths_of_the_nodes_devices(memory: int, node: int, share: int) -> None:
    assert shares.share_of_memory(memory, node) == share
    assert shares.shares_of_memory(memory, np.array([node])).tolist() == [share]


@given(st.integers(1, 200_000), st.lists(st.integers(0, 200_000), max_size=5))
def test_memory_is_rounded_up_exactly(memory: int, nodes: list[int]) -> None:
    many = shares.shares_of_memory(memory, np.array(nodes, np.int64)).tolist()
    for node, share in zip(nodes, many, strict=True):
        whole = node // 100 * 100
        expected = 10 * ceil(Fraction(100 * memory, whole)) if whole >= max(memory, 1) else 0
        assert share == expected == shares.share_of_memory(memory, node)


@given(st.integers(1, 1000))
def test_the_table_of_a_share_counts_what_fits(share: int) -> None:
    table = shares.share_table(share)
    assert table.shape == (1001,)
    assert table.tolist() == [free // share for free in range(1001)]


@given(free_lists, st.integers(20, 1000), st.integers(1, 9))
@example([1000, 200, 200, 200], 200, 3)
@example([1000, 1000, 400, 400, 200], 200, 4)
def test_counts_are_the_most_by_definition(free: list[int], share: int, each: int) -> None:
    assert one(free, share, each) == most_by_definition(free, share, each)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 6))
@example([5, 1, 1, 1], 3)
@example([5, 5, 2, 2, 1], 4)
def test_counts_are_what_can_really_be_placed(fits: list[int], each: int) -> None:
    assert one([200 * fit for fit in fits], 200, each) == placeable(tuple(fits), each)


def test_counts_do_not_overflow_with_the_most_and_smallest() -> None:
    devices = np.full((64, 3), 1000, np.int16)
    assert shares.counts(devices, 1).tolist() == [64_000] * 3
    assert shares.counts(devices, 1, 2).tolist() == [32_000] * 3
    assert shares.counts(devices, 1, 64).tolist() == [1_000] * 3


def test_counting_changes_nothing_and_takes_columns() -> None:
    devices = np.array([[1000, 500, 0], [300, 500, 700], [1000, 0, 700]], np.int16)
    before = devices.copy()
    assert shares.counts(devices[:, 1:], 300, 2).tolist() == [1, 2]
    assert shares.counts(devices[:, 1:], 300, 3).tolist() == [0, 0]
    assert (devices == before).all()


def test_a_share_goes_to_the_tightest_shared_device_and_opens_a_whole_one_last() -> None:
    assert shares.tightest([1000, 600, 500, 400], 500) == (2,)
    assert shares.tightest([1000, 400, 1000], 500) == (0,)
    assert shares.tightest([500, 500], 500) == (0,)
    assert shares.tightest([400, 0], 500) is None


def test_several_devices_are_the_tightest() -> None:
    assert shares.tightest([1000, 600, 500, 700], 500, 2) == (1, 2)
    assert shares.tightest([1000, 600, 400, 1000], 500, 2) == (0, 1)
    assert shares.tightest([1000, 400, 400], 500, 2) is None


def test_room_that_is_idle_comes_before_room_that_is_coming() -> None:
    assert shares.tightest([500, 800], 500, idle=[0, 800]) == (1,)
    assert shares.tightest([500, 1000], 500, idle=[0, 1000]) == (0,)
    assert shares.tightest([1000, 1000], 500, idle=[0, 1000]) == (1,)


def test_taking_the_tightest_blindly_would_leave_too_few_different_devices() -> None:
    free = [500, 500, 1000]
    assert one(free, 500, 2) == 2
    assert shares.tightest(free, 500, 2) == (0, 1)
    assert shares.tightest(free, 500, 2, tasks=2) == (0, 2)


@given(free_lists, st.integers(50, 1000), st.integers(1, 4), st.integers(1, 30))
def test_repeated_choices_place_as_many_as_were_counted(
    free: list[int], share: int, each: int, asked: int
) -> None:
    fit = one(free, share, each)
    for left in range(min(asked, fit), 0, -1):
        chosen = shares.tightest(free, share, each, tasks=left)
        assert chosen is not None
        assert len(set(chosen)) == each
        for device in chosen:
            free[device] -= share
    assert min(free) >= 0
    if asked >= fit:
        assert shares.tightest(free, share, each) is None


@given(free_lists, st.integers(50, 1000), st.integers(1, 4))
def test_asking_for_more_than_fit_still_places_all_that_do(
    free: list[int], share: int, each: int
) -> None:
    for _ in range(one(free, share, each)):
        chosen = shares.tightest(free, share, each, tasks=10_000)
        assert chosen is not None
        for device in chosen:
            free[device] -= share
    assert one(free, share, each) == 0
