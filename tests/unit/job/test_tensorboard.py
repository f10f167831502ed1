"""The program of a TensorBoard: what it is asked for, laid out by the names of jobs."""

import json
import sys
from pathlib import Path

import pytest

from carrel.job import tensorboard
from carrel.job.tensorboard import NothingToShow, prepare


def ordered(tmp_path: Path, **more: str) -> dict[str, str]:
    (tmp_path / ".carrel").mkdir()
    order = {"jobs": ["train-1", "sweep"], "events": ["u1", "u2"], "grace_seconds": 30.0}
    (tmp_path / ".carrel" / "tensorboard.json").write_text(json.dumps(order))
    events = str(tmp_path / "events" / "board")
    return {
        "CARREL_TASK_DIR": str(tmp_path), "CARREL_EVENTS_DIR": events, "PORT": "6006", **more
    }  # fmt: skip


def test_runs_have_the_names_of_jobs(tmp_path: Path) -> None:
    env = ordered(tmp_path, CARREL_PREFIX="/services/gateway/vision/board")
    prepare(env)
    program = prepare(env)
    assert program[:4] == [sys.executable, "-I", "-c", tensorboard.PROGRAM]
    options = dict(zip(program[4::2], program[5::2], strict=True))
    assert options["--port"] == "6006"
    assert options["--host"] == "127.0.0.1"
    assert options["--path_prefix"] == "/services/gateway/vision/board"
    runs = Path(options["--logdir"])
    assert {one.name: one.readlink() for one in runs.iterdir()} == {
        "train-1": tmp_path / "events" / "u1",
        "sweep": tmp_path / "events" / "u2",
    }


def test_without_an_order_or_a_port_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NothingToShow, match="does not say what to show"):
        prepare({"CARREL_TASK_DIR": str(tmp_path)})
    with pytest.raises(NothingToShow, match="PORT"):
        prepare(ordered(tmp_path, PORT=""))
    monkeypatch.setenv("CARREL_TASK_DIR", str(tmp_path / "none"))
    assert tensorboard.main() == 2
    assert "carrel: " in capsys.readouterr().err
