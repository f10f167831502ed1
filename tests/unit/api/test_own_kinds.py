"""Notebooks, schedules and TensorBoards as they are asked for: filled in, or refused."""

import json
import sys
from typing import Any

import pytest

from carrel_scheduler.api import convert
from carrel_scheduler.api.http.requests import read_body
from carrel_scheduler.api.models.validators import read
from carrel_scheduler.api.models.workloads import ReportIn
from carrel_scheduler.api.principals.identity import USE, Principal
from carrel_scheduler.api.problems import Problem
from carrel_schema.sections import NotebookStatus, Route
from carrel_schema.wire import WorkloadCreate

ADA = Principal("ada", "user", frozenset(), frozenset({USE}))
NOTEBOOK = {"path": "/a.ipynb"}
CLOCK = {"cron": "30 2 * * *"}
BOARD = {"jobs": ["train-1"]}


def create(**fields: Any) -> Any:
    body = read(WorkloadCreate, {"name": "a", "project": "p", **fields})
    return convert.to_workload(body, ADA, name="a", uid="u", now=5.0).spec


def refusal(**fields: Any) -> tuple[str, str, str]:
    """Field, code and what would be right."""
    body = json.dumps({"name": "a", "project": "p", **fields}).encode()
    with pytest.raises(Problem) as refused:
        read_body(WorkloadCreate, body)
    error = refused.value.errors[0]
    return error.field, error.code, error.expected


def test_a_notebook_comes_with_its_program_and_is_not_tried_again() -> None:
    spec = create(kind="notebook", notebook=NOTEBOOK)
    assert spec.command == [sys.executable, "-m", "carrel.job.notebook"]
    assert (spec.backoff_limit, spec.preemptible) == (0, True)
    own = create(kind="notebook", notebook=NOTEBOOK, command=["python3.12"], backoff_limit=2)
    assert (own.command, own.backoff_limit) == (["python3.12"], 2)


def test_a_schedule_of_notebooks_has_the_program_of_its_runs() -> None:
    spec = create(kind="schedule", schedule=CLOCK, notebook=NOTEBOOK)
    assert spec.command[-1] == "carrel.job.notebook"
    assert spec.backoff_limit == 0
    training = create(kind="schedule", schedule={**CLOCK, "runs": "training"}, command=["x"])
    assert (training.command, training.backoff_limit) == (["x"], 6)


def test_a_tensorboard_is_small_guaranteed_and_imports_nothing_of_its_user() -> None:
    spec = create(kind="tensorboard", tensorboard=BOARD, preemptible=False)
    assert spec.command == [sys.executable, "-I", "-m", "carrel.job.tensorboard"]
    assert (spec.resources.cpu_milli, spec.resources.memory_bytes) == (500, 2**30)
    assert spec.routes == [Route(access="project", keep_prefix=True, idle_seconds=1800.0)]
    assert create(kind="tensorboard", tensorboard=BOARD).preemptible is False


@pytest.mark.parametrize(
    ("fields", "field", "code", "words"),
    [
        ({"schedule": {"cron": "61 * * * *"}}, "schedule.cron", "bad_cron", "a minute"),
        ({"schedule": {"cron": "daily"}}, "schedule.cron", "bad_cron", "five fields"),
        ({"schedule": {**CLOCK, "time_zone": "berlin"}}, "schedule.time_zone", "bad_time_zone",
         "`Europe/Berlin`"),
        ({"schedule": CLOCK}, "body", "section_required", "`notebook`"),
        ({"schedule": {**CLOCK, "runs": "training"}}, "body", "command_required", "`command`"),
        ({"schedule": {**CLOCK, "runs": "training"}, "command": ["x"], "notebook": NOTEBOOK},
         "body", "section_of_another_kind", "no `notebook`"),
    ],
)  # fmt: skip
def test_schedules_that_say_nothing_right(
    fields: dict[str, Any], field: str, code: str, words: str
) -> None:
    found = refusal(kind="schedule", **fields)
    assert found[:2] == (field, code)
    assert words in found[2]


@pytest.mark.parametrize(
    "foreign",
    [
        {"command": ["x"]},
        {"environment": {"LD_PRELOAD": "/x.so"}},
        {"secret_environment": {"PYTHONPATH": "/x"}},
        {"files": {"tensorboard.py": "x"}},
        {"image": "registry.invalid/x"},
        {"routes": [{"port": 0}, {"name": "evil", "port": 23456, "access": "everyone"}]},
        {"volumes": [{"source": "/home/ada", "destination": "runs"}]},
        {"working_dir": "/home/ada"},
    ],
)
def test_a_tensorboard_takes_no_program_of_others(foreign: dict[str, Any]) -> None:
    found = refusal(kind="tensorboard", tensorboard=BOARD, **foreign)
    assert found[1] == "own_program"
    assert f"`{next(iter(foreign))}`" in found[2]


def test_a_notebooks_report_is_its_status() -> None:
    said: dict[str, Any] = {"cell": 2, "cells": 5, "output": "/o.ipynb", "resumed_from": 2}
    report = convert.to_report(read(ReportIn, {"notebook": said}), 7.0)
    assert report.notebook == NotebookStatus(**said)
    assert report.at == 7.0
