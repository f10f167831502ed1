"""Notebooks as jobs, by the clock, and TensorBoard from the shell."""

import json
from pathlib import Path

import pytest

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run

CELL = {"cell_type": "code", "metadata": {}, "source": "1", "outputs": [{"x": 1}],
        "execution_count": 3}  # fmt: skip


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    path = tmp_path / "My report.ipynb"
    content = {"cells": [CELL], "metadata": {"widgets": {}}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))
    return path


def test_a_notebook_is_sent_along_without_its_outputs(
    run: Run, fake: FakeScheduler, notebook: Path
) -> None:
    done = run("run-notebook", str(notebook), "--param", "rate=0.5", "--param", "name=x", "-g", "1")
    assert done.code == 0, done.err
    assert "my-report-1 submitted" in done.out
    spec = fake.workload("vision", "my-report-1")["spec"]
    assert spec["kind"] == "notebook"
    assert spec["notebook"]["path"] == "My report.ipynb"
    assert spec["notebook"]["parameters"] == {"rate": 0.5, "name": "x"}
    assert spec["gpus"] == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "There is no notebook"), ("{}", "is no notebook"),
     ('{"cells": [], "nbformat": 3}', "has notebook format 3")],
)  # fmt: skip
def test_what_is_no_notebook_is_said_at_once(
    run: Run, tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "a.ipynb"
    if content is not None:
        path.write_text(content)
    done = run("run-notebook", str(path))
    assert done.code == 2
    assert words in done.err
    assert str(path) in done.err


def test_a_schedule_in_a_workspace_names_the_notebook_by_its_path(
    run: Run, fake: FakeScheduler, notebook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t")
    words = ("schedule", "nightly", "30 2 * * *", str(notebook), "--time-zone", "Europe/Berlin")
    done = run(*words, "--keep", "3")
    assert done.code == 0, done.err
    spec = fake.workload("vision", "nightly")["spec"]
    assert spec["notebook"]["path"] == str(notebook)
    assert spec["schedule"]["cron"] == "30 2 * * *"
    assert spec["schedule"]["time_zone"] == "Europe/Berlin"
    assert spec["schedule"]["keep"] == 3
    assert not spec.get("files")


def test_a_tensorboard_is_started_once_and_then_found(run: Run, fake: FakeScheduler) -> None:
    fake.submit("vision", "a")
    fake.submit("vision", "b")
    first = run("tensorboard", "a", "b")
    assert first.code == 0, first.err
    assert "/services/gateway/vision/tensorboard-1/" in first.out
    assert "tensorboard-1/" in run("tensorboard", "b", "a").out
    assert "tensorboard-2/" in run("tensorboard", "a").out
    fake.status("vision", "tensorboard-2", phase="stopped")
    assert "tensorboard-2/" in run("tensorboard", "a").out
    assert fake.workload("vision", "tensorboard-2")["status"]["phase"] == "pending"
    fake.submit("vision", "theirs", kind="tensorboard", user="bob", tensorboard={"jobs": ["b"]})
    fake.status("vision", "theirs", phase="stopped")
    assert "tensorboard-3/" in run("tensorboard", "b").out
