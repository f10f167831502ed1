"""Stories of faults of GPUs; ``tests/hunts/gpu_faults.py`` tells hundreds more."""

import pytest

from unit.gpu_faults.story import FaultyHarness, Story

pytestmark = pytest.mark.slow

STEPS = 60


@pytest.mark.parametrize("seed", range(12))
async def test_no_gpu_is_given_twice_and_none_is_lost(harness: FaultyHarness, seed: int) -> None:
    await Story(harness, seed).play(STEPS)
