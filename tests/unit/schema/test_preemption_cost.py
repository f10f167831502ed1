"""The words for what a preemption cost."""

import pytest

from carrel_schema.objects import Preemption
from carrel_schema.text.preemption_cost import lost_time, preemption_cost


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (59, "59 s"), (100, "1 min 40 s"), (120, "2 min"), (3700, "1 h 01 min")],
)
def test_lost_work_is_counted_to_the_second(seconds: float, words: str) -> None:
    assert lost_time(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "step", "words"),
    [
        (100.0, None, "1 min 40 s of work was lost; it had no checkpoint, so it begins again"),
        (0.4, 1200, "no work was lost; it goes on from the checkpoint at step 1,200"),
        (0.0, None, "no work was lost"),
    ],
)
def test_cost_as_part_of_a_sentence(seconds: float, step: int | None, words: str) -> None:
    last = Preemption(
        at=1.0,
        rule="reclaim",
        for_project="speech",
        for_workload="",
        lost_seconds=seconds,
        checkpoint_step=step,
    )
    assert preemption_cost(last) == words
