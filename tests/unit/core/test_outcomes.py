"""The core reaches at least what it has reached, at no higher cost, on many drawn situations.

``outcomes.json`` has for every kind of situation what was won and what it cost, summed over the
seeds. A change may do better; to write down what it does then:
``python tests/unit/core/test_outcomes.py``.
"""

import json
import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from unit.core.outcomes import KINDS, Figures

pytestmark = pytest.mark.slow

SEEDS = range(8)
RECORD = Path(__file__).with_name("outcomes.json")


def reached(kind: str) -> Figures:
    figures = [KINDS[kind](seed) for seed in SEEDS]
    return sum(won for won, _ in figures), sum(cost for _, cost in figures)


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_no_worse_than_it_did(kind: str) -> None:
    won, cost = reached(kind)
    before = json.loads(RECORD.read_text(encoding="utf-8"))[kind]
    assert won >= before["won"]
    assert cost <= before["cost"]


if __name__ == "__main__":
    found = {kind: dict(zip(("won", "cost"), reached(kind), strict=True)) for kind in KINDS}
    RECORD.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
