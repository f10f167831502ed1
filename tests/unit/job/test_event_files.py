"""Event files of reports: what TensorBoard itself reads of them."""

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import api_pb2, metadata

from carrel.job import event_files, report, task
from carrel.job.event_files import EventFiles, open_event_files
from carrel.job.task import Task


def written(folder: Path) -> list[tuple[str, int, float]]:
    """Tag, step and value of all numbers in the folder's one file."""
    [file] = folder.glob("events.out.tfevents.*")
    found = []
    for event in LegacyEventFileLoader(str(file)).Load():
        found += [
            (value.tag, event.step, value.simple_value)
            for value in event.summary.value
            if value.HasField("simple_value")
        ]
    return found


def test_reports_are_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARREL_EVENTS_DIR", str(tmp_path / "events"))
    report.report(step=3, loss=0.5, accuracy=float("nan"))
    report.report(loss=0.25)
    report.report(step=7, total=10)
    report.flush()
    assert written(tmp_path / "events") == [("loss", 3, 0.5), ("loss", 4, 0.25)]
    assert "tensorflow" not in sys.modules


def test_nothing_is_written_where_nobody_asks(tmp_path: Path) -> None:
    assert open_event_files(Task(), {}) is None
    assert open_event_files(Task(), {"CARREL_EVENTS_DIR": ""}) is None
    report.report(step=1, loss=1.0)
    report.flush()
    assert list(tmp_path.iterdir()) == []


def test_later_tasks_have_curves_of_their_own(tmp_path: Path) -> None:
    files = open_event_files(Task(index=2), {"CARREL_EVENTS_DIR": str(tmp_path)})
    assert files is not None
    files.put(1.0, 1, {"loss": 1.0})
    files.flush(30.0)
    assert written(tmp_path / "task-2") == [("loss", 1, 1.0)]


def trial_in(folder: Path) -> EventFiles:
    """Event files of a trial that has reported once."""
    parameters = {"rate": 0.1, "kind": "adam", "deep": [1, None]}
    files = EventFiles(folder, parameters, "sweep-3")
    files.put(1.0, 1, {"loss": 1.0})
    files.flush(30.0)
    return files


def ends(folder: Path) -> list[tuple[int, float]]:
    """Status and time of all ends that are written there."""
    found = []
    for file in folder.glob("events.out.tfevents.*"):
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if value.tag == metadata.SESSION_END_INFO_TAG:
                    content = value.metadata.plugin_data.content
                    end = metadata.parse_session_end_info_plugin_data(content)
                    found.append((end.status, end.end_time_secs))
    return found


def test_the_last_end_of_a_trial_stands_until_it_is_tried_again(tmp_path: Path) -> None:
    first = trial_in(tmp_path)
    assert ends(tmp_path) == []
    first.end(succeeded=True, at=2.0)
    first.end(succeeded=False, at=3.0)
    assert ends(tmp_path) == [(api_pb2.STATUS_FAILURE, 3.0)]
    again = trial_in(tmp_path)
    assert ends(tmp_path) == []
    again.end(succeeded=True, at=4.0)
    assert ends(tmp_path) == [(api_pb2.STATUS_SUCCESS, 4.0)]


def test_only_a_trial_that_reported_has_an_end(tmp_path: Path) -> None:
    silent = EventFiles(tmp_path / "silent", {"rate": 0.1}, "sweep-3")
    silent.end(succeeded=True, at=2.0)
    other = EventFiles(tmp_path / "other")
    other.put(1.0, 1, {"loss": 1.0})
    other.flush(30.0)
    other.end(succeeded=True, at=2.0)
    assert [*ends(tmp_path / "silent"), *ends(tmp_path / "other")] == []
    assert "tensorflow" not in sys.modules


def test_a_trial_says_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "process_exit", task.ProcessExit())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(sys, "exit", sys.exit)
    env = {
        "CARREL_EVENTS_DIR": str(tmp_path),
        "CARREL_TRIAL": "3",
        "CARREL_PARAMETERS": '{"rate": 0.1, "kind": "adam", "deep": [1, null]}',
    }
    files = open_event_files(Task(workload="sweep-3"), env)
    assert files is not None
    files.put(1.0, 1, {"loss": 1.0})
    files.flush(30.0)
    [file] = tmp_path.glob("events.out.tfevents.*")
    [start] = [
        metadata.parse_session_start_info_plugin_data(value.metadata.plugin_data.content)
        for event in LegacyEventFileLoader(str(file)).Load()
        for value in event.summary.value
        if value.tag == metadata.SESSION_START_INFO_TAG
    ]
    assert start.group_name == "sweep-3"
    assert start.hparams["rate"].number_value == 0.1
    assert start.hparams["kind"].string_value == "adam"
    assert start.hparams["deep"].string_value == "[1, null]"


def test_what_cannot_be_written_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    files = EventFiles(tmp_path / "file" / "events")
    for step in range(3):
        files.put(1.0, step, {"loss": 1.0})
        files.flush(30.0)
    assert capsys.readouterr().err.count("no event files for TensorBoard") == 1


def test_without_the_package_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    files = EventFiles(tmp_path)
    for step in range(3):
        files.put(1.0, step, {"loss": 1.0})
        files.flush(30.0)
    assert capsys.readouterr().err.count("this Python lacks tensorboard") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_flood_is_thinned_and_keeps_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_files, "MOST_WAITING", 10)
    monkeypatch.setattr(event_files, "PAUSE_SECONDS", 3600.0)
    files = EventFiles(tmp_path)
    for step in range(100):
        files.put(1.0, step, {"loss": 1.0})
    files.flush(30.0)
    steps = [step for _, step, _ in written(tmp_path)]
    assert len(steps) <= 10
    assert steps[-1] == 99
