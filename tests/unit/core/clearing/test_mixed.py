"""Room for unlike tasks."""

import numpy as np

from carrel_scheduler.core.clearing.board import Board, lay_out
from carrel_scheduler.core.clearing.claims import Claim, Impossible, Ints, NotFound
from carrel_scheduler.core.clearing.mixed import clear_mixed
from unit.core.clearing.situations import flat, free_ground, victims_of


def board_of(cost: list[int], excess: int = -1) -> Board:
    """Two nodes of four devices, a one-device unit on each device."""
    rows = [(n, 1 << d, 1000, 1, 1, 0, 4 * n + d) for n in range(2) for d in range(4)]
    return lay_out(free_ground(4, 2), victims_of(rows, cost), flat(excess))


def three_and_one(units: Ints) -> bool:
    """A task of three devices and one of one device."""
    free = np.bincount(units // 4, minlength=2)
    return bool(free.max() >= 3 and free.sum() >= 4)


CLASSES = [(Claim(1, 3), None), (Claim(1, 1), None)]


def test_equal_costs_follow_the_order() -> None:
    units = clear_mixed(board_of([1] * 8), CLASSES, three_and_one)
    assert isinstance(units, np.ndarray)
    assert units.tolist() == [0, 1, 2, 3]


def test_cheap_units_go_first() -> None:
    units = clear_mixed(board_of([9, 9, 9, 9, 1, 1, 1, 5]), CLASSES, three_and_one)
    assert isinstance(units, np.ndarray)
    assert units.tolist() == [4, 5, 6, 7]


def test_blocks_of_devices_prove_a_no() -> None:
    answer = clear_mixed(
        board_of([1] * 8), [(Claim(2, 3), None), (Claim(1, 4), None)], lambda _: True
    )
    assert answer == Impossible("nodes", 2, 3)


def test_sums_prove_a_no() -> None:
    answer = clear_mixed(board_of([1] * 8), [(Claim(1, 1, cpu_milli=4), None), (Claim(1, 1, cpu_milli=5), None)], lambda _: True)  # fmt: skip # noqa: E501 - one case on one line
    assert isinstance(answer, Impossible)


def test_budgets_and_steps_end_in_not_found() -> None:
    assert clear_mixed(board_of([1] * 8, 2000), CLASSES, three_and_one) == NotFound(("order",))
    assert clear_mixed(board_of([1] * 8), CLASSES, three_and_one, steps=0) == NotFound(("steps",))
