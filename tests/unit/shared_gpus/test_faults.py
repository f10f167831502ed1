"""Stories of shared GPUs in virtual time: no GPU is given twice, and none stays held.

Reservations are deleted by hand, schedulers are killed or go on when another one leads, answers are
lost, watches lag, nodes refuse pods.
"""

import pytest

from unit.shared_gpus.sharing import Story
from unit.shared_gpus.virtual_loop import in_virtual_time

STEPS = 80


@pytest.mark.parametrize("seed", range(25))
def test_no_gpu_is_given_twice_and_none_is_lost(seed: int) -> None:
    story = Story(seed, forced=False)
    in_virtual_time(lambda: story.play(STEPS))
    assert story.ran > STEPS // 10
    assert not story.refused, "nodes had the GPUs that were counted on"


@pytest.mark.parametrize("seed", range(10))
def test_what_shares_a_gpu_that_was_freed_by_force_ends_within_its_grace_period(seed: int) -> None:
    story = Story(seed, forced=True)
    in_virtual_time(lambda: story.play(STEPS))
    assert story.ran > STEPS // 10
