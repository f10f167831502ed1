"""The order digit by digit is the one that comparing gives."""

import numpy as np
import pytest

from carrel_scheduler.core.preemption.victim_order import ascending

CASES = {
    "times": np.random.default_rng(1).random(9000) * 1e9,
    "many equal": np.random.default_rng(2).integers(-50, 50, 9000) / 4,
    "all equal": np.full(9000, -3.5),
    "both zeros": np.where(np.arange(9000) % 2, 0.0, -0.0),
    "far apart": np.random.default_rng(3).standard_normal(9000) ** 9 * 1e250,
    "endless": np.array([np.inf, -np.inf, 0.0, 1e-320, -1e-320] * 1800),
    "few": np.array([2.0, 1.0, 2.0, -1.0]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_order_is_that_of_a_stable_sort(case: str) -> None:
    values = CASES[case]
    before = values.copy()
    assert np.array_equal(ascending(values), np.argsort(values, kind="stable"))
    assert np.array_equal(values, before)
