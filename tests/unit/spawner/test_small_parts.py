"""Environment, words, state, progress_log, launcher."""

import asyncio
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from carrel.models import Reason, Task, Workload, WorkloadStatus
from carrel.workspace import environment, server_arguments
from carrel_schema.objects import Phase
from carrel_spawner import launch, rendering
from carrel_spawner.start import ProgressLog
from carrel_spawner.workspace import Address, Ending, split_secrets


def test_tokens_are_hidden_and_the_rest_is_shown() -> None:
    shown, hidden = split_secrets(
        {
            "JUPYTERHUB_API_TOKEN": "t",
            "JPY_API_TOKEN": "t",
            "JUPYTERHUB_COOKIE_OPTIONS": "{}",
            "MY_PASSWORD": "p",
            "AWS_SECRET_ACCESS_KEY": "k",
            "WANDB_API_KEY": "k",
            "JUPYTERHUB_USER": "ada",
            "JUPYTERHUB_COOKIE_HOST_PREFIX_ENABLED": "0",
            "CPU_LIMIT": 2,
            "ABSENT": None,
        }
    )
    assert shown == {
        "JUPYTERHUB_USER": "ada",
        "JUPYTERHUB_COOKIE_HOST_PREFIX_ENABLED": "0",
        "CPU_LIMIT": "2",
    }
    assert set(hidden) == {
        "JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN", "JUPYTERHUB_COOKIE_OPTIONS", "MY_PASSWORD",
        "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (rendering.gpus(1), "1 GPU"),
        (rendering.gpus(0.5), "0.5 GPU"),
        (rendering.gpus(2), "2 GPUs"),
        (rendering.cores(1000), "1 core"),
        (rendering.cores(500), "0.5 cores"),
        (rendering.gib(2 * 1024**3), "2 GiB"),
        (rendering.amount("gpu", 2000), "2 GPUs"),
        (rendering.amount("cpu", 1500), "1.5 cores"),
        (rendering.amount("memory", 1024), "1 GiB"),
    ],
)
def test_amounts_read_as_everywhere(said: str, expected: str) -> None:
    assert said == expected


def test_an_address_survives_the_database() -> None:
    address = Address("vision", "workspace-ada", "u1", 4711)
    assert Address.from_dict(address.as_dict()) == address
    assert Address.from_dict(None) is None


def test_an_address_is_of_one_attempt_of_one_workload() -> None:
    def at(uid: str, attempt: int, phase: Phase) -> Workload:
        status = WorkloadStatus(phase=phase, attempt=attempt)
        return Workload(name="w", project="p", uid=uid, status=status)

    address = Address.of(at("u1", 2, "starting"), 4711)
    assert Address.from_dict(address.as_dict()) == address
    assert address.is_at(at("u1", 2, "running"))
    assert address.is_at(at("u1", 2, "preempting"))
    others = [at("u1", 2, "stopped"), at("u1", 3, "pending"), at("u2", 2, "running")]
    assert not any(map(address.is_at, others))


def test_what_was_queued_again_has_ended_too() -> None:
    status = WorkloadStatus(phase="pending", attempt=1)
    ending = Ending.of(Workload(name="w", project="p", status=status))
    assert "queued again" in ending.sentence
    assert ending.exit_code == 0


def test_an_ending_is_the_reason_and_the_exit_code() -> None:
    reason = Reason(token="Idle", sentence="Stopped after 1 h.", help="Start it again.")
    tasks = [Task(index=0, attempt=1, node="a", exit_code=3)]
    status = WorkloadStatus(phase="stopped", reason=reason, ended_at=5.0, tasks=tasks)
    ending = Ending.of(Workload(name="w", project="p", status=status))
    assert ending == Ending("Stopped after 1 h.", "Start it again.", 5.0, 3)
    assert Ending.from_dict(ending.as_dict()) == ending


async def test_every_reader_gets_all_news_once() -> None:
    progress_log = ProgressLog()
    progress_log.post(5, "Asking.")

    async def read() -> list[dict[str, Any]]:
        return [event async for event in progress_log.follow()]

    early = asyncio.create_task(read())
    await asyncio.sleep(0)
    progress_log.post(40, "Making room.")
    progress_log.post(40, "Making room.")
    progress_log.post(10, "Starting.")
    progress_log.close()
    late = await read()
    assert await early == late
    assert [event["message"] for event in late] == ["Asking.", "Making room.", "Starting."]
    assert [event["progress"] for event in late] == [5, 40, 40]
    progress_log.post(50, "`speech` & <co> give way.")
    assert progress_log._events[-1]["html_message"] == (
        "<code>speech</code> &amp; &lt;co&gt; give way."
    )
    assert progress_log.last == "`speech` & <co> give way."


async def test_a_reader_that_leaves_disturbs_nobody() -> None:
    progress_log = ProgressLog()
    progress_log.post(5, "Asking.")
    leaving = progress_log.follow()
    assert (await anext(leaving))["message"] == "Asking."
    task = asyncio.ensure_future(anext(leaving))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    progress_log.post(9, "Going on.")
    progress_log.close()
    assert len([event async for event in progress_log.follow()]) == 2


def test_demo_notebooks_are_copied_once(tmp_path: Path) -> None:
    assert launch.copy_demo(tmp_path) == []
    notebooks = list(tmp_path.glob("*.ipynb"))
    assert notebooks
    notebooks[0].write_text("mine now")
    assert launch.copy_demo(tmp_path) == []
    assert notebooks[0].read_text() == "mine now"


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    complaints = launch.copy_demo(tmp_path / "missing")
    assert complaints
    assert "could not be copied" in complaints[0]


def test_the_launcher_becomes_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setattr(os, "execv", lambda _, command: became.append(command))
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    monkeypatch.setenv("SHELL", "/bin/zsh")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", "")
    launch.main(["--demo", "--", "--debug"])
    plain_shell = "--ServerApp.terminado_settings={'shell_command': ['/bin/zsh']}"
    assert became[0][1:] == ["-m", "carrel.workspace.server", plain_shell, "--debug"]
    assert Path.cwd() == tmp_path
    assert list(tmp_path.glob("*.ipynb"))
    sockets = Path(os.environ["JUPYTER_RUNTIME_DIR"])
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    sockets.rmdir()


def test_in_an_image_the_launcher_tells_the_server_of_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[list[str]] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", "")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", "")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(tmp_path / "runtime"))
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setattr(os, "execv", lambda _, command: became.append(command))
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    launch.main(["--set-up", "--", "--debug"])
    assert became[0][-1] == "--debug"
    assert set(server_arguments()) <= set(became[0])
    assert os.environ["PYTHONSTARTUP"] == environment()["PYTHONSTARTUP"]
    assert not list(tmp_path.glob("*.ipynb"))
