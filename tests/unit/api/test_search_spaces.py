"""Search spaces that cannot be searched are refused with what would be right."""

from typing import Any

import pytest
from pydantic import ValidationError

from carrel_scheduler.api.models.validators import read
from carrel_schema.sections import ExperimentSpec

NUMBER = {"type": "float", "low": 0.0, "high": 1.0}
WORDS = {"type": "categorical", "choices": ["a", "b"]}


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ({"type": "float", "low": 0.0}, "`low` and `high`"),
        (NUMBER | {"low": 2.0}, "low <= high"),
        (NUMBER | {"log": True}, "`low` above 0"),
        (NUMBER | {"choices": ["a"]}, "`low` and `high`"),
        (NUMBER | {"step": 1e-300}, "steps"),
        (NUMBER | {"low": -1e308, "high": 1e308, "step": 1.0}, "steps"),
        ({"type": "int", "low": 0, "high": 1.5}, "whole numbers"),
        ({"type": "int", "low": 0, "high": 1e300}, "an int between"),
        (WORDS | {"choices": []}, "`choices`"),
        (WORDS | {"low": 0.0}, "`choices`"),
        (WORDS | {"choices": [1, True]}, "once"),
    ],
)
def test_a_parameter(space: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match="bad_search_space") as refused:
        read(ExperimentSpec, {"parameters": {"x": space}})
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, "a grid needs them declared"),
        ({"x": NUMBER}, "a `step` for `x`"),
        ({"x": {"type": "int", "low": 0, "high": 10**6}}, "points in a grid"),
        ({"x": NUMBER | {"step": 1e-9}, "y": WORDS}, "points in a grid"),
    ],
)
def test_a_grid(parameters: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match="bad_search_space") as refused:
        read(ExperimentSpec, {"parameters": parameters, "sampler": "grid"})
    assert expected in str(refused.value)


def test_what_can_be_searched_is_taken() -> None:
    space = {"x": NUMBER | {"step": 0.1}, "y": WORDS, "n": {"type": "int", "low": 1, "high": 8}}
    assert read(ExperimentSpec, {"parameters": space, "sampler": "grid"}).seed is None
    one_value = {"x": NUMBER | {"low": 1.0}}
    assert read(ExperimentSpec, {"parameters": one_value}).sampler == "tpe"
