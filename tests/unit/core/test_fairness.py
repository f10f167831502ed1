"""The division of a resource among projects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.core.fairness import Claimant, divide
from carrel_scheduler.core.resources import UNLIMITED

GPU = 1000


def claimant(name: str, quota: int, demand: int, **more: int) -> Claimant:
    """Amounts in whole GPUs; the weight is the quota unless given."""
    limit = more.get("limit", UNLIMITED)
    return Claimant(
        name=name,
        quota=quota if quota == UNLIMITED else quota * GPU,
        limit=limit if limit == UNLIMITED else limit * GPU,
        weight=more.get("weight", quota) * GPU,
        rank=more.get("rank", 0),
        created_at=float(more.get("created_at", 0)),
        demand=demand * GPU,
    )


def shares(total: int, *claimants: Claimant) -> dict[str, float]:
    divide(total * GPU, claimants, GPU)
    return {c.name: c.fair / GPU for c in claimants}


def test_guarantee_first_then_surplus_by_weight() -> None:
    assert shares(8, claimant("a", 3, 9), claimant("b", 1, 9)) == {"a": 6, "b": 2}


def test_what_one_does_not_want_goes_to_the_others() -> None:
    assert shares(8, claimant("a", 3, 9), claimant("b", 1, 1)) == {"a": 7, "b": 1}


def test_unused_guarantee_is_lent() -> None:
    assert shares(4, claimant("a", 2, 4), claimant("b", 2, 0)) == {"a": 4, "b": 0}


def test_higher_rank_takes_all_the_surplus_it_wants() -> None:
    divided = shares(10, claimant("a", 2, 9), claimant("b", 2, 5, rank=1))
    assert divided == {"a": 5, "b": 5}


def test_zero_weight_gets_no_surplus() -> None:
    assert shares(6, claimant("a", 2, 6, weight=0), claimant("b", 2, 3)) == {"a": 2, "b": 3}


def test_limit_caps_the_share() -> None:
    divided = shares(10, claimant("a", 2, 9, limit=3), claimant("b", 2, 9))
    assert divided == {"a": 3, "b": 7}


def test_oversubscribed_guarantees_are_not_scaled() -> None:
    assert shares(4, claimant("a", 4, 4), claimant("b", 4, 4)) == {"a": 4, "b": 4}


def test_unlimited_quota_is_the_whole_cluster() -> None:
    divided = shares(4, claimant("a", UNLIMITED, 9, weight=1), claimant("b", 1, 1))
    assert divided == {"a": 4, "b": 1}


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_the_unit_lost_to_rounding_goes_to_the_older(first: int, second: int) -> None:
    divided = shares(
        5,
        claimant("a", 2, 9, created_at=first),
        claimant("b", 2, 9, created_at=second),
    )
    assert divided == ({"a": 3, "b": 2} if first < second else {"a": 2, "b": 3})


def test_larger_remainder_comes_before_age() -> None:
    divided = shares(
        6,
        claimant("old", 0, 9, weight=1, created_at=0),
        claimant("new", 0, 9, weight=2, created_at=1),
        claimant("mid", 0, 9, weight=2, created_at=2),
    )
    assert divided == {"old": 1, "new": 3, "mid": 2}


claims = st.lists(
    st.tuples(
        st.integers(-1, 6),
        st.integers(0, 12),
        st.integers(0, 4),
        st.integers(0, 2),
        st.integers(-1, 9),
    ),
    min_size=1,
    max_size=7,
)


@given(total=st.integers(0, 20), drawn=claims)
def test_every_division_is_sound(total: int, drawn: list[tuple[int, int, int, int, int]]) -> None:
    claimants = [
        claimant(f"p{n}", quota, demand, weight=weight, rank=rank, limit=limit)
        for n, (quota, demand, weight, rank, limit) in enumerate(drawn)
    ]
    divide(total * GPU, claimants, GPU)
    guaranteed = 0
    for c in claimants:
        least = min(total * GPU if c.quota == UNLIMITED else c.quota, c.wanted)
        guaranteed += least
        assert least <= c.fair <= c.wanted
        assert c.fair % GPU == 0
    dealt = sum(c.fair for c in claimants)
    assert dealt <= max(total * GPU, guaranteed)
    hungry = [c for c in claimants if c.fair < c.wanted and c.weight]
    if hungry:
        assert dealt >= total * GPU, "surplus is left although somebody with weight wants it"


@given(total=st.integers(0, 20), drawn=claims, order=st.randoms(use_true_random=False))
def test_the_order_of_projects_does_not_matter(
    total: int, drawn: list[tuple[int, int, int, int, int]], order: object
) -> None:
    def divided(numbers: list[int]) -> dict[str, int]:
        claimants = [
            claimant(f"p{n}", *drawn[n][:2], weight=drawn[n][2], rank=drawn[n][3]) for n in numbers
        ]
        divide(total * GPU, claimants, GPU)
        return {c.name: c.fair for c in claimants}

    numbers = list(range(len(drawn)))
    shuffled = numbers.copy()
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert divided(numbers) == divided(shuffled)
