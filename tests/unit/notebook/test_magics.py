"""The magics in a real IPython shell."""

import secrets
import time
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError

from carrel import wording
from carrel.client import AsyncClient, Client
from carrel.magics.base import stream
from carrel.notebook.cell import capture, cell_body
from carrel.notebook.job import Job
from carrel.options import RequestFields
from carrel.testing import FakeScheduler
from carrel.widgets.tables import JobsView, QuotaView
from carrel.workspace.status import ServerIdentity, WorkspaceStatus


def test_train_sends_the_cell_and_returns_the_job(
    ipython: Any, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    ipython.user_ns["a"] = 1
    job = ipython.run_cell_magic(
        "train",
        "train-7 --gpus 1 --cpu 500m --memory 2Gi --in a --checkpoint-every 30 "
        "--priority high --env A=b --env C=d --grace 1m --to kept",
        "print(a)",
    )
    assert isinstance(job, Job)
    assert ipython.user_ns["kept"] is job
    spec = scheduler.workload("vision", "train-7")["spec"]
    assert spec["kind"] == "training"
    assert (spec["gpus"], spec["cpu_millicores"], spec["memory_bytes"]) == (1.0, 500, 2 * 2**30)
    assert spec["environment"] == {"PYTHONUNBUFFERED": "1", "A": "b", "C": "d"}
    assert (spec["checkpoint_every_seconds"], spec["grace_seconds"]) == (30.0, 60.0)
    assert (spec["priority"], spec["inputs"]) == ("high", ["a"])
    assert spec["command"][1:] == ["job.py", str(tmp_path)]
    assert set(spec["files"]) == {"job.py", "cell.py", "inputs.b85"}


def test_large_variables_are_uploaded(ipython: Any, scheduler: FakeScheduler) -> None:
    ipython.user_ns["big"] = secrets.token_bytes(2**21)
    ipython.run_cell_magic("train", "x", "print(big)")
    spec = scheduler.workload("vision", "x")["spec"]
    assert set(spec["files"]) == {"job.py", "cell.py"}
    [file] = scheduler.uploaded(spec["code"]["digest"]).files
    assert (file.path, file.size > 2**21) == ("inputs.pickle", True)
    with pytest.raises(UsageError, match="cannot go along with --git"):
        ipython.run_cell_magic("train", "y --git https://host/x.git", "print(big)")


def test_train_without_a_name_is_numbered(ipython: Any) -> None:
    names = [ipython.run_cell_magic("train", "", "1").name for _ in range(2)]
    assert names == ["train-1", "train-2"]


def test_dry_run_sends_nothing(ipython: Any, client: Client) -> None:
    told = repr(ipython.run_cell_magic("train", "x --gpus 2 --dry-run", "1"))
    assert told.startswith("It would start now.\nproject: vision, 2 GPUs\n")
    assert told.endswith("Nothing was sent.")
    assert client.list_workloads() == []


def test_body_of_a_cell() -> None:
    asked = RequestFields("training", {"gpus": 1.0})
    body = cell_body(
        capture("1", [], {}), asked, project="vision", folder="/home/ada", python="python"
    )
    assert body["name_prefix"] == "train"
    assert body["command"] == ["python", "job.py", "/home/ada"]
    assert body["files"]["cell.py"] == "# the magic's line\n1\n"


@pytest.mark.parametrize(
    ("line", "cell", "told"),
    [
        ("--gpus many", "1", "'many' is no number of GPUs; write 0, 1 or 0.5"),
        ("--gpsu 1", "1", "There is no option --gpsu; did you mean --gpus?"),
        ("a --name b", "1", "the name is there twice"),
        ("--in x", "print(x)", "this notebook has no variable `x`"),
        ("--project speech", "1", "You are not a member of `speech`."),
        ("--env NOT_SET", "1", "--environment NOT_SET: there is no such variable here"),
        ("'open", "1", "No closing quotation"),
    ],
)
def test_mistakes_are_one_line(ipython: Any, line: str, cell: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        ipython.run_cell_magic("train", line, cell)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_named_cell_that_is_run_again_is_the_next_run_of_its_name(
    ipython: Any, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [ipython.run_cell_magic("train", "x", "1").name for _ in range(3)]
    assert names == ["x", "x-2", "x-3"]
    assert "`x` is there already: this run of it is `x-2`." in capsys.readouterr().out
    client.create_workload({"project": "vision", "name": "x-10", "command": ["true"]})
    assert ipython.run_cell_magic("train", "x", "1").name == "x-11"


def test_replace_takes_the_place_of_the_work_of_that_name(ipython: Any, client: Client) -> None:
    first = ipython.run_cell_magic("train", "x", "1").workload.uid
    again = ipython.run_cell_magic("train", "x --replace", "2")
    assert (again.name, [one.name for one in client.list_workloads()]) == ("x", ["x"])
    assert again.workload.uid != first


@pytest.mark.parametrize("magic", ["train", "sweep", "serve"])
def test_help_needs_no_cell(ipython: Any, magic: str, capsys: pytest.CaptureFixture[str]) -> None:
    for cell in (f"%%{magic} -h", f"%{magic} -h", f"%%{magic} -h\n\n"):
        assert ipython.run_cell(cell).success
        assert "--gpus" in capsys.readouterr().out
    with pytest.raises(UsageError, match="sends a cell"):
        ipython.run_line_magic(magic, "")


def test_help_lists_every_option(ipython: Any) -> None:
    told = repr(ipython.run_cell_magic("train", "-h", "1"))
    for flag in ("--gpus", "--in", "--checkpoint-every", "--dry-run", "--wait", "--env", "--cpu"):
        assert flag in told


def test_logs(ipython: Any, scheduler: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    ipython.run_cell_magic("train", "x", "1")
    scheduler.run("vision", "x")
    scheduler.log("vision", "x", "one", "two", "three")
    ipython.run_line_magic("logs", "x --tail 2")
    assert capsys.readouterr().out == "two\nthree\n"
    scheduler.finish("vision", "x")
    ipython.run_line_magic("logs", "vision/x -f")
    assert capsys.readouterr().out == "one\ntwo\nthree\n"


def test_stop_button_ends_the_output_only(capsys: pytest.CaptureFixture[str]) -> None:
    def pieces() -> Any:
        yield "one\n"
        raise KeyboardInterrupt

    stream(pieces(), "x")
    assert capsys.readouterr().out == "one\n\n`x` goes on; only the output stopped here.\n"


def test_steering(ipython: Any, scheduler: FakeScheduler, client: Client) -> None:
    for name in ("x", "y"):
        ipython.run_cell_magic("train", name, "1")
        scheduler.run("vision", name)
    assert "%resume x queues it again" in repr(ipython.run_line_magic("suspend", "x"))
    assert scheduler.workload("vision", "x")["status"]["phase"] in ("stopping", "stopped")
    assert repr(ipython.run_line_magic("resume", "x")) == "`x` is in the queue again."
    told = repr(ipython.run_line_magic("cancel", "x gone vision/y"))
    assert told.count("is being cancelled; its checkpoints go with it.") == 2
    assert "`gone`: There is no job `gone`" in told
    assert client.list_workloads() == []


@pytest.mark.parametrize("magic", ["cancel", "suspend", "resume", "wait", "logs", "job"])
def test_name_is_needed_and_must_exist(ipython: Any, magic: str) -> None:
    with pytest.raises(UsageError, match="which job"):
        ipython.run_line_magic(magic, "")
    with pytest.raises(UsageError, match="There is no job `gone`; %jobs lists yours"):
        ipython.run_line_magic(magic, "gone")


def test_wait(ipython: Any, scheduler: FakeScheduler) -> None:
    for name, code in (("x", 0), ("y", 1)):
        ipython.run_cell_magic("train", name, "1")
        scheduler.run("vision", name)
        scheduler.finish("vision", name, exit_code=code)
    assert repr(ipython.run_line_magic("wait", "x y")) == "`x`: succeeded\n`y`: failed"


def test_foreign_project_is_not_there(ipython: Any, scheduler: FakeScheduler) -> None:
    scheduler.submit("speech", "theirs", user="bob")
    with pytest.raises(UsageError, match="speech"):
        ipython.run_line_magic("logs", "speech/theirs")


def test_jobs_and_quota_show_themselves(ipython: Any, scheduler: FakeScheduler) -> None:
    ipython.run_cell_magic("train", "x --gpus 1", "1")
    scheduler.submit("vision", "of-somebody-else", user="bob")
    jobs = ipython.run_line_magic("jobs", "")
    assert isinstance(jobs, JobsView)
    assert [job["name"] for job in jobs.jobs] == ["x"]
    quota = ipython.run_line_magic("quota", "")
    assert isinstance(quota, QuotaView)
    assert quota.fallback()["text/plain"] == (
        "vision  ████|▒  4 of 4 guaranteed · 1 borrowed · 2 pending"
    )
    scheduler.project("vision", department="science")
    grouped = ipython.run_line_magic("quota", "")
    assert grouped.fallback()["text/plain"].startswith("science:\n  vision  ████|▒  4 of 4")
    assert "Department</th>" in grouped.fallback()["text/html"]
    assert grouped.projects[0]["department"] == "science"


async def test_quota_says_the_same_as_the_service_and_the_status_bar(
    ipython: Any, scheduler: FakeScheduler, client: Client
) -> None:
    scheduler.project("vision", department="lab")
    for scope, period in (("project/vision", "month"), ("department/lab", "sliding-week")):
        client.put_budget(scope, {"gpu_hours": 50.0, "period": period})
    client.put_budget("user/ada", {"gpu_hours": 10.0, "period": "total"})
    client.put_budget("user/bob", {"gpu_hours": 99.0})
    quota = ipython.run_line_magic("quota", "")
    (shown,) = quota.projects
    assert shown["budgets"] == [
        "budget of department/lab: 37.5 left of the 50 GPU-hours in the last seven days",
        "budget: 37.5 left of the 50 GPU-hours of this month",
        "budget of user/ada: 0.0 left of the 10 GPU-hours in all",
    ]
    told = {one.scope: one for one in client.list_budgets()}
    assert shown["budgets"][1] == wording.budget_words(told["project/vision"])
    assert all(words in quota.fallback()["text/plain"] for words in shown["budgets"])
    assert "Budget</th>" in quota.fallback()["text/html"]
    by_rest = client.get_project("vision")
    assert shown["words"] == wording.quota_words(by_rest)
    async with AsyncClient(scheduler.url, scheduler.token("ada")) as own:
        status = WorkspaceStatus(own, ServerIdentity("ada", "", ""), time.monotonic)
        scheduler.submit("vision", "workspace-ada", kind="workspace", server_name="")
        scheduler.run("vision", "workspace-ada")
        bar = (await status.view())["project"]
    for name, value in shown["use"].items():
        assert value == bar["use"][name] == getattr(by_rest.use, name)
    assert shown["quota"]["gpus"] == bar["quota"]["gpus"] == by_rest.quota.gpus


def test_gpus(ipython: Any, scheduler: FakeScheduler) -> None:
    holder = {"project": "vision", "name": "x", "user": "ada", "borrowed": True}
    device = {"uuid": "u", "name": "A10", "memory_mib": 24576, "simulated": True}
    scheduler.nodes(
        {
            "name": "node-1",
            "devices": [
                {"index": 0, **device, "utilization": 0.5, "holders": [holder]},
                {"index": 1, **device},
            ],
        }
    )
    view = ipython.run_line_magic("gpus", "")
    lines = view.fallback()["text/plain"].splitlines()
    assert (
        lines[1].split("  ")[2:4] == ["  0", "  A10 (simulated)"] or "A10 (simulated)" in lines[1]
    )
    assert "vision/x (ada), borrowed" in lines[1]
    assert "free" in lines[2]


def test_not_signed_in_is_one_line(ipython: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from carrel.magics.base import CarrelMagics, Connection

    for name in ("CARREL_URL", "CARREL_TOKEN", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CARREL_CONFIG_FILE", "/nowhere/config.json")
    monkeypatch.setattr(CarrelMagics, "connection", Connection())
    with pytest.raises(UsageError, match="not signed in"):
        ipython.run_line_magic("jobs", "")


def test_unload_takes_the_magics_away(ipython: Any) -> None:
    ipython.run_line_magic("unload_ext", "carrel")
    assert ipython.find_line_magic("jobs") is None
    assert ipython.find_cell_magic("train") is None
    ipython.run_line_magic("load_ext", "carrel")
    assert ipython.find_cell_magic("train") is not None
