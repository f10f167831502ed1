"""Amounts as Kubernetes writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.resources import quantities


@pytest.mark.parametrize(
    ("text", "milli"),
    [("2", 2000), ("500m", 500), ("0.5", 500), (2, 2000), (0.25, 250), ("1k", 10**6), ("1u", 1)],
)
def test_thousandths(text: str | float, milli: int) -> None:
    assert quantities.milli(text, "cpu") == milli


@pytest.mark.parametrize(
    ("text", "number"), [("8Gi", 2**33), ("1G", 10**9), ("1.5Ki", 1536), ("1e3", 1000), (7, 7)]
)
def test_bytes(text: str | int, number: int) -> None:
    assert quantities.whole(text, "memory") == number


@given(st.integers(0, 2**60))
def test_what_is_written_is_read_back(number: int) -> None:
    assert quantities.milli(quantities.of_milli(number), "cpu") == number
    assert quantities.whole(quantities.of_bytes(number), "memory") == number


@pytest.mark.parametrize("text", ["", "8 GB", "-1", "Gi", "1e", "0x10", "1Gi "])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"memory.*a quantity such as"):
        quantities.whole(text, "memory")
