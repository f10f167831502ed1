"""The core against situations with known outcomes.

The shared scenarios lie beside a checkout, or where ``CARREL_CONFORMANCE`` points; they are no part
of the project. Those that need what the core learns later are left out by feature. The runner
itself is tested with a scenario of our own.
"""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from conformance.features import KNOWN_LATER, needs
from conformance.runner import failures

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]

ANSWERED_OTHERWISE = {
    "cycle/reclaim:313": "a claim of one GPU takes the borrowed single GPU; the younger pair "
    "would leave its project with half of its guarantee and a GPU idle",
    "cycle/reclaim:2437": "work without GPUs does not give way because its project is beyond its "
    "GPU quota: it uses none of what the project borrowed",
    "reclaim/reclaim:2461": "the victim is placed again in the next cycle, not in the same one",
    "reclaim/reclaim:2549": "the victim is placed again in the next cycle, not in the same one",
}
"""Scenario id -> why the core deliberately gives another answer."""

NEED_CONSOLIDATION = {"cycle/consolidationGang:25", "cycle/consolidation_and_reclaim:25"}
"""Full cycles whose outcome rests on moving running work."""


def _load(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _shared() -> list[dict[str, Any]]:
    beside = REPOSITORY.parent / "shared" / "conformance" / "scenarios.json"
    path = Path(os.environ.get("CARREL_CONFORMANCE", beside))
    return _load(path) if path.exists() else []


SHARED = _shared()
SUPPORTED = [s for s in SHARED if not needs(s) and s["id"] not in NEED_CONSOLIDATION]
OWN = _load(HERE / "own_scenarios.json")


@pytest.mark.parametrize("scenario", OWN + SUPPORTED, ids=lambda scenario: scenario["id"])
def test_outcome(scenario: dict[str, Any]) -> None:
    found = failures(scenario)
    if scenario["id"] in ANSWERED_OTHERWISE:
        assert found, "the answer is the expected one now; take the id off the list"
    else:
        assert found == []


def test_runner_notices_a_wrong_outcome() -> None:
    scenario = copy.deepcopy(OWN[0])
    jobs = scenario["expect"]["jobs"]
    jobs["single"], jobs["pair"] = {"status": "running", "node": "south"}, {"status": "pending"}
    assert failures(scenario)


def test_own_scenarios_need_nothing_later() -> None:
    assert [needs(scenario) for scenario in OWN] == [set() for _ in OWN]


def test_features_are_recognised() -> None:
    scenario = copy.deepcopy(OWN[0])
    scenario["topologies"] = [["rack"]]
    scenario["queues"][0]["gpu"]["quota"] = 4
    scenario["jobs"][0]["tasks"][0]["gpu_fraction"] = 0.5
    scenario["jobs"][1]["gang"]["min_tasks"] = 0
    assert needs(scenario) == {"topology", "departments", "fractions", "elastic"}


def test_every_need_is_explained() -> None:
    assert {feature for scenario in SHARED for feature in needs(scenario)} <= KNOWN_LATER.keys()
