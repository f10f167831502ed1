"""Magics for every kind of work."""

import json
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

from carrel.notebook.cell import CannotSend, capture
from carrel.notebook.job import Job
from carrel.testing import FakeScheduler

EMPTY = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
LR = {"type": "float", "low": 1e-5, "high": 0.1, "log": True}


def test_workers_make_it_distributed(ipython: Any, scheduler: FakeScheduler) -> None:
    ipython.run_cell_magic("train", "gang --workers 2 --max-workers 4 -g 1", "1")
    spec = scheduler.workload("vision", "gang")["spec"]
    assert (spec["kind"], spec["tasks"], spec["elastic"]) == ("distributed", 4, {"min_tasks": 2})
    ipython.run_cell_magic("train", "alone --elastic", "1")
    spec = scheduler.workload("vision", "alone")["spec"]
    assert (spec["kind"], spec["elastic"]) == ("training", {"gpus_of_task": True})


def test_sweep_s_parameters_are_variables_of_the_cell(
    ipython: Any, scheduler: FakeScheduler
) -> None:
    ipython.user_ns["lr"] = 1.0
    job = ipython.run_cell_magic(
        "sweep", "--param lr=log:1e-5..1e-1 --completions 12 --parallelism 3", "lr * 2"
    )
    assert job.name == "sweep-1"
    spec = scheduler.workload("vision", "sweep-1")["spec"]
    assert spec["kind"] == "experiment"
    assert spec["experiment"] == {"completions": 12, "parallelism": 3, "parameters": {"lr": LR}}
    assert spec["command"][-1] == "parameters"
    ipython.run_cell_magic("sweep", "by-hand", "print(trial.parameters)")
    assert scheduler.workload("vision", "by-hand")["spec"]["command"][-1] == "trial"


def test_serve_takes_a_function_or_a_server(ipython: Any, scheduler: FakeScheduler) -> None:
    def command(name: str) -> list[str]:
        found: list[str] = scheduler.workload("vision", name)["spec"]["command"]
        return found[3:]

    ipython.run_cell_magic("serve", "a --max-replicas 3", "def predict(x):\n    return x")
    spec = scheduler.workload("vision", "a")["spec"]
    assert (spec["kind"], spec["inference"]) == ("inference", {"max_replicas": 3})
    assert command("a") == ["serve=predict"]
    ipython.run_cell_magic("serve", "b --function digit", "digit = abs")
    assert command("b") == ["serve=digit"]
    ipython.run_cell_magic("serve", "c --port 0", "import app\napp.main()")
    assert command("c") == []
    with pytest.raises(UsageError, match="defines no function `predict`"):
        ipython.run_cell_magic("serve", "d", "1")
    with pytest.raises(UsageError, match="defines no function `other`"):
        ipython.run_cell_magic("serve", "d --function other --port 0", "1")


def test_serve_takes_a_model_of_the_registry(ipython: Any, scheduler: FakeScheduler) -> None:
    cell = "def predict(x):\n    return x"
    ipython.run_cell_magic("serve", "model:digits@2", cell)
    assert scheduler.workload("vision", "digits")["spec"]["model"] == "digits@2"
    ipython.run_cell_magic("serve", "model:digits --name latest", cell)
    assert scheduler.workload("vision", "latest")["spec"]["model"] == "digits"
    with pytest.raises(UsageError, match="the model is there twice"):
        ipython.run_cell_magic("serve", "model:digits --model other", cell)


def test_notebooks_run_as_jobs(ipython: Any, scheduler: FakeScheduler, tmp_path: Path) -> None:
    (tmp_path / "report.ipynb").write_text(EMPTY)
    job = ipython.run_line_magic("run_as_job", "report.ipynb --param year=2026 --to kept -g 1")
    assert ipython.user_ns["kept"] is job
    assert isinstance(job, Job)
    spec = scheduler.workload("vision", job.name)["spec"]
    assert (spec["kind"], spec["gpus"]) == ("notebook", 1.0)
    assert spec["notebook"]["parameters"] == {"year": 2026}
    told = repr(ipython.run_line_magic("run_as_job", "report.ipynb --dry-run"))
    assert told.startswith("It would start now.")
    night = "report.ipynb --schedule '0 3 * * *' --name night --time-zone Europe/Berlin"
    ipython.run_line_magic("run_as_job", night)
    spec = scheduler.workload("vision", "night")["spec"]
    assert (spec["kind"], spec["schedule"]["time_zone"]) == ("schedule", "Europe/Berlin")


def test_the_open_notebook_is_the_usual_one(
    ipython: Any, scheduler: FakeScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    with pytest.raises(UsageError, match="which notebook"):
        ipython.run_line_magic("run_as_job", "")
    (tmp_path / "open.ipynb").write_text(EMPTY)
    monkeypatch.setenv("JPY_SESSION_NAME", "deep/down/open.ipynb")
    assert ipython.run_line_magic("run_as_job", "").name == "open-1"


def test_tensorboard(ipython: Any, scheduler: FakeScheduler) -> None:
    with pytest.raises(UsageError, match="of which jobs"):
        ipython.run_line_magic("tensorboard", "")
    for name in ("a", "b"):
        ipython.run_cell_magic("train", name, "1")
    job = ipython.run_line_magic("tensorboard", "a b")
    assert scheduler.workload("vision", job.name)["spec"]["tensorboard"] == {"jobs": ["a", "b"]}


def test_logs_of_workers_are_merged(
    ipython: Any, scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    ipython.run_cell_magic("train", "gang --workers 2", "1")
    scheduler.log("vision", "gang", "hello")
    ipython.run_line_magic("logs", "gang")
    assert capsys.readouterr().out == "gang-0 | hello\ngang-1 | hello\n"
    ipython.run_line_magic("logs", "gang --task 1")
    assert capsys.readouterr().out == "hello\n"
    with pytest.raises(UsageError, match="--tail 'x' is no whole number"):
        ipython.run_line_magic("logs", "gang --tail x")


MISTAKES = (
    (
        "train",
        "--param a=0.0..1.0",
        "no option --param here: it is for an experiment or a notebook",
    ),
    ("sweep", "--param lr=log:0..1", "'lr=log:0..1' is no search space: a logarithmic range"),
    ("sweep", "--parallelism 0", "--parallelism '0' is too small; write 1 or more."),
    ("sweep", "--sampler best", "write tpe, random, grid or cmaes"),
    ("serve", "--min-replicas 3 --max-replicas 2", "--min-replicas 3 is more than"),
    ("train", "--workers 2 --min-workers 3", "raise --max-workers"),
    ("train", "--workers 2 --tasks 3", "--tasks is for a training, but --workers asks for"),
    ("train", "a b", "'b' is one word too many"),
)


def test_mistakes_are_one_line(ipython: Any) -> None:
    for magic, line, told in MISTAKES:
        with pytest.raises(UsageError) as refused:
            ipython.run_cell_magic(magic, line, "def predict(): ...")
        assert told in str(refused.value)


@pytest.mark.parametrize(
    ("cell", "inputs", "code"),
    [
        ("", [], "empty_cell"),
        ("x x", [], "not_python"),
        ("x", ["x"], "not_picklable"),
        (f"'{'x' * 2**20}'", [], "too_large"),
    ],
)
def test_what_cannot_be_sent_has_a_code(cell: str, inputs: list[str], code: str) -> None:
    import threading

    namespace = {"x": threading.Lock()}
    with pytest.raises(CannotSend) as refused:
        capture(cell, inputs, namespace, given={"x"})
    assert refused.value.code == code
