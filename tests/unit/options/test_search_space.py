"""Search spaces as people type them."""

from typing import Any

import pytest

from carrel.errors import BadSetting
from carrel.options.search_space import parse

FLOAT: dict[str, Any] = {"type": "float"}
INT: dict[str, Any] = {"type": "int"}


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("x=0.0..0.5", FLOAT | {"low": 0.0, "high": 0.5}),
        ("x=0.0..0.5:0.1", FLOAT | {"low": 0.0, "high": 0.5, "step": 0.1}),
        ("x=-1e-3..1", FLOAT | {"low": -0.001, "high": 1.0}),
        ("x=float:1..4", FLOAT | {"low": 1.0, "high": 4.0}),
        ("x=log:1e-5..1e-1", FLOAT | {"low": 1e-5, "high": 0.1, "log": True}),
        ("x=int:1..4", INT | {"low": 1.0, "high": 4.0}),
        ("x=int:0..100:10", INT | {"low": 0.0, "high": 100.0, "step": 10.0}),
        ("x=int:log:1..1024", INT | {"low": 1.0, "high": 1024.0, "log": True}),
        ("x=log:int:1..1024", INT | {"low": 1.0, "high": 1024.0, "log": True}),
        ("x=adam,sgd", {"type": "categorical", "choices": ["adam", "sgd"]}),
        ("x=1, 2.5, true, null", {"type": "categorical", "choices": [1, 2.5, True, None]}),
        ("x=choice:1..2,[3]", {"type": "categorical", "choices": ["1..2", "[3]"]}),
        ("x=only", {"type": "categorical", "choices": ["only"]}),
    ],
)
def test_reads(text: str, space: dict[str, Any]) -> None:
    assert parse(text) == ("x", space)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("x", "write NAME=SPACE"),
        ("=1", "write NAME=SPACE"),
        ("x y=float:1..2", "a name has letters"),
        ("$x=1..2.5", "a name has letters"),
        ("x=", "write NAME=SPACE"),
        ("x=1..4", "whole numbers only? Write int:1..4, or float:1..4"),
        ("x=0.5..0.1", "the lower end comes first: 0.1..0.5"),
        ("x=0.0..1.0:0", "a step is more than 0"),
        ("x=int:0..0.5", "an int has whole ends"),
        ("x=log:0..1", "begins above 0"),
        ("x=log:1..2:1", "has no step"),
        ("x=a..b", "LOW..HIGH"),
        ("x=1e999..2e999", "finite"),
        ("x=int:3", "a range has two ends"),
        ("x=a,,b", "nothing between two commas"),
    ],
)
def test_refuses_with_the_text_and_what_would_be_right(text: str, right: str) -> None:
    with pytest.raises(BadSetting) as refused:
        parse(text)
    assert refused.value.code == "bad_search_space"
    assert str(refused.value).startswith(f"{text!r} is no search space: ")
    assert right in str(refused.value)
