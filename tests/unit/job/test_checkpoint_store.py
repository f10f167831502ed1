"""Checkpoints on disk: whole or not there, the latest whole one wins."""

import functools
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carrel.job import checkpoint, checkpoint_store
from carrel.job.checkpoint_store import CheckpointStore, Damaged

Lines = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"step": 3, "loss": [0.1]}, checkpoint_store.PICKLE),
        (np.arange(6).reshape(2, 3), checkpoint_store.ARRAY),
        ({"weights": np.ones(3), "bias": np.zeros(1)}, checkpoint_store.ARRAYS),
        ({"not a name": np.ones(1)}, checkpoint_store.PICKLE),
        (np.array([object], dtype=object), checkpoint_store.PICKLE),
        ({}, checkpoint_store.PICKLE),
    ],
)
def test_a_value_comes_back_as_it_was(tmp_path: Path, value: Any, kind: str) -> None:
    assert checkpoint_store.kind_of(value) == kind
    checkpoint.save(value, step=1, directory=tmp_path)
    back = checkpoint.restore(directory=tmp_path)
    assert type(back) is type(value)
    np.testing.assert_equal(back, value)


def test_a_value_is_saved_while_another_thread_imports_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as begun:
        begun.setitem(sys.modules, "numpy", types.ModuleType("numpy"))
        checkpoint.save({"step": 1}, step=1, directory=tmp_path)
    assert checkpoint.restore(directory=tmp_path) == {"step": 1}


def test_a_function_writes_a_file_and_its_path_comes_back(tmp_path: Path) -> None:
    checkpoint.save(lambda path: path.write_text("weights"), step=1, directory=tmp_path)
    assert checkpoint.restore(directory=tmp_path).read_text() == "weights"


def test_a_function_may_choose_its_own_ending_or_write_a_folder(tmp_path: Path) -> None:
    checkpoint.save(functools.partial(np.savez, x=np.ones(2)), step=1, directory=tmp_path / "a")
    assert checkpoint.restore(directory=tmp_path / "a").name == "data.npz"

    def folder(path: Path) -> None:
        path.mkdir()
        (path / "shard-1").write_text("one")

    checkpoint.save(folder, step=1, directory=tmp_path / "b")
    assert (checkpoint.restore(directory=tmp_path / "b") / "shard-1").read_text() == "one"


def test_a_function_that_writes_nothing_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wrote nothing"):
        checkpoint.save(lambda path: None, step=1, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


class CallableModel:
    """Models of the usual libraries are callable, and yet are values."""

    def __call__(self) -> None:
        raise AssertionError("a model is not called to save it")


def test_a_callable_model_is_a_value(tmp_path: Path) -> None:
    checkpoint.save(CallableModel(), step=1, directory=tmp_path)
    assert isinstance(checkpoint.restore(directory=tmp_path), CallableModel)


def test_the_last_three_stay_and_steps_count_on(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        checkpoint.save(step, step=step, directory=tmp_path)
    checkpoint.save("next", directory=tmp_path)
    steps = [step for step, _, _ in CheckpointStore(tmp_path).names()]
    assert steps == [30, 40, 41]
    newest = checkpoint.latest(directory=tmp_path)
    assert newest is not None
    assert newest.step == 41


def test_saving_a_step_again_keeps_the_former_until_the_new_one_stands(tmp_path: Path) -> None:
    checkpoint.save("first", step=5, directory=tmp_path)
    checkpoint.save("second", step=5, directory=tmp_path)
    assert len(CheckpointStore(tmp_path).names()) == 2
    assert checkpoint.restore(directory=tmp_path) == "second"


@pytest.mark.parametrize("harm", ["cut", "flip", "no manifest", "torn manifest", "lost file"])
def test_a_damaged_latest_falls_back_and_says_so(tmp_path: Path, harm: str, capsys: Lines) -> None:
    checkpoint.save({"step": 100}, step=100, directory=tmp_path)
    latest = checkpoint.save({"step": 120}, step=120, directory=tmp_path)
    data, manifest = latest / "data.pkl", latest / checkpoint_store.MANIFEST
    content = data.read_bytes()
    match harm:
        case "cut":
            data.write_bytes(content[:-3])
        case "flip":
            data.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        case "no manifest":
            manifest.unlink()
        case "torn manifest":
            manifest.write_text(manifest.read_text()[:-5])
        case "lost file":
            data.unlink()
    assert checkpoint.restore(directory=tmp_path) == {"step": 100}
    told = capsys.readouterr().err
    assert "the checkpoint of step 120 is damaged" in told
    assert "going on from the checkpoint of step 100" in told


def test_content_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    folder = checkpoint.save("x", step=1, directory=tmp_path)
    manifest = (folder / checkpoint_store.MANIFEST).read_text().replace('"pickle"', '"arrays"')
    (folder / checkpoint_store.MANIFEST).write_text(manifest)
    with pytest.raises(Damaged, match="cannot be read"):
        CheckpointStore(tmp_path).load(folder)


def test_nothing_saved_gives_the_default(tmp_path: Path) -> None:
    assert checkpoint.restore(default={"step": 0}, directory=tmp_path / "none") == {"step": 0}
    assert checkpoint.latest(directory=tmp_path / "none") is None


def test_a_crash_before_the_rename_leaves_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save("whole", step=1, directory=tmp_path)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", crash)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save("half", step=2, directory=tmp_path)
    monkeypatch.undo()
    assert checkpoint.restore(directory=tmp_path) == "whole"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_run_left_unfinished_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"{checkpoint_store.UNFINISHED}abc").mkdir(parents=True)
    checkpoint.save("x", step=1, directory=tmp_path)
    checkpoint.restore(directory=tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-000000000001.0"]


def test_everything_is_forced_to_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(descriptor: int) -> None:
        order.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real_fsync(descriptor)

    def rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return real_rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    checkpoint.save("x", step=1, directory=tmp_path)
    cut = order.index("rename")
    assert {"data.pkl", "manifest.json"} <= set(order[:cut])
    assert any(name.startswith(checkpoint_store.UNFINISHED) for name in order[:cut])
    assert order[cut + 1 :] == [tmp_path.name]


@pytest.mark.parametrize(("options", "words"), [({"keep": 0}, "keep is 0"), ({"step": -1}, "-1")])
def test_absurd_arguments_are_refused(tmp_path: Path, options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checkpoint.save("x", directory=tmp_path, **options)


def test_a_job_begins_with_the_checkpoint_of_another_until_it_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint.save({"step": 7}, step=7, directory=tmp_path / "before")
    monkeypatch.setenv("CARREL_CHECKPOINT_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("CARREL_CONTINUE_FROM", str(tmp_path / "before"))
    assert checkpoint.restore() == {"step": 7}
    assert "beginning with the other job's checkpoint of step 7." in capsys.readouterr().err
    checkpoint.save({"step": 8})
    assert checkpoint.restore() == {"step": 8}
    assert checkpoint.restore(directory=tmp_path / "elsewhere") is None
    monkeypatch.setenv("POD_INDEX", "1")
    assert checkpoint.restore() is None
