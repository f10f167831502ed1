"""The core against situations with known outcomes.

The shared scenarios lie beside a checkout, or where ``CARREL_CONFORMANCE`` points; they are no part
of the project. The runner itself is tested with scenarios of our own.
"""

import copy
import json
import os
from pathlib import Path

import pytest

from conformance import run
from conformance.situation import Json

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]

ANSWERED_OTHERWISE = json.loads((HERE / "answered_otherwise.json").read_text(encoding="utf-8"))
"""Scenario id -> why the core deliberately gives another answer."""


def _shared() -> list[Json]:
    beside = REPOSITORY.parent / "shared" / "conformance" / "scenarios.json"
    path = Path(os.environ.get("CARREL_CONFORMANCE", beside))
    return run.load(path) if path.exists() else []


OWN = run.load(HERE / "own_scenarios.json")


@pytest.mark.parametrize("scenario", OWN + _shared(), ids=lambda scenario: scenario["id"])
def test_outcome(scenario: Json) -> None:
    found = run.verdict(scenario)
    if scenario["id"] in ANSWERED_OTHERWISE:
        assert found, "the answer is the expected one now; take the id off the list"
    else:
        assert found == []


def test_few_are_answered_otherwise() -> None:
    assert len(ANSWERED_OTHERWISE) < 10
    assert all(ANSWERED_OTHERWISE.values())


def test_runner_notices_a_wrong_outcome() -> None:
    scenario = copy.deepcopy(OWN[0])
    jobs = scenario["expect"]["jobs"]
    jobs["single"], jobs["pair"] = {"status": "running", "node": "south"}, {"status": "pending"}
    assert run.verdict(scenario)


def test_command_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = copy.deepcopy(OWN[0])
    wrong["id"] = "own/wrong"
    wrong["expect"]["jobs"]["pair"] = {"status": "stuck", "node": "north"}
    broken = {**copy.deepcopy(OWN[0]), "id": "own/broken", "nodes": [{"name": "half"}]}
    path = tmp_path / "some.json"
    path.write_text(json.dumps([OWN[0], wrong, broken]), encoding="utf-8")
    assert run.main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 2 failed"
    assert run.main([str(path), "--only", OWN[0]["id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"passed": 1, "failed": 0, "failures": {}}
