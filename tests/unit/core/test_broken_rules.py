"""Each broken rule is noticed within a bounded number of random stories."""

import pytest

from unit.core.broken_rules import BROKEN, Broken
from unit.core.runs import Violated
from unit.core.stories import tell

pytestmark = pytest.mark.slow

MOST_RUNS, STEPS = 150, 25


def runs_until_noticed(broken: Broken) -> int | None:
    """How many stories it takes until one of its invariants speaks."""
    with broken.applied():
        for seed in range(MOST_RUNS):
            try:
                tell(seed, STEPS)
            except Violated as error:
                if any(name in str(error) for name in broken.noticed_by):
                    return seed + 1
    return None


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_rule_is_noticed(broken: Broken) -> None:
    assert runs_until_noticed(broken) is not None
