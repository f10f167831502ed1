"""The demo: its training ends with the same numbers however often it was disturbed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import carrel.notebook.demo
from carrel.notebook.cell import capture

NOTEBOOK = Path(carrel.notebook.demo.__file__).with_name("carrel-demo.ipynb")
EPOCHS = 12


def command(*more: str) -> list[str]:
    module = ["-m", "carrel.notebook.demo.train", "--seed=3", f"--epochs={EPOCHS}"]
    return [sys.executable, *module, *more]


def environment(checkpoints: Path) -> dict[str, str]:
    own = {"CARREL_CHECKPOINT_DIR": str(checkpoints), "CARREL_CHECKPOINT_EVERY": "0"}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CARREL_")}
    return kept | own


def disturbed(checkpoints: Path, blow: signal.Signals) -> None:
    """Run it slowly and end it in the middle of its work."""
    process = subprocess.Popen(
        command("--seconds-per-epoch=0.05"), env=environment(checkpoints), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout as lines:
        for _ in range(4):
            lines.readline()
        process.send_signal(blow)
        lines.read()
    assert process.wait(120) != 0


def to_the_end(checkpoints: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(), env=environment(checkpoints), capture_output=True, text=True, check=True
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return to_the_end(tmp_path_factory.mktemp("undisturbed")).stdout.splitlines()


@pytest.mark.parametrize("blow", [signal.SIGTERM, signal.SIGKILL])
def test_disturbed_training_ends_like_an_undisturbed_one(
    tmp_path: Path, undisturbed: list[str], blow: signal.Signals
) -> None:
    disturbed(tmp_path, blow)
    resumed = to_the_end(tmp_path)
    assert "going on from the checkpoint of step" in resumed.stderr
    lines = resumed.stdout.splitlines()
    assert 1 < len(lines) < EPOCHS
    assert lines == undisturbed[-len(lines) :]
    assert float(lines[-1].removeprefix("final accuracy ")) > 0.9


def test_cell_of_the_notebook_is_the_training_of_the_module(tmp_path: Path) -> None:
    cells = ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"]]
    magic, _, source = next(cell for cell in cells if cell.startswith("%%train")).partition("\n")
    assert "--in epochs,seconds_per_epoch" in magic
    captured = capture(
        source, ["epochs", "seconds_per_epoch"], {"epochs": 4, "seconds_per_epoch": 0.0}
    )
    for name, content in captured.files.items():
        (tmp_path / name).write_text(content)
    began = time.monotonic()
    by_cell = subprocess.run(
        [sys.executable, "job.py", str(tmp_path)],
        cwd=tmp_path,
        env=environment(tmp_path / "c"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert time.monotonic() - began < 60
    by_module = subprocess.run(
        [sys.executable, "-m", "carrel.notebook.demo.train", "--seed=1", "--epochs=4"],
        env=environment(tmp_path / "d"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert by_cell.stdout == by_module.stdout
