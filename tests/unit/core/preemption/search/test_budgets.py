"""Divisors of what units hold, on which the caps of queues rest."""

import math

import numpy as np
import pytest

from carrel_scheduler.core.preemption.legality import Budgets
from carrel_scheduler.core.preemption.search.budgets import Caps, UnitBudgets
from carrel_scheduler.core.queues.rules import Tree


def units(amounts: list[int], queue: list[int], excess: int = 4) -> UnitBudgets:
    """Two leaves below a third queue; the amounts are thousandths of devices."""
    bounds = np.zeros((3, 3), np.int64)
    bounds[:, 0] = excess
    budgets = Budgets.of(Tree(np.array([2, 2, -1])), bounds)
    held = np.array(amounts, np.int64)
    zero = np.zeros(len(held), np.int64)
    return UnitBudgets(budgets, np.array(queue), (held, zero, zero).__getitem__)


@pytest.mark.parametrize(
    ("amounts", "queue"),
    [
        ([3, 2, 4], [0, 0, 1]),
        ([6, 4, 9], [0, 0, 1]),
        ([5, 5, 10], [0, 0, 1]),
        ([2, 2, 3], [0, 0, 1]),
        ([4, 4, 4], [0, 1, 1]),
        ([1000, 500, 250, 1000], [0, 0, 1, 1]),
        ([7], [1]),
    ],
)
def test_a_step_divides_all_that_a_queue_may_lose(amounts: list[int], queue: list[int]) -> None:
    mine = units(amounts, queue)
    sums, largest = mine.held(None, 0)
    steps = mine.steps(sums, largest, 0).tolist()
    for slot in (0, 1):
        there = [amount for amount, of in zip(amounts, queue, strict=True) if of == slot]
        if there:
            assert all(amount % steps[slot] == 0 for amount in there)
            assert steps[slot] == math.gcd(*there) or len(set(amounts)) == 1
    assert steps[2] == math.gcd(*amounts)


@pytest.mark.parametrize(
    ("amounts", "excess", "cap"),
    [
        ([1, 1, 1, 1, 1, 1], 4, 4),
        ([2, 2, 2, 2], 4, 4),
        ([2, 2, 2, 2], 3, 4),
        ([3, 3, 3], 4, 6),
        ([3, 2, 2, 2], 4, 6),
    ],
)
def test_caps_are_what_equal_units_may_lose(amounts: list[int], excess: int, cap: int) -> None:
    """All but the largest sum to less than the excess; with equal units that is exact."""
    mine = units(amounts, [0] * len(amounts), excess)
    assert Caps(mine).most[0] == cap
    legal = [
        sum(amounts[:count]) for count in range(1, len(amounts) + 1) if mine.legal(np.arange(count))
    ]
    assert max(legal) <= cap
    if len(set(amounts)) == 1:
        assert max(legal) == cap


def test_sums_go_up_and_prices_down_every_level() -> None:
    tree = Tree(np.array([1, 2, -1, 1, -1]))
    assert tree.sums(np.array([1, 10, 100, 1000, 5])).tolist() == [1, 1011, 1111, 1000, 5]
    assert tree.largest(np.array([7, 3, 1, 9, 5])).tolist() == [7, 9, 9, 9, 5]
    assert tree.divisors(np.array([12, 0, 0, 8, 5])).tolist() == [12, 4, 4, 8, 5]
    assert tree.along_paths(np.array([1, 10, 100, 1000, 5])).tolist() == [111, 110, 100, 1110, 5]
    least = tree.least_on_paths(np.array([[5, 1], [7, 9], [6, 8], [3, 9], [2, 2]]))
    assert least.tolist() == [[5, 1], [6, 8], [6, 8], [3, 8], [2, 2]]


def test_the_last_unit_may_pass_the_smallest_excess() -> None:
    mine = units([500, 500], [0, 1], excess=1)
    assert mine.legal(np.array([0]))
    assert not mine.legal(np.array([0, 1]))
