"""Reports leave merged, in order, and never in the training's way."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import carrel
from carrel.job import report as reporting
from carrel.job.report import Reporter, Sender, merge
from carrel.job.task import present

Lines = pytest.CaptureFixture[str]
TIMEOUT_SECONDS = 60.0


class Server:
    """Answers with the statuses given, then 204; an exception is raised instead."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.bodies: list[dict[str, Any]] = []
        self.asked = threading.Semaphore(0)

    def __call__(self, content: bytes) -> int:
        answer = self.answers.pop(0) if self.answers else 204
        self.bodies.append(json.loads(content))
        self.asked.release()
        if isinstance(answer, Exception):
            raise answer
        return answer


def reporter(post: Callable[[bytes], int], interval: float = 0.0) -> Reporter:
    return Reporter(Sender("http://x", "t", merge, post=post, interval=interval))


def test_a_report_arrives_with_the_fields_of_the_api() -> None:
    server = Server()
    mine = reporter(server)
    mine.report(120, 1000, {"loss": 0.31})
    mine.flush(TIMEOUT_SECONDS)
    (body,) = server.bodies
    assert body.pop("at") > 0
    assert body == {"step": 120, "done": 120.0, "total": 1000.0, "metrics": {"loss": 0.31}}


def test_what_comes_between_two_sends_is_merged() -> None:
    server = Server()
    mine = reporter(server, interval=600)
    for step in range(100):
        mine.report(step, None, {"loss": 1 / (step + 1)})
    mine.report(100, None, {"accuracy": 0.5})
    mine.flush(TIMEOUT_SECONDS)
    (body,) = server.bodies
    assert body["step"] == 100
    assert body["metrics"] == {"loss": 1 / 100, "accuracy": 0.5}


def test_parameters_are_texts_numbers_and_switches() -> None:
    server = Server()
    mine = reporter(server, interval=600)
    mine.report(None, None, {}, {"lr": 0.1, "net": "res\0net", "amp": True, "layers": [1, 2]})
    mine.report(1, None, {"loss": 2.0}, {"seed": 2**60, "nan": float("nan"), "lr": 0.2})
    mine.flush(TIMEOUT_SECONDS)
    (body,) = server.bodies
    known = {"lr": 0.2, "net": "resnet", "amp": True, "layers": "[1, 2]"}
    assert body["parameters"] == {**known, "seed": str(2**60), "nan": "nan"}
    assert body["metrics"] == {"loss": 2.0}


@pytest.mark.parametrize("trouble", [ConnectionRefusedError("nobody"), 503])
def test_a_server_that_is_away_costs_one_warning_and_no_value(
    trouble: int | Exception, capsys: Lines
) -> None:
    server = Server(trouble, trouble)
    mine = reporter(server)
    mine.report(1, None, {"loss": 0.5})
    assert server.asked.acquire(timeout=TIMEOUT_SECONDS)
    mine.report(2, None, {"accuracy": 0.1})
    mine.flush(TIMEOUT_SECONDS)
    assert server.bodies[-1]["metrics"] == {"loss": 0.5, "accuracy": 0.1}
    assert server.bodies[-1]["step"] == 2
    assert capsys.readouterr().err.count("carrel:") == 1


def test_a_job_that_is_no_longer_known_stops_reporting(capsys: Lines) -> None:
    server = Server(401)
    mine = reporter(server)
    mine.report(1, None, {})
    mine.flush(TIMEOUT_SECONDS)
    mine.report(2, None, {})
    mine.flush(TIMEOUT_SECONDS)
    assert len(server.bodies) == 1
    assert "goes on without" in capsys.readouterr().err


def test_a_refused_report_is_dropped_and_the_next_is_sent(capsys: Lines) -> None:
    server = Server(422)
    mine = reporter(server)
    mine.report(-1, None, {})
    mine.flush(TIMEOUT_SECONDS)
    mine.report(2, None, {})
    mine.flush(TIMEOUT_SECONDS)
    assert [body["step"] for body in server.bodies] == [-1, 2]


def test_values_that_are_no_numbers_are_left_out_and_named_once(capsys: Lines) -> None:
    mine = Reporter(None)
    for _ in range(3):
        mine.report(1, None, {"loss": float("nan"), "name": "x", "good": 1})  # type: ignore[dict-item]
    assert mine.latest["metrics"] == {"good": 1.0}
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "carrel: loss is nan and is not reported.",
        "carrel: name is no number and is not reported.",
    ]


def test_outside_a_job_it_only_remembers(capsys: Lines) -> None:
    carrel.report(step=3, total=9, loss=0.1)
    latest = reporting.latest()
    assert (latest["step"], latest["total"], latest["metrics"]) == (3, 9.0, {"loss": 0.1})
    assert capsys.readouterr() == ("", "")


def test_a_save_is_reported(tmp_path: Any) -> None:
    carrel.checkpoint.save("x", step=7, directory=tmp_path)
    assert reporting.latest()["checkpoint_step"] == 7


def test_the_environment_of_a_task() -> None:
    environ = {
        "CARREL_URL": "http://127.0.0.1:1/services/carrel/",
        "CARREL_TASK_TOKEN": "secret",
        "CARREL_PROJECT": "vision",
        "CARREL_WORKLOAD": "x",
        "CARREL_CHECKPOINT_DIR": "/c",
        "POD_INDEX": "2",
    }
    task = present(environ)
    assert (
        task.reports_url == "http://127.0.0.1:1/services/carrel/api/v1/workloads/vision/x/reports"
    )
    assert str(task.checkpoint_dir) == "/c/task-2"
    assert "secret" not in repr(task)
    assert present({}).reports_url == ""


def test_a_forked_child_reports_by_itself() -> None:
    program = (
        "import os\n"
        "from carrel.job import report\n"
        "parent = report.reporter()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if report.reporter() is not parent else 1)\n"
        "assert report.reporter() is parent\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_nothing_beyond_the_standard_library_is_imported_until_used() -> None:
    program = (
        "import sys, carrel; carrel.checkpoint.every(1); carrel.report(step=1)\n"
        "heavy = {'aiohttp', 'msgspec', 'numpy', 'rich', 'tqdm', 'typer', 'IPython', 'asyncio'}\n"
        "found = heavy & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
