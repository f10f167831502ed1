"""The experiment's and the endpoint's views without a page, and what a parameter explains."""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from carrel.client import Client
from carrel.notebook.job import view_of
from carrel.testing import FakeScheduler
from carrel.widgets import bundle
from carrel.widgets.cluster import ClusterView
from carrel.widgets.endpoint import EndpointView
from carrel.widgets.experiment import ExperimentView
from carrel.widgets.experiment_state import importance
from carrel.widgets.live import LiveView
from carrel_hub.console.pictures import palette
from carrel_schema.answers import TrialOut
from unit.notebook.views import page_says, until

SPACE = {"lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True}}
SEARCH = {"metric": "loss", "direction": "minimize", "completions": 12, "parallelism": 3}


def begin_trial(scheduler: FakeScheduler, owner: str, number: int, rate: float) -> str:
    name = f"sweep-{number}"
    trial = {"number": number, "parameters": {"lr": rate}}
    scheduler.submit("vision", name, kind="trial", owner=owner, part=number, trial=trial)
    scheduler.run("vision", name)
    return name


@pytest.fixture
def experiment(scheduler: FakeScheduler, client: Client) -> Iterator[ExperimentView]:
    scheduler.submit(
        "vision", "sweep", kind="experiment", experiment={"parameters": SPACE, **SEARCH}
    )
    view = view_of(client, client.get_workload("vision", "sweep"))
    assert isinstance(view, ExperimentView)
    quick(view)
    yield view
    view.close()


def quick(view: LiveView) -> None:
    view.pause = 0.02


def test_trials_and_the_best(experiment: ExperimentView, scheduler: FakeScheduler) -> None:
    owner = scheduler.workload("vision", "sweep")["uid"]
    begin_trial(scheduler, owner, 0, 0.1)
    page_says(experiment, "shown")
    until(lambda: len(experiment.trials) == 1)
    begin_trial(scheduler, owner, 1, 0.01)
    for number, loss in ((0, 0.5), (1, 0.25)):
        scheduler.report("vision", f"sweep-{number}", step=1, metrics={"loss": loss})
        scheduler.finish("vision", f"sweep-{number}")
    until(lambda: experiment.search["counts"]["completed"] == 2)
    assert experiment.search["best"]["number"] == 1
    assert experiment.search["best"]["parameters"] == {"lr": 0.01}
    assert experiment.search["logarithmic"] == ["lr"]
    assert (experiment.job["progress"]["done"], experiment.job["progress"]["total"]) == (2, 12)
    scheduler.finish("vision", "sweep")
    until(lambda: experiment.settled and not experiment.live)
    html = experiment.fallback()["text/html"]
    assert "<svg" in html
    assert "2 trials, from 0.25 to 0.5" in html


def test_other_work_of_the_project_is_no_news(
    experiment: ExperimentView, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_says(experiment, "shown")
    until(lambda: ("GET", "/events") in scheduler.requests)
    owner = scheduler.workload("vision", "sweep")["uid"]
    begin_trial(scheduler, owner, 0, 0.1)
    until(lambda: len(experiment.trials) == 1)
    sent: list[Any] = []
    monkeypatch.setattr(experiment, "_send", lambda message, **_: sent.append(message))
    begin_trial(scheduler, "another-experiment", 7, 0.1)
    begin_trial(scheduler, owner, 1, 0.1)
    until(lambda: len(experiment.trials) == 2)
    assert len(sent) <= 2


def test_the_table_knows_how_trials_ended(
    experiment: ExperimentView, scheduler: FakeScheduler
) -> None:
    owner = scheduler.workload("vision", "sweep")["uid"]
    page_says(experiment, "shown")
    name = begin_trial(scheduler, owner, 0, 0.1)
    until(lambda: len(experiment.trials) == 1)
    reason = {"sentence": "Traceback\nValueError: lr"}
    scheduler.status("vision", name, phase="failed", reason=reason)
    until(lambda: experiment.trials[0]["error"] == "ValueError: lr")
    name = begin_trial(scheduler, owner, 1, 0.2)
    scheduler.status("vision", name, phase="stopped", trial_state="pruned")
    scheduler.status("vision", "sweep", experiment={"failed": 1, "pruned": 1})
    until(lambda: [one["state"] for one in experiment.trials] == ["failed", "pruned"])


def test_many_trials_are_sent_more_slowly(experiment: ExperimentView) -> None:
    unseen = experiment.pace()
    page_says(experiment, "shown")
    few = experiment.pace()
    experiment._search.take_trials(TrialOut(number=number) for number in range(2000))
    assert (unseen, few, experiment.pace()) == (0.2, 0.02, 5.0)


def test_endpoint_follows_its_replicas(scheduler: FakeScheduler, client: Client) -> None:
    section = {"min_replicas": 1, "max_replicas": 3}
    scheduler.submit("vision", "model", kind="inference", inference=section)
    view = view_of(client, client.get_workload("vision", "model"))
    assert isinstance(view, EndpointView)
    quick(view)
    page_says(view, "shown")
    owner = scheduler.workload("vision", "model")["uid"]
    scheduler.submit("vision", "model-0", kind="replica", owner=owner)
    scheduler.run("vision", "model-0", devices=[0])
    now = {"url": "/e/vision/model/", "wanted": 1, "ready": 1, "requests_per_second": 2.5}
    scheduler.status("vision", "model", phase="running", endpoint=now)
    until(lambda: view.endpoint["ready"] == 1 and len(view.replicas) == 1)
    assert view.replicas[0]["where"] == "node-1, GPU 0"
    assert view.samples[-1][1:] == [2.5, 0.0, 1.0]
    assert "1 of 1 replicas ready" in view.fallback()["text/plain"]
    view.close()


def test_importance_finds_what_matters() -> None:
    chance = random.Random(5)
    trials: list[tuple[dict[str, Any], float]] = [
        ({"lr": chance.random(), "noise": chance.random(), "kind": chance.choice("ab")}, 0.0)
        for _ in range(60)
    ]
    valued = [(one, one["lr"] ** 2 + (0.2 if one["kind"] == "a" else 0.0)) for one, _ in trials]
    shares = importance(valued)
    assert next(iter(shares)) == "lr"
    assert shares["lr"] > 0.7
    assert shares["noise"] < 0.1
    assert shares["kind"] > shares["noise"]


@pytest.mark.parametrize(
    "trials",
    [
        [],
        [({"lr": 0.1}, 1.0)] * 7,
        [({"lr": float(number)}, 1.0) for number in range(20)],
        [({"lr": 0.1}, float(number)) for number in range(20)],
    ],
)
def test_importance_says_nothing_without_evidence(trials: list[Any]) -> None:
    assert importance(trials) == {}


def test_gpu_map_asks_rarely_and_says_who_holds_what(
    scheduler: FakeScheduler, client: Client
) -> None:
    holder = {"project": "vision", "name": "x", "gpu_milli": 500, "borrowed": True}
    scheduler.nodes({"name": "node-1", "devices": [{"index": 0, "holders": [holder]}]})
    view = ClusterView(client, client.nodes())
    view.pause = 0.2
    page_says(view, "shown")
    until(lambda: ("GET", "/events") in scheduler.requests)
    for number in range(40):
        scheduler.submit("vision", f"n-{number}")
    scheduler.nodes({"name": "node-1", "devices": [{"index": 0, "broken": True}]})
    scheduler.submit("vision", "last")
    until(lambda: view.nodes[0]["devices"][0]["words"] == "GPU 0: broken")
    assert scheduler.requests.count(("GET", "/nodes")) < 12
    assert ">broken</td>" in view.fallback()["text/html"]
    view.close()


def test_colours_are_those_of_the_console() -> None:
    drawn = re.findall(r"'(#[0-9a-f]{6})',?", bundle.text("gpus.js").partition("];")[0])
    assert tuple(drawn) == palette.COLORS
