"""Every invariant after every step of what hypothesis makes happen to a small cluster.

The rules are the verbs of ``stories``; hypothesis throws the dice and, on a failure, finds a short
story that fails. Longer hunts: ``python tests/hunts/machine.py --runs 5000 --steps 50``.
"""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from unit.core.stories import Story

pytestmark = pytest.mark.slow

RUNS, STEPS = 480, 20
SEEDS = st.integers(0, 1 << 16)


class Cluster(RuleBasedStateMachine):
    """One story; there is a decision after each of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.story: Story

    @initialize(seed=SEEDS)
    def begin(self, seed: int) -> None:
        self.story = Story(seed)
        for number in range(seed % 4):
            self.story.submit(random.Random(seed + number))
        self.story.run.step()

    @rule(seed=SEEDS)
    def submit(self, seed: int) -> None:
        self._do("submit", seed)

    @rule(seed=SEEDS)
    def submit_more(self, seed: int) -> None:
        self._do("submit", seed)

    @rule(seconds=st.sampled_from((0.0, 1.0, 3.0, 12.0)))
    def wait(self, seconds: float) -> None:
        self.story.run.wait(seconds)

    @rule(seed=SEEDS)
    def end(self, seed: int) -> None:
        self._do("end", seed)

    @rule(verb=st.sampled_from(("leave", "stop", "save", "open_gate")), seed=SEEDS)
    def touch_work(self, verb: str, seed: int) -> None:
        self._do(verb, seed)

    @precondition(lambda self: bool(self.story.run.ends))
    @rule(seed=SEEDS)
    def stick(self, seed: int) -> None:
        self._do("stick", seed)

    @rule(verb=st.sampled_from(("change_node", "lose_node", "change_queue")), seed=SEEDS)
    def touch_cluster(self, verb: str, seed: int) -> None:
        self._do(verb, seed)

    def _do(self, verb: str, seed: int) -> None:
        getattr(self.story, verb)(random.Random(seed))
        self.story.run.step()


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=RUNS,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
