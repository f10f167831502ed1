"""``carrel submit -it``: the command runs in this terminal, and the job ends with it."""

from typing import Any

import pytest

from carrel.cli import attached
from carrel.cli.commands import terminal
from carrel.errors import Unreachable
from carrel.testing import FakeScheduler
from unit.cli.conftest import Run

LINE = ("submit", "dev", "-p", "vision", "-g", "1", "-i", "img", "-it")
COMMAND = ("--", "python", "-i", "train.py")


@pytest.fixture
def told(fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said while it waits; the job starts as soon as something is."""
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            fake.run("vision", "dev")

    monkeypatch.setattr(attached, "note", note)
    monkeypatch.setattr(attached, "has_terminal", lambda: True)
    return said


@pytest.fixture
def entered(fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch, told: list[str]) -> list[Any]:
    """How the terminal ends: an exit code or an error, which a test chooses."""
    ends: list[Any] = [0]

    def attach(loop: object, opened: object) -> int:
        assert fake.workload("vision", "dev")["status"]["phase"] == "running"
        if isinstance(ends[0], int):
            return ends[0]
        raise ends[0]

    monkeypatch.setattr(terminal, "attach", attach)
    return ends


def test_the_job_waits_while_the_command_runs_here_and_is_suspended_after_it(
    run: Run, fake: FakeScheduler, entered: list[Any], told: list[str]
) -> None:
    entered[0] = 7
    done = run(*LINE, *COMMAND)
    assert (done.code, done.out.splitlines()[0]) == (7, "Job dev submitted successfully.")
    job = fake.workload("vision", "dev")
    assert (job["spec"]["kind"], job["spec"]["command"]) == ("workspace", attached.HOLDER)
    assert (job["spec"]["gpus"], job["spec"]["image"]) == (1, "img")
    assert job["status"]["phase"] == "stopped"
    assert told[-1] == "dev is suspended; `carrel delete job dev` removes it."
    asked = [path for method, path in fake.requests if path.endswith("/exec")]
    assert asked == ["/workloads/vision/dev/exec"]


def test_with_rm_nothing_is_left(run: Run, fake: FakeScheduler, entered: list[Any]) -> None:
    assert run(*LINE, "--rm", *COMMAND).code == 0
    assert fake.workloads() == []


def test_a_broken_connection_leaves_the_job(
    run: Run, fake: FakeScheduler, entered: list[Any], told: list[str]
) -> None:
    entered[0] = Unreachable("The connection ended.")
    assert run(*LINE, "--rm", *COMMAND).code == 3
    assert fake.workload("vision", "dev")["status"]["phase"] == "running"
    assert "carrel bash dev" in told[-1]


def test_who_stops_waiting_gives_the_place_back(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(attached, "note", interrupt)
    assert run(*LINE, "--rm", *COMMAND).code == 130
    assert fake.workloads() == []


def test_what_cannot_start_is_said(
    run: Run, fake: FakeScheduler, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    def fails(text: str) -> None:
        fake.run("vision", "dev")
        fake.finish("vision", "dev", 1)

    monkeypatch.setattr(attached, "note", fails)
    done = run(*LINE, *COMMAND)
    assert (done.code, "exit code 1" in done.err) == (1, True)


def test_a_dry_run_opens_nothing(run: Run, fake: FakeScheduler, told: list[str]) -> None:
    done = run(*LINE, "--dry-run", *COMMAND)
    assert (done.code, fake.workloads()) == (0, [])
    assert "python -i train.py" in done.out
    assert "workspace" in done.out
    assert run(*LINE, "--follow", *COMMAND).code == 2
