"""Fair shares: guarantee, ranks, weights, past use, and the tree."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.core.events import QueueSet, UsageSeen
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.queues.queues import QueueColumns, Sum
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.resources import OPEN, UNLIMITED, ResourceVector
from unit.core.queue_trees import TOTAL_HOST, columns, fair, gpus, queue, queue_usage, want


def shares(total: float, demand: Mapping[str, float], *queues: QueueSet) -> dict[str, float]:
    built = columns(*queues)
    return fair(built, queue_usage(built, total, waiting=demand))


def test_quotas_of_three_to_one_divide_the_surplus_75_to_25() -> None:
    assert shares(8, {"a": 9, "b": 9}, queue("a", 3), queue("b", 1)) == {"a": 6, "b": 2}
    divided = shares(104, {"a": 200, "b": 200}, queue("a", 3), queue("b", 1))
    assert divided == {"a": 78, "b": 26}


def test_what_one_does_not_want_goes_to_the_others() -> None:
    assert shares(8, {"a": 9, "b": 1}, queue("a", 3), queue("b", 1)) == {"a": 7, "b": 1}


def test_unused_guarantee_is_lent() -> None:
    assert shares(4, {"a": 4}, queue("a", 2), queue("b", 2)) == {"a": 4, "b": 0}


def test_a_higher_rank_takes_all_the_surplus_it_wants_first() -> None:
    divided = shares(10, {"a": 9, "b": 5}, queue("a", 2), queue("b", 2, rank=1))
    assert divided == {"a": 5, "b": 5}
    divided = shares(10, {"a": 9, "b": 90}, queue("a", 2, weight=100), queue("b", 2, rank=1))
    assert divided == {"a": 2, "b": 8}


def test_zero_weight_gets_no_surplus() -> None:
    divided = shares(6, {"a": 6, "b": 3}, queue("a", 2, weight=0), queue("b", 2))
    assert divided == {"a": 2, "b": 3}


def test_a_limit_gives_the_surplus_back() -> None:
    divided = shares(10, {"a": 9, "b": 9}, queue("a", 2, limit=3), queue("b", 2))
    assert divided == {"a": 3, "b": 7}


def test_without_borrowing_the_quota_is_the_limit() -> None:
    divided = shares(10, {"a": 9, "b": 9}, queue("a", 2, over_quota=False), queue("b", 2))
    assert divided == {"a": 2, "b": 8}


def test_guarantees_beyond_the_cluster_are_not_scaled() -> None:
    assert shares(4, {"a": 4, "b": 4}, queue("a", 4), queue("b", 4)) == {"a": 4, "b": 4}


def test_an_open_quota_is_all_there_is() -> None:
    divided = shares(4, {"a": 9, "b": 1}, queue("a", -1, weight=1), queue("b", 1))
    assert divided == {"a": 4, "b": 1}


def test_named_weights_count_instead_of_quotas() -> None:
    divided = shares(8, {"a": 9, "b": 9}, queue("a", 3, weight=1), queue("b", 1, weight=1))
    assert divided == {"a": 5, "b": 3}


def test_decimal_quotas_are_given_exactly_and_surplus_in_whole_gpus() -> None:
    divided = shares(4, {"a": 4, "b": 4}, queue("a", 0.5), queue("b", 1.5))
    assert divided == {"a": 1.5, "b": 2.5}
    assert shares(2, {"a": 1.2, "b": 0.3}, queue("a", 0.5), queue("b", 0.1)) == {"a": 1.2, "b": 0.3}


def test_a_unit_lost_to_rounding_never_passes_what_is_wanted() -> None:
    """Offers of 1.33 each; `a` wants 1.5: it gets one GPU and the fraction, not two."""
    divided = shares(
        4,
        {"a": 1.5, "b": 9, "c": 9},
        *(queue(name, 0, weight=1, created_at=n) for n, name in enumerate("abc")),
    )
    assert divided["a"] == 1.5
    assert sum(divided.values()) == 4


@pytest.mark.parametrize(("first", "second"), [(0.0, 1.0), (1.0, 0.0)])
def test_the_unit_lost_to_rounding_goes_to_the_older(first: float, second: float) -> None:
    divided = shares(
        5,
        {"a": 9, "b": 9},
        queue("a", 2, created_at=first),
        queue("b", 2, created_at=second),
    )
    assert divided == ({"a": 3, "b": 2} if first < second else {"a": 2, "b": 3})


def test_a_larger_remainder_comes_before_age() -> None:
    divided = shares(
        6,
        {"old": 9, "new": 9, "mid": 9},
        queue("old", 0, weight=1, created_at=0),
        queue("new", 0, weight=2, created_at=1),
        queue("mid", 0, weight=2, created_at=2),
    )
    assert divided == {"old": 1, "new": 3, "mid": 2}


def test_every_resource_is_divided_alone() -> None:
    built = columns(
        QueueSet("a", ResourceVector(2000, 1000, UNLIMITED)),
        QueueSet("b", ResourceVector(1000, 3000, 0)),
    )
    for name in ("a", "b"):
        built.add(Sum.WAITING, built.slot(name), (9000, 9001, 100))
    division = Division()
    division.update(built, (6000, 8000, 100))
    assert division.fair[built.slot("a")] == (4000, 2000, 100)
    assert division.fair[built.slot("b")] == (2000, 6000, 0)


# Past use


def time_based(usage_factor: int, part: int) -> dict[str, float]:
    built = columns(queue("a", 0, weight=1), queue("b", 0, weight=1))
    built.set_usage(UsageSeen("a", (part, 0, 0)))
    stand = queue_usage(built, 100, waiting={"a": 200, "b": 200}, usage_factor=usage_factor)
    return fair(built, stand)


@pytest.mark.parametrize(
    ("factor", "part", "expected"),
    [
        # n = 1/2 each; score = max(0, n + k (n - usage))
        (0, 500_000, 50.0),
        (1_000_000, 0, 50.0),
        (1_000_000, 500_000, 33.0),  # 0.5 against 1
        (2_000_000, 500_000, 25.0),  # 0.5 against 1.5
        (1_000_000, 1_000_000, 0.0),  # 0 against 1
        (1_000_000, 250_000, 43.0),  # 0.75 against 1: 42.86, the unit left over is its own
    ],
)
def test_past_use_lowers_the_weight(factor: int, part: int, expected: float) -> None:
    assert time_based(factor, part) == {"a": expected, "b": 100 - expected}


def test_past_use_never_touches_the_quota() -> None:
    built = columns(queue("a", 3), queue("b", 1))
    built.set_usage(UsageSeen("a", (1_000_000, 0, 0)))
    stand = queue_usage(built, 8, waiting={"a": 9, "b": 9}, usage_factor=10_000_000)
    assert fair(built, stand) == {"a": 3, "b": 5}


# The tree


def test_departments_share_the_cluster_and_projects_their_department() -> None:
    divided = shares(
        16,
        {"p1": 20, "p2": 20, "p3": 20},
        queue("d1", 6),
        queue("d2", 2),
        queue("p1", 3, "d1"),
        queue("p2", 1, "d1"),
        queue("p3", 0, "d2", weight=1),
    )
    assert divided == {"d1": 12, "d2": 4, "p1": 9, "p2": 3, "p3": 4}


def test_four_levels() -> None:
    divided = shares(
        24,
        {"u1": 99, "u2": 99, "v": 99, "w": 99, "x": 99},
        queue("c1", 2),
        queue("c2", 1),
        queue("d", 1, "c1"),
        queue("x", 1, "c1"),
        queue("p", 1, "d"),
        queue("v", 1, "d"),
        queue("u1", 0, "p", weight=3),
        queue("u2", 0, "p", weight=1),
        queue("w", 1, "c2"),
    )
    expected = {"c1": 16, "c2": 8, "d": 8, "x": 8, "p": 4, "v": 4, "u1": 3, "u2": 1, "w": 8}
    assert divided == expected


def test_only_what_changed_is_divided_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    built = columns(queue("d1", 4), queue("d2", 4), queue("p1", 4, "d1"), queue("p2", 4, "d2"))
    want(built, "p1", 9)
    want(built, "p2", 9)
    division, divided = Division(), []
    run = Division._divide

    def noted(self: Division, family: Any, inputs: Any) -> None:
        divided.append(family.slots)
        run(self, family, inputs)

    monkeypatch.setattr(Division, "_divide", noted)
    total = gpus(8, *TOTAL_HOST)
    division.update(built, total)
    assert len(divided) == 3
    divided.clear()
    division.update(built, total)
    assert divided == []
    want(built, "p1", 1)
    division.update(built, total)
    assert divided == [(built.slot("d1"), built.slot("d2")), (built.slot("p1"),)]


# Properties

Drawn = tuple[float, float, int, int, float, bool]
drawn_queues = st.lists(
    st.tuples(
        st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 3.7]),
        st.sampled_from([0.0, 0.3, 1.0, 2.5, 4.0, 12.0]),
        st.integers(0, 4),
        st.integers(0, 2),
        st.sampled_from([-1.0, 0.0, 1.5, 3.0, 9.0]),
        st.booleans(),
    ),
    min_size=1,
    max_size=9,
)


def drawn_tree(drawn: list[Drawn], order: list[int]) -> QueueColumns:
    """Three departments, the second with teams below it, set in the given order of leaves."""
    parents = ("d0", "d1", "t")
    built = columns(
        queue("d0", 2),
        queue("d1", 3, weight=1),
        queue("d2", 0, weight=2),
        queue("t", 1, "d1"),
    )
    for n in order:
        quota, _, weight, rank, limit, over = drawn[n]
        more: dict[str, Any] = {"weight": weight, "rank": rank, "over_quota": over}
        if limit >= 0:
            more["limit"] = limit
        built.set(queue(f"p{n}", quota, parents[n % 3], **more))
    for n in order:
        want(built, f"p{n}", drawn[n][1])
    return built


@settings(max_examples=60)
@given(total=st.integers(0, 20), drawn=drawn_queues)
def test_every_division_is_sound(total: int, drawn: list[Drawn]) -> None:
    built = drawn_tree(drawn, list(range(len(drawn))))
    stand = queue_usage(built, total)
    table = built.table
    for parent in (-1, *range(len(table.names))):
        children = table.tops if parent < 0 else table.children[parent]
        for r in range(3):
            whole = stand.total[r] if parent < 0 else stand.fair[parent][r]
            asked = built.waiting[:, r].tolist()
            wanted = {slot: min(asked[slot], table.cap[slot][r]) for slot in children}
            least = {
                slot: min(wanted[slot], whole if quota == NO_BOUND else quota)
                for slot in children
                for quota in [table.quota[slot][r]]
            }
            for slot in children:
                assert least[slot] <= stand.fair[slot][r] <= wanted[slot]
            dealt = sum(stand.fair[slot][r] for slot in children)
            assert dealt <= max(whole, sum(least.values()))
            hungry = [slot for slot in children if stand.fair[slot][r] < wanted[slot]]
            if any((table.weight[slot] or table.quota[slot])[r] for slot in hungry):
                assert dealt >= whole, "surplus is left although somebody with weight wants it"


@settings(max_examples=40)
@given(total=st.integers(0, 20), drawn=drawn_queues, shuffle=st.randoms(use_true_random=False))
def test_the_order_in_which_queues_are_set_does_not_matter(
    total: int, drawn: list[Drawn], shuffle: Random
) -> None:
    order = list(range(len(drawn)))
    first = drawn_tree(drawn, order)
    shuffle.shuffle(order)
    second = drawn_tree(drawn, order)
    assert fair(first, queue_usage(first, total)) == fair(second, queue_usage(second, total))


@settings(max_examples=50)
@given(
    drawn=drawn_queues,
    steps=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5), st.integers(6, 9)), max_size=8),
)
def test_dividing_what_changed_gives_the_same_as_dividing_all(
    drawn: list[Drawn], steps: list[tuple[int, int, int]]
) -> None:
    built = drawn_tree(drawn, list(range(len(drawn))))
    kept = Division(500_000)
    for leaf, amount, total in steps:
        name = f"p{leaf % len(drawn)}"
        want(built, name, amount)
        if amount == 3:
            built.set_usage(UsageSeen(name, (300_000, 0, 0)))
        if amount == 4:
            built.set(queue("d0", amount, limit=5))
        whole = gpus(total, *TOTAL_HOST)
        kept.update(built, whole)
        fresh = Division(500_000)
        fresh.update(built, whole)
        assert (kept.fair, kept.allocatable) == (fresh.fair, fresh.allocatable)
        assert kept.measure == fresh.measure


def test_copies_may_share_a_division() -> None:
    built = columns(queue("a", 1), queue("b", 1))
    want(built, "a", 9)
    twin = built.copy()
    want(twin, "b", 9)
    division, total = Division(), gpus(4, *TOTAL_HOST)
    for which, expected in ((built, 4000), (twin, 2000), (built, 4000)):
        division.update(which, total)
        assert division.fair[0][0] == expected
    built.set(QueueSet("a", ResourceVector(1000), OPEN, (3000, 3000, 3000)))
    want(built, "b", 9)
    division.update(built, total)
    assert [share[0] for share in division.fair] == [3000, 1000]
