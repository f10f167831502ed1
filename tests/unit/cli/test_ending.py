"""Waiting for jobs, running them again, clearing up, completing their names, watching the list."""

from typing import Any

import pytest

from carrel import __version__
from carrel.cli.commands import jobs
from carrel.cli.common import table
from carrel.cli.completing import job_names
from carrel.models import Workload
from carrel.testing import FakeScheduler
from unit.cli.conftest import NOW, Run


def test_waiting_tells_how_jobs_ended(run: Run, fake: FakeScheduler) -> None:
    for name, code in (("good", 0), ("bad", 1)):
        fake.submit("vision", name)
        fake.run("vision", name)
        fake.finish("vision", name, code)
    assert run("wait", "good", "-p", "vision").code == 0
    both = run("wait", "good", "bad", "-p", "vision")
    assert (both.code, both.out.splitlines()[1]) == (1, "Job bad failed. Ended with exit code 1.")
    fake.submit("vision", "long")
    late = run("wait", "long", "-p", "vision", "--timeout", "0s")
    assert (late.code, late.err) == (124, "Not all have ended yet.\n")
    assert run("wait", "nothing", "-p", "vision").code == 1


def test_a_job_is_run_again_with_changes(run: Run, fake: FakeScheduler) -> None:
    fake.submit("vision", "train-7", command=["python", "a.py"], gpus=1)
    done = run("rerun", "train-7", "-p", "vision", "-g", "2", "--as", "wide")
    assert (done.code, done.out) == (0, "Job wide submitted successfully.\n")
    spec = fake.workload("vision", "wide")["spec"]
    assert (spec["command"], spec["gpus"]) == (["python", "a.py"], 2.0)


def test_pruning_deletes_what_ended_long_ago(
    run: Run, fake: FakeScheduler, clock: list[float]
) -> None:
    for name in ("old", "failed", "young", "theirs"):
        fake.submit("vision", name, user="bob" if name == "theirs" else "ada")
        fake.run("vision", name)
    fake.finish("vision", "old")
    fake.finish("vision", "failed", 1)
    fake.finish("vision", "theirs")
    fake.keep("vision", "old", {"model.pt": bytes(2048)})
    clock[0] = NOW + 8 * 86_400
    fake.finish("vision", "young")
    words = ("prune", "-p", "vision", "--status", "succeeded")
    named = run(*words, "--dry-run")
    assert named.out == (
        "1 jobs of yours in vision ended more than 7d ago: old. Deleting them frees 2.0 KiB.\n"
    )
    assert run(*words, "--yes").out == "1 jobs deleted.\n"
    assert {job["name"] for job in fake.workloads()} == {"failed", "young", "theirs"}
    assert run("prune", "-p", "vision", "--status", "running").code == 2


def test_names_are_completed(run: Run, fake: FakeScheduler) -> None:
    for name in ("train-1", "train-2", "other", "my-train"):
        fake.submit("vision", name)
    run("whoami")
    assert set(job_names("train")) == {"train-1", "train-2"}
    fake.fail_next(*[500] * 20)
    assert job_names("train") == []


def test_the_version_is_an_option_too(run: Run) -> None:
    assert run("--version").out == f"carrel {__version__}\n"


def test_tables_are_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("carrel.cli.common.coloured", lambda _: True)
    monkeypatch.setenv("COLUMNS", "50")
    table(["NAME", "WHY"], [["train-7", "because " * 30]])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 50


def test_a_person_reads_that_a_list_is_empty(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("list", "jobs", "-p", "vision")
    assert "NAME" in run(*words).out  # a program finds the same lines as ever
    monkeypatch.setattr("carrel.cli.common.coloured", lambda _: True)
    assert run(*words).out == "Showing jobs for project vision\nNothing to show.\n"


def test_headers_are_folded_where_lists_of_jobs_are_wider_than_the_terminal(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.submit("vision", "train-7", gpus=1)
    monkeypatch.setattr("carrel.cli.common.coloured", lambda _: True)
    for width in (60, 80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = run("list", "jobs", "-p", "vision").out
        assert max(map(len, shown.splitlines())) <= max(width, 75), shown
        assert all(word in shown for word in ("(Requested)", "(Pending)", "train-7", "- (1.00)"))


def test_what_is_updated_is_what_was_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr("carrel.client.Client.update", lambda _, *words: sent.append(words))
    lines: dict[str, Any] = {
        "--time-limit 8h": {"time_limit_seconds": 28_800.0},
        "--priority high --label a=b --without-label c": {
            "priority": "high",
            "labels": {"a": "b", "c": None},
        },
        "--min-workers 3": {"elastic": {"min_tasks": 3}},
        "--workers 4 --min-workers 2": {"tasks": 4, "elastic": {"min_tasks": 2}},
        "--without time-limit": {"time_limit_seconds": None},
        "--restart-when-stalled --stall-after 10m": {
            "restart_when_stalled": True,
            "stall_after_seconds": 600.0,
        },
        "--tell-when-stalled --without stall-after": {
            "restart_when_stalled": False,
            "stall_after_seconds": None,
        },
    }
    for words, changes in lines.items():
        done = run("update", "train-7", "-p", "vision", *words.split())
        assert (done.code, done.out) == (0, "Job train-7 updated successfully.\n"), done.err
        assert sent.pop() == ("vision", "train-7", changes)
    for words, code, said in (
        ("", 2, "Say what to change"),
        (
            "--without speed",
            2,
            "write time-limit, idle-timeout, restart-when-stalled or stall-after",
        ),
        ("--workers 2 --min-workers 3", 2, "more than the 2 workers"),
    ):
        done = run("update", "train-7", "-p", "vision", *words.split())
        assert (done.code, said in done.err, sent) == (code, True, [])


def test_the_list_is_shown_again_at_each_change(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.submit("vision", "first")
    shown = []
    plain = jobs._show_jobs

    def show(found: list[Workload], *args: Any, **kwargs: Any) -> None:
        plain(found, *args, **kwargs)
        shown.append([job.name for job in found])
        if len(shown) == 2:
            raise KeyboardInterrupt  # as somebody who has seen enough
        fake.submit("vision", "second")

    monkeypatch.setattr(jobs, "_show_jobs", show)
    monkeypatch.setattr(jobs, "PAUSE_SECONDS", 0.0)
    done = run("list", "jobs", "-p", "vision", "--watch")
    assert (done.code, shown) == (130, [["first"], ["first", "second"]])
