"""A notebook job as a real process: cells run, the output is there as it goes, it gives way."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from carrel.testing import FakeScheduler
from contract.client.conftest import TIMEOUT_SECONDS, Launch, eventually

Start = Callable[..., "subprocess.Popen[str]"]
WAITS = "import pathlib, time\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)"


def cell(source: str, *tags: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {"tags": list(tags)},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def write(path: Path, cells: Sequence[Mapping[str, Any]], **metadata: Any) -> Path:
    notebook = {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    path.write_text(json.dumps(notebook))
    return path


@pytest.fixture
def start(fake: FakeScheduler, launch: Launch, tmp_path: Path) -> Start:
    """Start the program of a notebook job; the notebook is ``work.ipynb``."""
    fake.submit("vision", "night", kind="notebook")
    (tmp_path / ".carrel").mkdir()

    def start(attempt: int = 0, **order: Any) -> "subprocess.Popen[str]":
        asked = {"path": str(tmp_path / "work.ipynb"), "grace_seconds": 30.0, **order}
        (tmp_path / ".carrel" / "notebook.json").write_text(json.dumps(asked))
        return launch(
            "-m",
            "carrel.job.notebook",
            CARREL_TASK_TOKEN=fake.token("ada"),
            CARREL_PROJECT="vision",
            CARREL_WORKLOAD="night",
            CARREL_WORKLOAD_UID="u1",
            CARREL_ATTEMPT=str(attempt),
            CARREL_TASK_DIR=str(tmp_path),
            CARREL_CHECKPOINT_DIR=str(tmp_path / "kept"),
        )

    return start


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, out, err


def cells_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return found


def said(one: Mapping[str, Any]) -> str:
    return "".join("".join(output.get("text", [])) for output in one.get("outputs", []))


def state(fake: FakeScheduler) -> dict[str, Any]:
    found: dict[str, Any] = fake.workload("vision", "night")["status"].get("notebook", {})
    return found


def test_parameters_are_set_and_the_output_can_be_read_while_it_runs(
    fake: FakeScheduler, start: Start, tmp_path: Path
) -> None:
    cells = [
        text("# Night"),
        cell("rate = 1\nname = 'x'", "parameters"),
        cell("print('rate', rate, name)"),
        cell("raise ValueError('expected')", "raises-exception"),
        cell(WAITS),
        cell("print('end')"),
    ]
    write(tmp_path / "work.ipynb", cells)
    process = start(parameters={"rate": 2.5, "name": "it's", "more": [None, True]})
    output = tmp_path / "work.night.ipynb"
    eventually(lambda: state(fake).get("cell") == 5, "five cells are done")
    found = cells_of(output)
    assert found[2]["metadata"]["tags"] == ["injected-parameters"]
    assert said(found[3]) == "rate 2.5 it's\n"
    assert said(found[6]) == ""
    (tmp_path / "go").touch()
    code, out, err = ended(process)
    assert (code, out) == (0, "rate 2.5 it's\nend\n"), err
    assert "ValueError: expected" in err
    assert said(cells_of(output)[6]) == "end\n"
    assert state(fake) == {"cell": 7, "cells": 7, "output": str(output)}
    progress = fake.workload("vision", "night")["status"]["progress"]
    assert (progress["done"], progress["total"], progress["unit"]) == (7, 7, "cell")


def test_a_cell_that_fails_ends_the_job_with_its_number_and_error(
    fake: FakeScheduler, start: Start, tmp_path: Path
) -> None:
    write(tmp_path / "work.ipynb", [cell("x = {}"), cell("x['loss']"), cell("print('never')")])
    code, out, _ = ended(start(output=str(tmp_path / "out" / "{name}.ipynb")))
    assert (code, out) == (1, "")
    assert state(fake) == {
        "cell": 1,
        "cells": 3,
        "output": str(tmp_path / "out" / "night.ipynb"),
        "error": "Cell 2 of 3 failed: KeyError: 'loss'",
        "code": "cell_failed",
    }
    failed = cells_of(tmp_path / "out" / "night.ipynb")[1]
    assert [output["output_type"] for output in failed["outputs"]] == ["error"]
    assert any("Traceback" in line for line in failed["outputs"][0]["traceback"])


def test_a_cell_longer_than_its_limit_ends_the_job(
    fake: FakeScheduler, start: Start, tmp_path: Path
) -> None:
    write(tmp_path / "work.ipynb", [cell("import time\ntime.sleep(600)")])
    code, _, _ = ended(start(cell_timeout_seconds=1.0))
    assert code == 1
    assert state(fake)["code"] == "cell_timed_out"
    assert state(fake)["error"] == "Cell 1 of 1 ran for longer than 1 s, its limit."


def test_a_kernel_that_dies_is_told_apart(
    fake: FakeScheduler, start: Start, tmp_path: Path
) -> None:
    write(
        tmp_path / "work.ipynb", [cell("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")]
    )
    code, _, _ = ended(start())
    assert (code, state(fake)["code"]) == (1, "kernel_died")
    assert state(fake)["error"].startswith("The kernel died in cell 1 of 1;")


@pytest.mark.parametrize(
    ("content", "order", "code", "words"),
    [
        (None, {}, "notebook_missing", "There is no notebook"),
        ([], {"kernel": "cobol"}, "no_kernel", "There is no kernel `cobol` here; there are"),
    ],
)  # fmt: skip
def test_what_cannot_begin_says_why(
    fake: FakeScheduler,
    start: Start,
    tmp_path: Path,
    content: list[dict[str, Any]] | None,
    order: dict[str, Any],
    code: str,
    words: str,
) -> None:
    if content is not None:
        write(tmp_path / "work.ipynb", content)
    status, _, err = ended(start(**order))
    assert status == 2, err
    assert state(fake)["code"] == code
    assert words in state(fake)["error"]
    assert words in err
    assert "Traceback" not in err


def give_way(process: "subprocess.Popen[str]") -> None:
    """What the engine does: SIGTERM to every process of the task."""
    pids = [process.pid, *(_children(process.pid))]
    for pid in pids:
        with suppress(ProcessLookupError):  # the first to hear it may have ended the others
            os.kill(pid, signal.SIGTERM)


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in found]


def test_it_gives_way_and_goes_on_from_its_restart_point(
    fake: FakeScheduler, start: Start, tmp_path: Path
) -> None:
    cells = [
        cell("rate = 1", "parameters"),
        cell("import pathlib\nlog = pathlib.Path('log')\nadd = lambda x: "
             "log.write_text((log.read_text() if log.exists() else '') + x)", "always-run"),
        cell("add('dear ')\nprint('dear')"),
        cell("add(f'from {rate} ')", "restart-point"),
        cell(WAITS),
        cell("add('end')"),
    ]  # fmt: skip
    write(tmp_path / "work.ipynb", cells)
    first = start(parameters={"rate": 7})
    eventually(lambda: state(fake).get("cell") == 5, "five cells are done")
    give_way(first)
    code, _, err = ended(first)
    assert code == 143, err
    assert "error" not in state(fake)
    output = tmp_path / "work.night.ipynb"
    assert json.loads(output.read_text())["metadata"]["carrel"]["state"] == "preempted"

    write(tmp_path / "work.ipynb", [cell("changed meanwhile")])
    (tmp_path / "go").touch()
    code, _, err = ended(start(attempt=1, parameters={"rate": 7}))
    assert code == 0, err
    assert "going on from cell 5 of 7" in err
    assert state(fake)["resumed_from"] == 5
    assert (tmp_path / "log").read_text() == "dear from 7 from 7 end"
    assert said(cells_of(output)[3]) == "dear\n"


def test_a_cell_that_listens_saves_before_it_gives_way(
    fake: FakeScheduler, start: Start, tmp_path: Path
) -> None:
    training = (
        "import carrel, time\n"
        "state = carrel.checkpoint.restore(default={'step': 0})\n"
        "print('from', state['step'])\n"
        "while state['step'] < 3 or not carrel.checkpoint.latest():\n"
        "    state['step'] += 1\n"
        "    carrel.checkpoint.preempted()  # from here on it hears\n"
        "    if state['step'] >= 3: print('waits')\n"
        "    while state['step'] == 3 and not carrel.checkpoint.preempted():\n"
        "        time.sleep(0.02)\n"
        "    if carrel.checkpoint.preempted():\n"
        "        time.sleep(1)\n"
        "        carrel.checkpoint.save(state, step=state['step'])\n"
        "        carrel.checkpoint.exit_for_preemption()\n"
    )
    write(tmp_path / "work.ipynb", [cell("x = 1"), cell(training), cell("print('x', x)")])
    first = start()
    assert first.stdout is not None
    assert first.stdout.readline() == "from 0\n"
    assert first.stdout.readline() == "waits\n"
    give_way(first)
    code, _, err = ended(first)
    assert code == 143, err
    code, out, err = ended(start(attempt=1))
    assert (code, out) == (0, "from 3\nx 1\n"), err
    assert state(fake)["resumed_from"] == 1
