"""A trial in code: by hand, and with a scheduler that answers, refuses or is away."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import carrel
from carrel.job import api, report, trial
from carrel.job.trial import TrialLink, merge

PATHS = [str(Path(carrel.__file__).parents[1])]


class StubScheduler:
    """Answers in the scheduler's place."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.pruned = False
        self.away = False

    def request(self, part: str, content: bytes) -> tuple[int, Any]:
        if self.away:
            raise ConnectionRefusedError("nobody there")
        body = json.loads(content)
        if part == "suggestions":
            if body["name"] == "refused":
                return 409, {"detail": "it does not go with what was suggested"}
            return 200, {"value": body.get("high", "b")}
        self.bodies.append(body)
        return 200, {"should_prune": self.pruned}

    @property
    def values(self) -> list[dict[str, Any]]:
        return [value for body in self.bodies for value in body.get("values", ())]


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubScheduler]:
    made = StubScheduler()
    facts = {
        "URL": "http://127.0.0.1:1/x",
        "TASK_TOKEN": "ct1.x",
        "PROJECT": "vision",
        "WORKLOAD": "sweep-3",
        "EXPERIMENT": "sweep",
        "TRIAL": "3",
        "METRIC": "loss",
        "PARAMETERS": '{"lr": 0.1, "net": "small"}',
    }
    for name, value in facts.items():
        monkeypatch.setenv(f"CARREL_{name}", value)
    monkeypatch.setattr(TrialLink, "_request", lambda _, part, content: made.request(part, content))
    monkeypatch.setattr(trial._ProcessLink, "link", None)
    monkeypatch.setattr(trial, "ANSWER_SECONDS", 30.0)
    yield made
    made.away = False
    if trial._ProcessLink.link is not None:
        trial._ProcessLink.link.flush(30.0)


def test_by_hand_it_has_the_defaults_and_remembers() -> None:
    own = carrel.trial(lr=0.5)
    assert (own.number, own.experiment, own["lr"], own.parameters.lr) == (None, "", 0.5, 0.5)
    assert own.suggest_float("rate", 1e-4, 1e-2, log=True) == pytest.approx(1e-3)
    assert own.suggest_float("drop", 0.0, 1.0, default=0.1) == 0.1
    assert own.suggest_int("width", 0, 10) == 5
    assert own.suggest_categorical("net", ["a", "b"]) == "a"
    assert own.suggest_float("lr", 0.0, 1.0) == 0.5
    assert dict(own.parameters) == {"lr": 0.5, "rate": 1e-3, "drop": 0.1, "width": 5, "net": "a"}
    own.report(0.25, step=4)
    assert report.latest()["metrics"] == {"objective": 0.25}
    assert not own.should_prune()
    own.result(0.2)
    assert report.latest()["metrics"] == {"objective": 0.2}


def test_single_defaults_are_changed_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARREL_PARAM_LEARNING_RATE", "0.25")
    monkeypatch.setenv("CARREL_PARAM_NET", "large")
    own = carrel.trial(**{"learning-rate": 0.5, "net": "small", "epochs": 3})
    assert own.parameters == {"learning-rate": 0.25, "net": "large", "epochs": 3}


def test_an_unknown_parameter_names_those_that_there_are() -> None:
    with pytest.raises(AttributeError, match="no parameter `rate`; there are `lr`"):
        _ = carrel.trial(lr=0.5).parameters.rate


def test_in_an_experiment_what_it_gives_wins(scheduler: StubScheduler) -> None:
    own = carrel.trial(lr=0.5, epochs=7)
    assert (own.number, own.experiment, own.metric) == (3, "sweep", "loss")
    assert own.parameters == {"lr": 0.1, "net": "small", "epochs": 7}


def test_all_values_arrive_in_their_order_and_the_answer_comes_back(
    scheduler: StubScheduler,
) -> None:
    own = carrel.trial()
    for step in range(5):
        own.report(step / 2, step)
    assert not own.should_prune()
    assert scheduler.values == [{"step": step, "value": step / 2} for step in range(5)]
    assert scheduler.bodies[-1]["asks"] is True
    scheduler.pruned = True
    assert own.should_prune()
    asked = len(scheduler.bodies)
    assert own.should_prune()
    assert len(scheduler.bodies) == asked


def test_values_are_written_for_tensorboard_too(
    scheduler: StubScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int | None, Any]] = []
    monkeypatch.setattr(
        report.Reporter, "record", lambda _, step, values: written.append((step, values))
    )
    carrel.trial().report(0.5, 3)
    assert written == [(3, {"loss": 0.5})]


def test_the_result_is_there_when_the_call_returns(scheduler: StubScheduler) -> None:
    carrel.trial().result(0.75)
    assert scheduler.bodies == [{"result": 0.75}]


def test_without_an_answer_the_trial_goes_on_and_nothing_is_lost(
    scheduler: StubScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "ANSWER_SECONDS", 0.05)
    scheduler.away = True
    own = carrel.trial()
    own.report(1.0, 0)
    assert not own.should_prune()
    assert not own.should_prune()
    scheduler.away = False
    own.result(2.0)
    assert scheduler.values == [{"step": 0, "value": 1.0}]
    assert [body["result"] for body in scheduler.bodies if "result" in body] == [2.0]


def test_a_result_without_reports_waits_for_the_scheduler(
    scheduler: StubScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def back(seconds: float) -> None:
        pauses.append(seconds)
        scheduler.away = len(pauses) < 3

    monkeypatch.setattr("time.sleep", back)
    scheduler.away = True
    carrel.trial().result(0.5)
    assert (len(pauses), scheduler.bodies) == (3, [{"result": 0.5}])


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 200", b'HTTP/1.1 200 OK\r\n\r\n{"a": '])
def test_an_answer_that_is_cut_off_is_none(answer: bytes) -> None:
    with pytest.raises(ConnectionError):
        api.parse_json(api.parse_answer(answer)[1])
    conflict = b'HTTP/1.1 409 Conflict\r\nA: b\r\n\r\n{"a": 1}'
    assert api.parse_answer(conflict) == (409, b'{"a": 1}')
    assert api.parse_answer(b"HTTP/1.1 204 No Content\r\n\r\n") == (204, b"")
    assert api.parse_json(b"") is None


def test_a_trial_with_a_result_only_imports_next_to_nothing() -> None:
    script = (
        "import sys, carrel\ncarrel.trial(x=1)\n"
        "print([one for one in ('http.client', 'dataclasses', 'pathlib', 'urllib.parse', 'optuna')"
        " if one in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {PATHS!r}; " + script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_no_number_is_not_reported(
    scheduler: StubScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    carrel.trial().report(float("nan"))
    assert "loss is nan" in capsys.readouterr().err
    assert scheduler.bodies == []


def test_parameters_of_its_own_are_asked_for_once(scheduler: StubScheduler) -> None:
    own = carrel.trial()
    assert own.suggest_int("width", 1, 64) == 64
    assert own.parameters.width == 64
    assert own.suggest_categorical("net", ["small", "large"]) == "small"
    with pytest.raises(RuntimeError, match="does not go with"):
        own.suggest_float("refused", 0.0, 1.0)
    scheduler.away = True
    with pytest.raises(RuntimeError, match="nobody there"):
        own.suggest_float("depth", 0.0, 1.0)


def test_of_very_many_values_that_wait_the_last_are_kept() -> None:
    many = [{"step": step, "value": 0.0} for step in range(1500)]
    kept = merge({"values": many[:900], "asks": True}, {"values": many[900:]})
    assert (kept["values"], kept["asks"]) == (many[500:], True)
