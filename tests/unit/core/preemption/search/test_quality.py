"""Clearing among hundreds of units: legal, sufficient, and as cheap as it has been.

``quality.json`` has for every kind of situation what the victims of each seed cost, ``null`` where
none were found, and the bound's name where a proof says that there are none. A change of the search
may make an entry cheaper, or find where nothing was found; it must not do worse in the sum. To
write the present answers down: ``python tests/unit/core/preemption/search/test_quality.py``.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[4]))

from carrel_scheduler.core.preemption.search.model import Answer, Cleared, GangRequest, Impossible
from unit.core.preemption.search.large import (
    blocks,
    gangs,
    large_situation,
    shares,
    single_devices,
)
from unit.core.preemption.search.situations import Situation, legal, places, suffices

pytestmark = pytest.mark.slow

SEEDS = range(5)
RECORD = Path(__file__).with_name("quality.json")
FILLS = {"single": single_devices, "blocks": blocks, "shares": shares, "gangs": gangs}
CLAIMS = {
    "nodes": GangRequest(9, 8, cpu_milli=16, memory_mib=16),
    "halves of nodes": GangRequest(26, 4, cpu_milli=4),
    "halves": GangRequest(170, 1, 500),
    "apart": GangRequest(20, 2, cpu_milli=3, most_per_node=1),
    "two quarters": GangRequest(40, 2, 250, memory_mib=5),
    "hosts": GangRequest(30, 0, cpu_milli=12, memory_mib=9),
}
KEPT = {"open": 0.0, "some": 0.45, "tight": 0.6}
KINDS = [f"{fill}, {claim}, {kept}" for fill in FILLS for claim in CLAIMS for kept in KEPT]
Found = list[int | str | None]


def situation(kind: str, seed: int) -> Situation:
    fill, claim, kept = kind.split(", ")
    return large_situation(FILLS[fill], CLAIMS[claim], seed, KEPT[kept])


def told(found: Answer) -> int | str | None:
    if isinstance(found, Cleared):
        return found.cost
    return found.bound if isinstance(found, Impossible) else None


@pytest.fixture(scope="module")
def record() -> dict[str, Found]:
    known: dict[str, Found] = json.loads(RECORD.read_text(encoding="utf-8"))
    return known


@pytest.mark.parametrize("kind", KINDS)
def test_it_costs_no_more_than_it_has(kind: str, record: dict[str, Found]) -> None:
    now, before = [told(situation(kind, seed).answer()) for seed in SEEDS], record[kind]
    pairs = [(new, old) for new, old in zip(now, before, strict=True) if isinstance(old, int)]
    assert all(isinstance(new, int) for new, _ in pairs), f"no longer found: {now}"
    assert sum(int(new or 0) for new, _ in pairs) <= sum(old for _, old in pairs), now
    proofs = [(new, old) for new, old in zip(now, before, strict=True) if isinstance(old, str)]
    assert all(new == old for new, old in proofs), f"no longer proved: {now}"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_answered_is_true(kind: str) -> None:
    for seed in SEEDS:
        s = situation(kind, seed)
        found = s.answer()
        if not isinstance(found, Cleared):
            continue
        units = frozenset(found.units.tolist())
        assert found.cost == sum(s.victims.cost[unit] for unit in units)
        assert len(units) == len(found.units)
        assert legal(s, units)
        assert suffices(s, units)
        fits, used = places(s, units), Counter(found.nodes.tolist())
        assert used.total() == s.claim.tasks
        assert all(count <= fits[node] for node, count in used.items())


if __name__ == "__main__":
    lines = [
        f"  {json.dumps(kind)}: {json.dumps([told(situation(kind, n).answer()) for n in SEEDS])}"
        for kind in KINDS
    ]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
