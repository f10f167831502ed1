"""What the options of ``carrel submit`` ask for, and what they refuse."""

import threading
import time
from pathlib import Path

import pytest

from carrel.testing import FakeScheduler
from unit.cli.conftest import Run


def test_everything_at_once(run: Run, fake: FakeScheduler, tmp_path: Path) -> None:
    done = run(
        "submit", "x", "-p", "vision", "-g", "2", "--cpu", "500m", "--memory", "4G",
        "-e", "A=b=c", "-e", "HOME", "--secret", "KEY=hidden", "-v", f"{tmp_path}:/data",
        "-i", "img:1", "-w", "/work", "--priority", "high", "--non-preemptible", "--tasks", "2",
        "--backoff-limit", "3", "-l", "run=1", "--checkpoint-every", "30", "--grace-period", "1m",
        "--large-shm", "--", "python", "train.py", "--", "-g", "9",
    )  # fmt: skip
    assert done.code == 0
    job = fake.workload("vision", "x")
    spec = job["spec"]
    assert spec["command"] == ["python", "train.py", "--", "-g", "9"]
    assert (spec["gpus"], spec["cpu_millicores"], spec["memory_bytes"]) == (2, 500, 4 * 1024**3)
    assert spec["environment"]["A"] == "b=c"
    assert spec["environment"]["HOME"] == str(Path.home())
    assert spec["volumes"] == [{"source": str(tmp_path), "destination": "/data"}]
    assert (spec["image"], spec["working_dir"], spec["priority"]) == ("img:1", "/work", "high")
    assert (spec["kind"], spec["preemptible"], spec["tasks"]) == ("training", False, 2)
    assert (spec["backoff_limit"], spec["grace_seconds"]) == (3, 60)
    assert spec["large_shm"] is True
    assert (spec["checkpoint_every_seconds"], job["labels"]) == (30, {"run": "1"})
    assert "hidden" not in str(job)


def test_the_folder_goes_along_where_the_command_names_a_file_in_it(
    run: Run, fake: FakeScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("1")
    done = run("submit", "x", "--", "python", "train.py")
    assert (done.code, done.err) == (0, f"The job takes 1 file (0.0 MiB) of {tmp_path} along.\n")
    digest = fake.workload("vision", "x")["spec"]["code"]["digest"]
    assert [file.path for file in fake.uploaded(digest).files] == ["train.py"]
    for words in (["-w", "/data"], ["--no-code"]):
        assert run("submit", f"y{words[0]}", *words, "--", "python", "train.py").err == ""
    assert run("submit", "z", "--", "true").err == ""
    assert run("submit", "a", "--code", ".", "--dry-run", "--", "true").code == 0
    refused = run("submit", "b", "--code", ".", "-w", "/data", "--", "true")
    assert (refused.code, refused.err) == (2, "Either --code or -w: leave one of them out.\n")


def test_retries_and_repositories_are_asked_for(run: Run, fake: FakeScheduler) -> None:
    address = "git@github.com:lab/project.git"
    done = run("submit", "x", "--retry", "application=2", "--retry", "gpu=3,node=5",
               "--git", f"{address}@v1.2/rc", "--", "python", "train.py")  # fmt: skip
    assert (done.code, done.err) == (0, "")
    spec = fake.workload("vision", "x")["spec"]
    assert spec["retries"] == {"application": 2, "gpu": 3, "node": 5}
    assert spec["code"] == {"git": address, "revision": "v1.2/rc"}
    for wrong in ("cell=1", "gpu=3,", "gpu=3 node=5"):
        refused = run("submit", "y", "--retry", wrong, "--", "true")
        assert refused.code == 2
        assert refused.err.startswith("--retry ")
    for address in ("https://ada:secret@host/x.git", "file:///x", "ext::sh", "ssh://-o/x"):
        assert "should be URL[@REVISION]" in run("submit", "y", "--git", address, "--", "a").err


def test_a_rule_for_stalls_is_asked_for(run: Run, fake: FakeScheduler) -> None:
    done = run("submit", "x", "-g", "1", "--restart-when-stalled", "--stall-after", "10m",
               "--retry", "stalled=2", "--", "true")  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert run("submit", "y", "-g", "1", "--tell-when-stalled", "--", "true").code == 0
    spec = fake.workload("vision", "x")["spec"]
    assert (spec["restart_when_stalled"], spec["stall_after_seconds"]) == (True, 600)
    assert spec["retries"] == {"stalled": 2}
    assert fake.workload("vision", "y")["spec"]["restart_when_stalled"] is False
    assert "restarted after 10 min" in run("describe", "job", "x").out
    refused = run("submit", "z", "-g", "1", "--stall-after", "5s", "--", "true")
    assert (refused.code, "--stall-after" in refused.err) == (2, True)


def test_work_may_move_to_a_better_type(run: Run, fake: FakeScheduler) -> None:
    types = ("--gpu-type", "H100,A100", "--move-to-better-type")
    assert run("submit", "x", "-g", "1", *types, "--", "true").code == 0
    assert fake.workload("vision", "x")["spec"]["move_to_better_type"] is True
    assert "H100, A100 (moves to a better one)" in run("describe", "job", "x").out


def test_care_after_failures_can_be_left_out(run: Run, fake: FakeScheduler) -> None:
    assert run("submit", "x", "--reuse-failed-nodes", "--", "true").code == 0
    assert fake.workload("vision", "x")["spec"]["avoid_failed_nodes"] is False
    assert run("submit", "y", "--avoid-failed-nodes", "--", "true").code == 0
    assert fake.workload("vision", "y")["spec"]["avoid_failed_nodes"] is True


def test_work_to_start_after_is_named_with_its_condition(run: Run, fake: FakeScheduler) -> None:
    assert run("submit", "x", "--after", "prep", "--after", "old:any", "--", "true").code == 0
    spec = fake.workload("vision", "x")["spec"]
    assert spec["after"] == [{"name": "prep"}, {"name": "old", "condition": "any"}]
    assert "should be NAME, NAME:ok" in run("submit", "y", "--after", "a:b", "--", "true").err


def test_replace_takes_the_place_of_the_job_of_that_name(run: Run, fake: FakeScheduler) -> None:
    assert run("submit", "x", "--", "true").code == 0
    assert run("submit", "x", "--", "false").code == 1
    assert run("submit", "x", "--replace", "--", "false").code == 0
    assert fake.workload("vision", "x")["spec"]["command"] == ["false"]


def test_little_is_asked_for_by_default(run: Run, fake: FakeScheduler) -> None:
    assert run("submit", "x", "--", "true").code == 0
    spec = fake.workload("vision", "x")["spec"]
    assert spec["kind"] == "training"
    assert not {"gpus", "tasks", "priority", "large_shm", "working_dir"} & spec.keys()


def test_a_line_of_docker_run_works_as_it_is(run: Run, fake: FakeScheduler) -> None:
    done = run("submit", "x", "--rm", "-it", "-e", "A=1", "-v", "/data", "-w", "/d", "-i", "img",
               "python", "train.py")  # fmt: skip
    assert done.code == 0
    assert "-it has no effect where" in done.err
    assert "--rm has no effect without -it" in done.err
    spec = fake.workload("vision", "x")["spec"]
    assert spec["command"] == ["python", "train.py"]
    assert spec["volumes"] == [{"source": "/data", "destination": "/data"}]


def test_ports_shared_memory_and_users_of_docker_run(run: Run, fake: FakeScheduler) -> None:
    done = run("submit", "x", "-p", "vision", "--shm-size=1g", "-u", "1000:1000", "-p", "8888:80",
               "-p", "127.0.0.1:6006:6006/tcp", "-i", "img", "--", "app", "-p", "1:2")  # fmt: skip
    assert (done.code, done.err) == (0, "-u has no effect: a job runs as you.\n")
    spec = fake.workload("vision", "x")["spec"]
    assert (spec["large_shm"], spec["command"]) == (True, ["app", "-p", "1:2"])
    assert spec["routes"] == [{"port": 80}, {"port": 6006}]
    assert run("submit", "y", "-p").code == 2


def test_names_are_numbered(run: Run) -> None:
    assert "Job job-1 submitted" in run("submit", "--", "true").out
    assert "Job sweep-1 submitted" in run("submit", "--name-prefix", "sweep", "--", "true").out


def test_interactive_is_a_workspace(run: Run, fake: FakeScheduler) -> None:
    assert run("submit", "x", "--interactive", "--preemptible", "--", "bash").code == 0
    spec = fake.workload("vision", "x")["spec"]
    assert (spec["kind"], spec["preemptible"]) == ("workspace", True)


def test_a_workspace_sends_its_folder_along(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "any")
    monkeypatch.chdir(tmp_path)
    assert run("submit", "x", "--", "true").code == 0
    assert fake.workload("vision", "x")["spec"]["working_dir"] == str(tmp_path)


def test_a_folder_that_jobs_do_not_see_is_told(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "any")
    monkeypatch.setenv("CARREL_VOLUMES", "[]")
    monkeypatch.chdir(tmp_path)
    done = run("submit", "x", "--", "true")
    assert f"Jobs do not see `{tmp_path}`" in done.err
    assert fake.workload("vision", "x")["spec"].get("working_dir", "") == ""
    assert "with nothing but the files" in run("describe", "job", "x").out


@pytest.mark.parametrize(("exit_code", "code"), [(0, 0), (3, 1)])
def test_following_prints_the_output_and_ends_as_the_job_did(
    run: Run, fake: FakeScheduler, exit_code: int, code: int
) -> None:
    def goes_its_way() -> None:
        deadline = time.monotonic() + 30
        while not fake.workloads() and time.monotonic() < deadline:
            time.sleep(0.01)
        fake.run("vision", "x")
        fake.log("vision", "x", "epoch 1")
        fake.finish("vision", "x", exit_code)

    job = threading.Thread(target=goes_its_way, daemon=True)
    job.start()
    done = run("submit", "x", "--follow", "--", "true")
    job.join()
    assert done.code == code
    assert "epoch 1" in done.out


def test_nothing_is_followed_that_does_not_run(run: Run) -> None:
    done = run("submit", "x", "--follow", "--dry-run", "--", "true")
    assert done.code == 2
    assert "--follow is about one job" in done.err


def test_a_dry_run_says_what_would_happen(run: Run) -> None:
    done = run("submit", "x", "-g", "1", "--dry-run", "--", "python", "train.py")
    assert done.out.startswith("Nothing was submitted. It would start now.\nName:         x\n")
    assert "no jobs" not in done.out
    assert run("list", "jobs", "--no-headers").out == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["x"], "What should the job run?"),
        ([], "What should the job run?"),
        (["x", "y", "--", "true"], "Only the job's name"),
        (["x", "--memory", "much", "--", "true"], "--memory 'much' is no amount of memory"),
        (["x", "--cpu", "-1", "--", "true"], "--cpu '-1' is no number of processors"),
        (["x", "-e", "=1", "--", "true"], "--environment '=1' should be NAME=VALUE"),
        (["x", "-e", "NOT_SET_HERE", "--", "true"], "there is no such variable here"),
        (["x", "-l", "run", "--", "true"], "--label 'run' should be NAME=VALUE"),
        (["x", "-v", ":x", "--", "true"], "--volume ':x' should be SOURCE"),
        (["x", "--checkpoint-every", "soon", "--", "true"], "is no time span"),
        (
            ["x", "-g", "many", "--", "true"],
            "--gpus 'many' is no number of GPUs; write 0, 1 or 0.5.",
        ),
        (["x", "--frobnicate", "--", "true"], "There is no option --frobnicate. See"),
        (["x", "--paralelism", "3", "--", "true"], "did you mean --parallelism?"),
        (["x", "--name", "y", "--", "true"], "The name is there twice"),
    ],
)
def test_bad_words_are_one_sentence(run: Run, words: list[str], sentence: str) -> None:
    done = run("submit", *words)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("user", ["eve", "nobody"])
def test_without_a_project_nothing_is_submitted(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    projects = {"eve": ["vision", "speech"], "nobody": []}
    with FakeScheduler(projects) as several:
        monkeypatch.setenv("CARREL_URL", several.url)
        done = run("submit", "x", "--", "true", user=user)
        assert done.code == 2
        assert "project" in done.err
        assert ("POST", "/workloads") not in several.requests
        assert run("submit", "x", "-p", "vision", "--", "true", user="eve").code == 0


def test_a_project_one_is_not_in_is_refused(run: Run) -> None:
    done = run("submit", "x", "-p", "speech", "--", "true")
    assert (done.code, done.err) == (1, "You are not a member of `speech`.\n")


def test_kinds_of_work_follow_from_what_is_asked_for(run: Run, fake: FakeScheduler) -> None:
    run("submit", "gang", "--workers", "4", "--min-workers", "2", "--", "python", "t.py")
    spec = fake.workload("vision", "gang")["spec"]
    assert (spec["kind"], spec["tasks"], spec["elastic"]) == ("distributed", 4, {"min_tasks": 2})
    run("submit", "--parallelism", "3", "--completions", "12", "--param", "lr=log:1e-5..1e-1",
        "--", "python", "t.py")  # fmt: skip
    spec = fake.workload("vision", "sweep-1")["spec"]
    lr = {"type": "float", "low": 1e-5, "high": 0.1, "log": True}
    assert spec["kind"] == "experiment"
    assert spec["experiment"] == {"parallelism": 3, "completions": 12, "parameters": {"lr": lr}}
    run("submit", "--inference", "--port", "0", "--access", "project", "--", "serve")
    spec = fake.workload("vision", "serve-1")["spec"]
    assert (spec["kind"], spec["inference"]) == ("inference", {})
    assert spec["routes"] == [{"port": 0, "access": "project"}]
    run("submit", "--tensorboard", "gang,sweep-1")
    assert fake.workload("vision", "tensorboard-1")["spec"]["tensorboard"] == {
        "jobs": ["gang", "sweep-1"]
    }


def test_a_notebook_is_sent_along(run: Run, fake: FakeScheduler, tmp_path: Path) -> None:
    path = tmp_path / "report.ipynb"
    path.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    run("submit", "--notebook", str(path), "--param", "year=2026", "--param", "who=ada")
    spec = fake.workload("vision", "notebook-1")["spec"]
    assert (spec["kind"], spec["notebook"]["path"]) == ("notebook", "report.ipynb")
    assert spec["notebook"]["parameters"] == {"year": 2026, "who": "ada"}
    assert "report.ipynb" in spec["files"]
    run("submit", "night", "--schedule", "0 3 * * *", "--", "python", "t.py")
    spec = fake.workload("vision", "night")["spec"]
    assert spec["schedule"] == {"cron": "0 3 * * *", "runs": "training"}


def test_requests_may_stand_in_a_file(run: Run, fake: FakeScheduler, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "name: a\ncommand: [python, a.py]\ngpus: 1\nlabels: {set: '1'}\n---\n"
        "name: g\nkind: distributed\ntasks: 4\ncommand: [t]\nelastic: {min_tasks: 2}\n---\n"
        "name: s\nkind: inference\ncommand: [s]\nroutes: [{access: everyone}]\n---\n"
        "name: b\nkind: experiment\ncommand: [python, b.py]\nexperiment: {completions: 5}\n"
    )
    done = run("submit", "-f", str(file), "-l", "run=2", "--memory", "2G")
    assert done.code == 0
    a, b = fake.workload("vision", "a"), fake.workload("vision", "b")
    assert (a["spec"]["gpus"], a["labels"]) == (1, {"set": "1", "run": "2"})
    gang, served = (fake.workload("vision", name)["spec"] for name in ("g", "s"))
    assert (gang["tasks"], gang["elastic"]) == (4, {"min_tasks": 2})
    assert served["routes"] == [{"access": "everyone"}]
    assert (b["spec"]["kind"], b["spec"]["experiment"]) == ("experiment", {"completions": 5})
    assert a["spec"]["memory_bytes"] == b["spec"]["memory_bytes"] == 2 * 2**30
    refused = run("submit", "c", "-f", str(file))
    assert "one name cannot be that of all" in refused.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "line 1 is no YAML"),
        ("- a", "should hold fields of a request"),
        ("", "asks for nothing"),
        ("kind: trainings", "kind 'trainings' is not known"),
        ("comand: [x]", "there is no field `comand`; did you mean `command`?"),
        ("xyz: 1", "there is no field `xyz`; docs/api.md lists them."),
    ],
)
def test_bad_files_are_one_sentence(run: Run, tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    done = run("submit", "-f", str(file))
    assert done.code == 2
    assert sentence in done.err
    assert "cannot be read" in run("submit", "-f", str(tmp_path / "not-there")).err
