"""Amounts by group of nodes, as people write them."""

import pytest

from carrel_schema.text import group_amounts


def test_what_is_spelled_reads_back() -> None:
    amounts = {"h100": 2.5, "a100": 4.0}
    assert group_amounts.spell(amounts) == "a100=4, h100=2.5"
    assert group_amounts.read(group_amounts.spell(amounts)) == amounts
    assert group_amounts.read(" a100 = 1,, h100=None ") == {"a100": 1.0, "h100": None}
    assert group_amounts.read("") == {}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a100", "`a100` should be the name of a node group and GPUs: a100=4"),
        ("=4", "`=4` should be the name of a node group and GPUs: a100=4"),
        ("a100=4,a100=5", "`a100` should be there once"),
        ("a100=many", "`many` of `a100` should be a number of GPUs, 0 or larger, or none"),
        ("a100=-1", "`-1` of `a100` should be a number of GPUs, 0 or larger, or none"),
        ("a100=inf", "`inf` of `a100` should be a number of GPUs, 0 or larger, or none"),
    ],
)
def test_what_is_wrong_is_said(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="should") as error:
        group_amounts.read(text)
    assert str(error.value) == wrong
