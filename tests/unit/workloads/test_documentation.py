"""docs/architecture.md shows the table that the code has."""

import re
from pathlib import Path

from carrel_scheduler.workloads.state.phases import HOLDING, TRANSITIONS

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"
ROW = re.compile(r"^\| (\w+) \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def test_the_page_has_every_phase_with_its_transitions() -> None:
    rows = {phase: (holds, moves) for phase, holds, moves in ROW.findall(PAGE.read_text())}
    rows.pop("phase", None)
    assert set(rows) == set(TRANSITIONS)
    for phase, (holds, moves) in rows.items():
        known = set(re.findall(r"\b(" + "|".join(TRANSITIONS) + r")\b", moves))
        assert known == TRANSITIONS[phase], phase
        assert (holds != "no") == (phase in HOLDING), phase
