"""The client and the shell tool against the real REST edge over a real ledger."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carrel.cli import main
from carrel.cli.commands import cluster
from carrel.client import AsyncClient
from carrel.errors import ApiError, NotSignedIn
from contract.api.service import ApiHarness, running

if TYPE_CHECKING:
    from carrel.models import Event

SERVICE = "/services/carrel"
BODY = {"project": "vision", "name": "new", "command": ["python", "t.py"], "gpus": 1}


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ApiHarness]:
    async with running(tmp_path) as found:
        yield found


@pytest.fixture
async def ada(harness: ApiHarness) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(harness.url + SERVICE, "ada-token") as client:
        yield client


@pytest.fixture
async def root(harness: ApiHarness) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(harness.url + SERVICE, "root-token") as client:
        yield client


async def test_reads_are_understood(ada: AsyncClient) -> None:
    assert (await ada.whoami()).user == "ada"
    names = [job.name for job in await ada.list_workloads("vision", kind="training")]
    assert names == ["train-1"]
    job = await ada.get_workload("vision", "train-1")
    assert job.holds_resources
    history = await ada.history("vision", "train-1")
    assert history.decisions[0].action == "bind"
    assert [row.to_phase for row in history.transitions] == ["pending", "starting"]
    curves = await ada.metrics("vision", "train-1")
    assert curves["loss"][0].value == 0.5
    assert (await ada.get_project("vision")).quota.gpus == 2
    assert [project.name for project in await ada.list_projects()] == ["vision"]
    nodes, queue = await ada.nodes(), await ada.queue()
    assert await ada.node(nodes[0].name) == nodes[0]
    assert all(entry.position for entry in queue)
    assert {entry.key for entry in await ada.usage("project", since=0.0)} <= {"vision"}


async def test_submitting_steering_and_deleting(ada: AsyncClient) -> None:
    assert (await ada.create_workload(BODY, dry_run=True)).forecast.token
    first = await ada.create_workload(BODY, idempotency_key="k")
    assert (await ada.create_workload(BODY, idempotency_key="k")).uid == first.uid
    assert (await ada.suspend("vision", "new")).spec.suspend
    removed = await ada.delete_workload("vision", "new")
    assert removed is not None
    assert removed.spec.delete


async def test_refusals_are_sentences_with_codes(ada: AsyncClient, harness: ApiHarness) -> None:
    with pytest.raises(ApiError) as refused:
        await ada.create_workload({**BODY, "gpus": -1})
    assert refused.value.errors[0]["field"] == "gpus"
    assert len(str(refused.value).splitlines()) == 1
    with pytest.raises(ApiError) as hidden:
        await ada.get_workload("speech", "train-1")
    assert hidden.value.status == 404
    async with AsyncClient(harness.url + SERVICE, "nobody-knows") as stranger:
        with pytest.raises(NotSignedIn):
            await stranger.whoami()


async def test_events_and_reports(ada: AsyncClient) -> None:
    seen: list[Event] = []
    async with asyncio.timeout(60), aclosing(ada.events("vision", "train-1")) as events:
        async for event in events:
            seen.append(event)
            break
    assert seen[0].workload.name == "train-1"
    await ada.report("vision", "train-1", {"step": 3, "metrics": {"loss": 0.25}, "done": 3.0})


async def test_logs_and_a_terminal(ada: AsyncClient) -> None:
    text = "".join([piece async for piece in ada.logs("vision", "train-1", tail=5)])
    assert text
    async with asyncio.timeout(60), await ada.exec("vision", "train-1", ["bash"]) as terminal:
        assert await terminal.read() + await terminal.read() == "grüß"
        await terminal.resize(40, 120)
        await terminal.write("ls\n")
        assert await terminal.read() == "LS\n"
        await terminal.write("exit\n")
        assert await terminal.read() == ""
        assert terminal.exit_code == 3


async def test_projects_of_an_administrator(root: AsyncClient) -> None:
    made = await root.create_project({"name": "new", "quota": {"gpus": 2.0}})
    assert made.quota.gpus == 2
    changes = {"interactive": {"idle_timeout_seconds": 60.0}, "limit": {"gpus": None}}
    assert (await root.update_project("new", changes)).interactive.idle_timeout_seconds == 60
    assert isinstance((await root.update_project("new", changes, dry_run=True)).would_start, list)
    await root.add_member("new", "ada")
    assert await root.members("new") == ["ada"]
    await root.remove_member("new", "ada")
    await root.delete_project("new")


LINES = [
    (0, "ada", ["submit", "cli", "-p", "vision", "-g", "1", "-e", "A=b", "-v", "/tmp:/data",
                "--cpu", "2", "--memory", "4G", "--priority", "low", "--checkpoint-every", "30",
                "--secret", "K=v", "-l", "a=b", "--grace-period", "10s", "--", "python", "t.py"]),
    (0, "ada", ["submit", "-p", "vision", "--dry-run", "--", "true"]),
    (0, "ada", ["list", "jobs", "-p", "vision", "--status", "running", "-o", "wide"]),
    (0, "ada", ["list", "jobs", "-A", "-o", "json"]),
    (0, "ada", ["describe", "job", "train-1", "-p", "vision"]),
    (0, "ada", ["logs", "train-1", "-p", "vision", "--tail", "3", "--since", "5m"]),
    (0, "ada", ["list", "nodes"]),
    (0, "ada", ["list", "projects"]),
    (0, "ada", ["top", "node"]),
    (0, "ada", ["top", "job", "-A"]),
    (0, "ada", ["queue"]),
    (0, "ada", ["usage", "--by", "user"]),
    (0, "ada", ["suspend", "train-1", "-p", "vision"]),
    (0, "ada", ["delete", "job", "train-1", "-p", "vision"]),
    (1, "ada", ["describe", "job", "train-1", "-p", "speech"]),
    (1, "ada", ["submit", "x", "-p", "speech", "--", "true"]),
    (1, "ada", ["project", "create", "mine"]),
    (0, "root", ["project", "create", "new", "-g", "2", "--idle-timeout", "1h", "--extend", "1h",
                 "--interactive-time-limit", "8h", "--warn-before", "10m", "--max-extensions", "2",
                 "--limit-gpus", "4", "--memory", "64G", "--cpu", "8", "--weight", "3"]),
    (0, "root", ["project", "update", "vision", "-g", "1", "--limit-gpus", "none", "--dry-run"]),
    (0, "root", ["project", "update", "vision", "--idle-timeout", "none", "--no-over-quota"]),
]  # fmt: skip


@pytest.mark.parametrize(("code", "user", "words"), LINES, ids=lambda value: str(value)[:40])
async def test_the_shell_tool(
    harness: ApiHarness,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    code: int,
    user: str,
    words: list[str],
) -> None:
    monkeypatch.setenv("CARREL_CONFIG_FILE", str(tmp_path / "config.json"))
    monkeypatch.setenv("CARREL_URL", harness.url + SERVICE)
    monkeypatch.setenv("CARREL_TOKEN", f"{user}-token")
    monkeypatch.setattr(cluster, "now", harness.clock)
    ended = await asyncio.to_thread(main.run, words)
    sys.stdout.flush()
    told = capsys.readouterr()
    assert (ended, told.err == "") == (code, code == 0), told
    assert len(told.err.splitlines()) <= 1


async def test_deleting_a_second_time_is_an_error(
    harness: ApiHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CARREL_URL", harness.url + SERVICE)
    monkeypatch.setenv("CARREL_TOKEN", "ada-token")
    words = ["delete", "job", "train-1", "-p", "vision"]
    assert await asyncio.to_thread(main.run, words) == 0
    assert await asyncio.to_thread(main.run, words) == 1
    assert capsys.readouterr().err == "Job train-1 is being deleted already.\n"
