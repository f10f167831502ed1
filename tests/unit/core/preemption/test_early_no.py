"""What sums refuse is refused before anything is laid out, and only what is impossible."""

from collections.abc import Callable

import pytest

from benchmarks.decision_cases import borrowed, hard_no
from benchmarks.decision_cases import reclaim as reclaiming
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.preemption import vectorised
from carrel_scheduler.core.preemption.search.model import (
    fitting,
    lay_out,
    refused_by_sums,
)
from unit.core.preemption.search.situations import random_situation, unit_budgets

NODES = 100


def planned(claim: borrowed.Claim) -> Plan:
    state = reclaiming.prepared(claim)
    reclaiming.again(state, claim)
    return decide(state, borrowed.NOW)


@pytest.mark.parametrize(
    ("make", "later"), [(hard_no.nodes_short, "victims_of"), (hard_no.budgets_short, "lay_out")]
)
def test_one_short_is_found_out_without_a_closer_look(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[int], borrowed.Claim], later: str
) -> None:
    def looked(*_: object, **__: object) -> None:
        pytest.fail("what follows the sums was asked")

    monkeypatch.setattr(vectorised, later, looked)
    assert planned(make(NODES)).evictions == ()


@pytest.mark.parametrize("make", [borrowed.tight, borrowed.loose])
def test_what_is_just_enough_is_not_refused(make: Callable[[int], borrowed.Claim]) -> None:
    assert len(planned(make(NODES)).evictions) == NODES // 2 * borrowed.GPUS


def test_sums_refuse_only_what_the_layout_refuses() -> None:
    refused = 0
    for seed in range(200):
        s = random_situation(seed)
        units = unit_budgets(s.victims, s.budgets)
        early = refused_by_sums(s.claim, s.eligible_nodes, units)
        layout = lay_out(s.eligible_nodes, s.victims, units)
        fits = fitting(s.claim, layout.devices, layout.host) * s.eligible_nodes.eligible
        assert not early or layout.refuses(s.claim, fits)
        refused += early
    assert refused
