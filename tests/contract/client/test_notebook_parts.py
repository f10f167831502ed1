"""Notebook jobs before a kernel starts: what is read, set, written and kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from carrel.job import report
from carrel.job.notebook import output, source, spec
from carrel.job.notebook.output import ExecutedNotebook
from carrel.job.notebook.reporting import NotebookProblem, NotebookProgress
from carrel.job.notebook.spec import RunSpec
from carrel.job.report import reporter


def cell(text: str, *tags: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {"tags": list(tags)},
        "source": text,
        "outputs": [],
        "execution_count": 3,
    }


def write(path: Path, *cells: dict[str, Any], **metadata: Any) -> Path:
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    path.write_text(json.dumps(notebook))
    return path


def made(tmp_path: Path, **facts: Any) -> RunSpec:
    usual: dict[str, Any] = {
        "path": str(tmp_path / "a.ipynb"),
        "job": "a-1",
        "uid": "u1",
        "task_dir": tmp_path / "task",
        "home": tmp_path / "home",
    }
    (tmp_path / "task").mkdir(exist_ok=True)
    return RunSpec(**{**usual, **facts})


def code_of(problem: pytest.ExceptionInfo[NotebookProblem]) -> str:
    return problem.value.code


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '"x"', "\x00", '{"nbformat": 4}', '{"cells": [{}], "nbformat": 4}',
                '{"cells": [{}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}'],
)  # fmt: skip
def test_what_is_no_notebook_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(content)
    with pytest.raises(NotebookProblem, match="is no") as problem:
        source.read(path)
    assert code_of(problem) == "notebook_invalid"
    assert str(path) in problem.value.sentence


def test_a_folder_and_nothing_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotebookProblem) as problem:
        source.read(tmp_path)
    assert code_of(problem) == "notebook_unreadable"
    with pytest.raises(NotebookProblem) as problem:
        source.read(tmp_path / "none.ipynb")
    assert code_of(problem) == "notebook_missing"


def test_parameters_stand_behind_their_defaults_and_replace_those_of_a_former_run(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "a.ipynb",
        cell("import x"),
        cell("rate = 1", "parameters"),
        cell("rate = 5", "injected-parameters"),
        cell("rate"),
    )
    notebook = source.read(path)
    source.inject(notebook, {"rate": 0.5, "text": 'a"b\n', "more": {"x": [None, True]}})
    sources = [one.source for one in notebook.cells]
    assert sources == [
        "import x",
        "rate = 1",
        "# Parameters of this run\nrate = 0.5\ntext = 'a\"b\\n'\nmore = {'x': [None, True]}",
        "rate",
    ]
    source.inject(notebook, {})
    assert len(notebook.cells) == 3


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("R", 'p <- list("a" = list(1, TRUE, NULL))'),
        ("julia", 'p = Dict("a" => [1, true, nothing])'),
        ("python", "p = {'a': [1, True, None]}"),
    ],
)
def test_parameters_in_other_languages(tmp_path: Path, language: str, line: str) -> None:
    path = write(tmp_path / "a.ipynb", cell("1"), kernelspec={"name": "k", "language": language,
                                                             "display_name": "k"})  # fmt: skip
    notebook = source.read(path)
    source.inject(notebook, {"p": {"a": [1, True, None]}})
    assert notebook.cells[0].source.splitlines()[1] == line


@pytest.mark.parametrize(
    ("language", "name", "code"),
    [("python", "not a name", "bad_parameter"), ("python", "class", "bad_parameter"),
     ("r", "1x", "bad_parameter"), ("cobol", "x", "parameters_unsupported")],
)  # fmt: skip
def test_parameters_that_cannot_be_set(tmp_path: Path, language: str, name: str, code: str) -> None:
    notebook = source.read(write(tmp_path / "a.ipynb", cell("1")))
    with pytest.raises(NotebookProblem) as problem:
        source.inject(notebook, {name: 1}, language)
    assert code_of(problem) == code


def test_output_goes_beside_the_notebook_and_never_over_what_is_not_ours(tmp_path: Path) -> None:
    write(tmp_path / "a.ipynb", cell("1"))
    assert ExecutedNotebook(made(tmp_path)).path == tmp_path / "a.a-1.ipynb"
    write(tmp_path / "a.a-1.ipynb", carrel={"uid": "u1"})
    assert ExecutedNotebook(made(tmp_path)).path == tmp_path / "a.a-1.ipynb"
    write(tmp_path / "a.a-1.ipynb", carrel={"uid": "another"})
    assert ExecutedNotebook(made(tmp_path)).path == tmp_path / "a.a-1-2.ipynb"


def test_output_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = made(tmp_path, output=f"{tmp_path}/out/{{date}}/{{name}}.ipynb", date="2026-11-21")
    assert ExecutedNotebook(named).path == tmp_path / "out" / "2026-11-21" / "a-1.ipynb"
    in_folder = made(tmp_path, output=f"{tmp_path}/out/")
    assert ExecutedNotebook(in_folder).path == tmp_path / "out" / "a.a-1.ipynb"
    sent = made(tmp_path, path="b.ipynb")
    write(sent.sent_along, cell("1"))
    monkeypatch.chdir(sent.task_dir)
    assert ExecutedNotebook(sent).path == tmp_path / "home" / "b.a-1.ipynb"
    monkeypatch.chdir(tmp_path)
    assert ExecutedNotebook(sent).path == tmp_path / "b.a-1.ipynb"
    assert source.working_folder(sent) == tmp_path
    assert list(tmp_path.glob(".b*")) == []


def test_output_of_a_container_goes_where_something_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "task"
    kept = {"home": task, "path": "b.ipynb", "kept": tmp_path / "kept" / "notebook"}
    sent = made(tmp_path, **kept)
    write(sent.sent_along, cell("1"))
    monkeypatch.chdir(task)
    assert ExecutedNotebook(sent).path == tmp_path / "kept" / "b.a-1.ipynb"
    assert ExecutedNotebook(sent).handed_back
    asked = made(tmp_path, **kept, output=f"{tmp_path}/volume/")
    assert not ExecutedNotebook(asked).handed_back
    monkeypatch.chdir(tmp_path)
    assert ExecutedNotebook(sent).path == tmp_path / "b.a-1.ipynb"
    assert not ExecutedNotebook(sent).handed_back


@pytest.mark.parametrize(
    ("output", "code"),
    [("{here}/a.ipynb", "output_is_input"), ("/proc/none/b.ipynb", "output_not_writable")],
)
def test_output_that_cannot_be_written(tmp_path: Path, output: str, code: str) -> None:
    write(tmp_path / "a.ipynb", cell("1"))
    with pytest.raises(NotebookProblem) as problem:
        ExecutedNotebook(made(tmp_path, output=output.replace("{here}", str(tmp_path))))
    assert code_of(problem) == code


def test_what_is_kept_comes_back_and_damage_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert output.load_restart_point(tmp_path) is None
    notebook = source.read(write(tmp_path / "a.ipynb", cell("1"), cell("2")))
    output.save_restart_point(tmp_path / "kept", notebook, 1)
    found = output.load_restart_point(tmp_path / "kept")
    assert found is not None
    assert ([one.source for one in found[0].cells], found[1]) == (["1", "2"], 1)
    assert "carrel_begin" not in found[0].metadata
    for damage in ("{", '{"cells": [], "metadata": {"carrel_begin": 9}, "nbformat": 4}'):
        (tmp_path / "kept" / output.FILE).write_text(damage)
        assert output.load_restart_point(tmp_path / "kept") is None
    assert capsys.readouterr().err.count("the notebook is read anew") == 2


def test_the_order_is_read_from_the_tasks_folder(tmp_path: Path) -> None:
    env = {"CARREL_TASK_DIR": str(tmp_path), "CARREL_WORKLOAD": "a-1", "CARREL_ATTEMPT": "2"}
    with pytest.raises(NotebookProblem) as problem:
        spec.read(env)
    assert code_of(problem) == "order_missing"
    (tmp_path / ".carrel").mkdir()
    (tmp_path / ".carrel" / "notebook.json").write_text(
        '{"path": "x.ipynb", "parameters": {"a": 1}, "cell_timeout_seconds": null}'
    )
    found = spec.read(env)
    assert (found.path, found.parameters, found.attempt) == ("x.ipynb", {"a": 1}, 2)
    assert found.sent_along == tmp_path / "x.ipynb"


def test_progress_is_a_whole_report_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CARREL_TASK_TOKEN", "CARREL_EVENTS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(report._ProcessReporter, "reporter", None)
    progress = NotebookProgress(4, "/out.ipynb", 2)
    problem = NotebookProblem("cell_failed", "Cell 3 of 4 failed: X")
    progress.failed(problem, 2)
    assert problem.reported
    assert reporter().latest["notebook"] == {
        "cells": 4,
        "output": "/out.ipynb",
        "resumed_from": 3,
        "cell": 2,
        "error": "Cell 3 of 4 failed: X",
        "code": "cell_failed",
    }
    progress.done(3)
    assert "error" not in reporter().latest["notebook"]
    assert (reporter().latest["done"], reporter().latest["total"]) == (3, 4)
