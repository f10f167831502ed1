"""Quantities mean exactly what they mean to Kubernetes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.engines.kubernetes.pods.quantities import (
    PodRefused,
    milli,
    milli_floor,
    nanos,
    parsed,
    pieces,
    pieces_floor,
)
from carrel_schema.text.quantities import MOST

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "e3": Fraction(1000),
    "E-2": Fraction(1, 100),
}


@pytest.mark.parametrize(
    ("written", "units"),
    [
        ("0", 0),
        ("2", 2),
        ("1.5Gi", 1.5 * 2**30),
        (".5", 0.5),
        ("5.", 5),
        ("+3", 3),
        ("100m", 0.1),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e3", 1000),
        ("12e-1", 1.2),
        ("1Ei", 2**60),
        ("64Ki", 65536),
    ],
)
def test_what_people_write(written: str, units: float) -> None:
    assert nanos(written) == Fraction(str(units)) * 10**9


@pytest.mark.parametrize(
    "written",
    ["", " 1", "1 ", "1KI", "1K", "Gi", "1ee3", "1e", "0x10", "1,5", "1Gi2", chr(0x661), "9" * 65],
)
def test_what_is_no_quantity(written: str) -> None:
    with pytest.raises(PodRefused) as refused:
        nanos(written, "requests.cpu")
    assert (refused.value.code, refused.value.field) == ("bad_quantity", "requests.cpu")


def test_finer_than_a_billionth_is_rounded_up_and_more_than_the_most_is_the_most() -> None:
    assert nanos("0.1n") == 1
    assert nanos("1e300") == nanos("16Ei") == MOST


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_no_digit_is_lost(whole: int, part: int, suffix: str) -> None:
    exact = (whole + Fraction(part, 1000)) * SUFFIXES[suffix] * 10**9
    found = nanos(f"{whole}.{part:03d}{suffix}")
    assert 0 <= found - exact < 1


def test_amounts_are_rounded_up_for_who_asks_and_down_for_who_offers() -> None:
    fine = nanos("1.0001")
    assert (milli(fine), milli_floor(fine), pieces(fine), pieces_floor(fine)) == (1001, 1000, 2, 1)


def test_nothing_is_asked_for_less_than_nothing() -> None:
    with pytest.raises(PodRefused, match="at least 0"):
        parsed({"cpu": "-1"}, "requests")
