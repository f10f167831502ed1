"""Runs the command against a fake scheduler at a fixed time and compares with golden files.

``CARREL_WRITE_GOLDEN=1`` writes what was printed instead of comparing; look at the difference then.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from carrel.cli import main
from carrel.cli.commands import cluster, ending, jobs
from carrel.testing import FakeScheduler

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_790_000_000.0
SPEECH_JOB: dict[str, Any] = {"gpus": 1, "user": "bob", "command": ["python", "asr.py"]}


@dataclass(frozen=True)
class Done:
    """The result of a command line."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [NOW]
    for module in (cluster, ending, jobs):
        monkeypatch.setattr(module, "now", lambda: now[0])
    return now


@pytest.fixture
def fake(clock: list[float]) -> Iterator[FakeScheduler]:
    with FakeScheduler({"ada": ["vision"], "bob": ["speech"]}, now=lambda: clock[0]) as fake:
        yield fake


@pytest.fixture
def run(
    fake: FakeScheduler,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    for name in ("CARREL_PROJECT", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARREL_CONFIG_FILE", str(tmp_path / "config.json"))
    monkeypatch.setenv("CARREL_URL", fake.url)
    monkeypatch.setenv("CARREL_TOKEN", fake.token("ada"))
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str, user: str = "") -> Done:
        if user:
            monkeypatch.setenv("CARREL_TOKEN", fake.token(user))
        capsys.readouterr()
        code = main.run(words)
        sys.stdout.flush()
        told = capsys.readouterr()
        return Done(code, told.out.replace(fake.url, "URL"), told.err.replace(fake.url, "URL"))

    return run


def golden(name: str, text: str) -> None:
    """The text is byte for byte that of the file."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("CARREL_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), f"{file.name} says something else"


@pytest.fixture
def story(fake: FakeScheduler, clock: list[float]) -> FakeScheduler:
    """Jobs in every state, two projects, one node."""
    fake.project("vision", quota={"gpus": 2}, use={"gpus_allocated": 3, "gpus_borrowed": 1})
    clock[0] = NOW - 90_000
    fake.submit("vision", "train-7", gpus=1, command=["python", "train.py"], image="trainer:1")
    fake.run("vision", "train-7", devices=[0])
    fake.submit("vision", "frac", gpus=0.3, command=["python", "small.py"])
    fake.run("vision", "frac", devices=[1])
    clock[0] = NOW - 3900
    fake.submit("vision", "lab-ada", kind="workspace", gpus=0.5, command=["lab"])
    fake.submit("vision", "done", gpus=0.1, command=["true"])
    fake.run("vision", "done")
    fake.finish("vision", "done")
    fake.submit("vision", "late", gpus=0, kind="workspace", command=["lab"])
    fake.stop("vision", "late", "TimedOut", "Stopped: its time limit of 8 h was reached.")
    clock[0] = NOW - 45
    fake.submit("vision", "train-8", gpus=2, command=["python", "train.py"])
    fake.run("vision", "train-8", devices=[2, 3])
    fake.report("vision", "train-8", step=1200, total=4000, rate=8.0, metrics={"loss": 0.31})
    fake.report("vision", "train-8", checkpoint_step=1200)
    clock[0] = NOW - 12
    fake.preempt("vision", "train-8", for_project="speech", lost=100.0)
    fake.submit("speech", "asr", **SPEECH_JOB)
    clock[0] = NOW
    return fake
