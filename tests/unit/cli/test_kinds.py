"""Every kind of work in the list and in its description, byte for byte."""

import pytest

from carrel.testing import FakeScheduler
from unit.cli.conftest import NOW, Run, golden

LR = {"type": "float", "low": 1e-5, "high": 0.1, "log": True}
OPTIMIZER = {"type": "categorical", "choices": ["adam", "sgd"]}


@pytest.fixture
def kinds(
    fake: FakeScheduler, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> FakeScheduler:
    """One of each kind, some with parts."""
    monkeypatch.setenv("CARREL_PUBLIC_URL", "https://hub.example/")
    clock[0] = NOW - 600
    _gang(fake)
    _experiment(fake)
    _endpoint(fake)
    notebook = {"path": "report.ipynb", "output": "out.ipynb", "parameters": {"year": 2026}}
    fake.submit("vision", "report", kind="notebook", notebook=notebook)
    fake.run("vision", "report")
    done = {"cell": 3, "cells": 9, "output": "/home/ada/out.ipynb", "resumed_from": 2}
    fake.status("vision", "report", notebook=done)
    fake.submit("vision", "night", kind="schedule", notebook=notebook,
                schedule={"cron": "0 3 * * *", "time_zone": "Europe/Berlin"})  # fmt: skip
    fake.status("vision", "night", phase="running", schedule={"next_at": NOW + 3600, "missed": 1})
    fake.submit("vision", "curves", kind="tensorboard", tensorboard={"jobs": ["gang"]},
                routes=[{"access": "project"}])  # fmt: skip
    fake.run("vision", "curves")
    clock[0] = NOW
    return fake


def _gang(fake: FakeScheduler) -> None:
    fake.submit("vision", "gang", kind="distributed", tasks=3, gpus=1, command=["torchrun", "t.py"],
                elastic={"min_tasks": 1}, rendezvous={"launcher": "each"})  # fmt: skip
    fake.run("vision", "gang")
    tasks = [{"index": n, "node": "node-1", "devices": [n], "started_at": NOW - 60} for n in (0, 1)]
    fake.status("vision", "gang", tasks=tasks)


def _experiment(fake: FakeScheduler) -> None:
    search = {"parameters": {"lr": LR, "opt": OPTIMIZER}, "completions": 12, "parallelism": 3}
    fake.submit("vision", "sweep", kind="experiment", gpus=0.5, experiment=search, command=["t"])
    best = {"best_trial": 0, "best_value": 0.125, "best_parameters": {"lr": 0.01, "opt": "adam"}}
    counts = {"running": 2, "completed": 1, "failed": 1}
    fake.status("vision", "sweep", phase="running", experiment=counts | best)
    for number, lr in enumerate((0.01, 0.0001)):
        trial = {"number": number, "parameters": {"lr": lr, "opt": "adam"}}
        fake.submit("vision", f"sweep-{number}", kind="trial", gpus=0.5, trial=trial, owner="sweep",
                    part=number, labels={"carrel.dev/owner": "sweep"})  # fmt: skip
    fake.run("vision", "sweep-1")
    fake.report("vision", "sweep-1", step=1, metrics={"objective": 0.5})


def _endpoint(fake: FakeScheduler) -> None:
    routes = [{"port": 8080, "access": "everyone"}, {"name": "ui", "port": 0}]
    fake.submit("vision", "digits", kind="inference", gpus=0.25, routes=routes, command=["serve"],
                inference={"min_replicas": 1, "max_replicas": 4})  # fmt: skip
    now = {"wanted": 3, "ready": 2, "starting": 1, "in_flight": 5, "requests_per_second": 12.5}
    now |= {"latency_p50_seconds": 0.0124, "latency_p99_seconds": 0.25}
    fake.status("vision", "digits", phase="running", endpoint=now | {"last_request_at": NOW - 2})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list_jobs_kinds", ["list", "jobs"]),
        ("list_jobs_all", ["list", "jobs", "--all", "--no-headers"]),
        ("describe_distributed", ["describe", "job", "gang"]),
        ("describe_experiment", ["describe", "job", "sweep"]),
        ("describe_inference", ["describe", "job", "digits"]),
        ("describe_notebook", ["describe", "job", "report"]),
        ("describe_schedule", ["describe", "job", "night"]),
        ("describe_tensorboard", ["describe", "job", "curves"]),
    ],
)
def test_what_is_shown(run: Run, kinds: FakeScheduler, name: str, words: list[str]) -> None:
    done = run(*words)
    assert (done.code, done.err) == (0, "")
    golden(name, done.out)


def test_a_crashed_endpoint_has_failed(run: Run, kinds: FakeScheduler) -> None:
    kinds.submit("vision", "broken", kind="inference", inference={"max_replicas": 1})
    kinds.stop("vision", "broken", "NeverReady", "3 replicas in a row failed.")
    line = next(one for one in run("list", "jobs").out.splitlines() if one.startswith("broken"))
    assert line.split()[1] == "Failed"


def test_a_dry_run_of_every_kind(run: Run) -> None:
    for words in (["--workers", "2"], ["--experiment"], ["--inference"]):
        done = run("submit", *words, "--dry-run", "--", "true")
        assert done.out.startswith("Nothing was submitted. It would start now.\nName: ")
    refused = run("logs", "x", "--index", "some")
    assert refused.err == "--index 'some' is no task; write 0, 1, ... or all.\n"
