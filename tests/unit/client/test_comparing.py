"""Runs side by side: what is read of jobs and trials, and the table that it makes."""

import csv
import io
from collections.abc import Iterator

import pytest

import carrel
from carrel.client import Client
from carrel.comparing import split
from carrel.errors import ApiError, BadSetting
from carrel.testing import FakeScheduler


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    with FakeScheduler() as found:
        for name, rate in (("train-1", 0.1), ("train-2", 0.2)):
            found.submit("vision", name)
            found.run("vision", name)
            parameters = {"lr": rate, "net": "=1+1", "data": "digits"}
            found.report("vision", name, parameters=parameters)
            for step in range(3):
                found.report("vision", name, step=step, metrics={"loss": rate / (step + 1)})
        found.submit("vision", "sweep", kind="experiment", experiment={"metric": "score"})
        uid = found.workload("vision", "sweep")["uid"]
        trial = {"number": 0, "parameters": {"lr": 0.5}}
        found.submit("vision", "sweep-0", kind="trial", owner=uid, trial=trial)
        found.report("vision", "sweep-0", step=4, metrics={"score": 0.75})
        yield found


@pytest.fixture
def client(fake: FakeScheduler) -> Iterator[Client]:
    with Client(fake.url, fake.token("ada")) as found:
        yield found


def test_jobs_and_trials_stand_side_by_side(client: Client) -> None:
    found = carrel.compare("train-1", ["vision/train-2", "sweep"], project="vision", client=client)
    assert [run.label for run in found.runs] == ["train-1", "train-2", "sweep/0"]
    assert [run.parameters["lr"] for run in found.runs] == [0.1, 0.2, 0.5]
    assert [step for step, _, _ in found.runs[1].curves["loss"]] == [0, 1, 2]
    assert found.runs[2].metrics == {"score": 0.75}


def test_what_differs_comes_first_and_texts_are_no_formulas(client: Client) -> None:
    found = carrel.compare("train-1", "train-2", project="vision", client=client)
    head, *rows = csv.reader(io.StringIO(found.csv()))
    assert head[6:] == ["lr", "data", "net", "loss"]
    assert [row[6:9] for row in rows] == [["0.1", "digits", "'=1+1"], ["0.2", "digits", "'=1+1"]]


def test_saved_notebooks_keep_the_table(client: Client) -> None:
    view = carrel.compare("train-1", "train-2", project="vision", client=client).view()
    assert "train-2" in view.fallback()["text/plain"]
    assert "<td" in view.fallback()["text/html"]
    assert [run["label"] for run in view.runs] == ["train-1", "train-2"]


def test_what_is_no_run_is_refused(client: Client) -> None:
    with pytest.raises(ApiError, match="nothing"):
        carrel.compare("nothing", project="vision", client=client)
    with pytest.raises(BadSetting, match="Which runs"):
        carrel.compare(client=client)
    for wrong in ("a/b/c", "", "/a", "a/"):
        with pytest.raises(BadSetting, match="write NAME or PROJECT/NAME"):
            split(wrong, "vision")
