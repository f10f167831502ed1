"""Named priorities: the numbers that the field uses, and levels that lie between them."""

import pytest

from carrel_scheduler.core.settings import NAMED


@pytest.mark.parametrize(
    ("kind", "number"),
    [("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125)],
)
def test_kinds_of_work_have_the_usual_numbers(kind: str, number: int) -> None:
    assert NAMED[kind] == number


def test_the_level_below_medium_is_that_of_trainings() -> None:
    assert NAMED["medium-low"] == NAMED["train"] < NAMED["medium"] < NAMED["build-preemptible"]


def test_levels_are_in_order() -> None:
    levels = ["very-low", "low", "medium-low", "medium", "medium-high", "high", "very-high"]
    numbers = [NAMED[level] for level in levels]
    assert numbers == sorted(set(numbers))
