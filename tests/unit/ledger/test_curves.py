"""What is kept of long curves."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.rows.curves import Curve, thinned

# A busy machine breaks no law: no deadline per example.
RELAXED = settings(deadline=None, max_examples=60)


@RELAXED
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(2, 20))
def test_a_curve_stays_short_even_and_whole(arrivals: list[int], most: int) -> None:
    curve = Curve()
    kept: list[int] = []
    for count in arrivals:
        grown = curve.after(count, most)
        kept = [n for n in (*kept, *range(curve.received, grown.received)) if grown.keeps(n)]
        curve = grown
        assert len(kept) == curve.kept <= most
        assert kept[0] == 0
        assert kept[-1] == curve.received - 1
        gaps = {later - earlier for earlier, later in pairwise(kept[:-1])}
        assert gaps <= {curve.stride}


@RELAXED
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_the_way_of_arrival_makes_no_difference(arrivals: list[int]) -> None:
    curve = Curve()
    for count in arrivals:
        curve = curve.after(count, 10)
    assert curve == Curve().after(sum(arrivals), 10)


def test_short_curves_are_kept_whole() -> None:
    assert Curve().kept == 0
    assert Curve().after(2000) == Curve(2000, 1)
    assert Curve().after(2001) == Curve(2001, 2)


@RELAXED
@given(st.integers(0, 300), st.integers(2, 50))
def test_thinned_keeps_ends_order_and_evenness(length: int, most: int) -> None:
    points = list(range(length))
    shown = list(thinned(points, most))
    if length <= most:
        assert shown == points
        return
    assert len(shown) == most
    assert (shown[0], shown[-1]) == (0, length - 1)
    gaps = [later - earlier for earlier, later in pairwise(shown)]
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1 + length % 2


def test_one_point_is_the_last() -> None:
    assert list(thinned([1, 2, 3], 1)) == [3]
    with pytest.raises(InvalidArgument, match="max_points"):
        thinned([1], 0)
