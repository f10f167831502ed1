"""The scheduler service as a process: on PostgreSQL like on SQLite, and over a kill."""

import asyncio
import gzip
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from contract.postgresql import PostgreSQL, postgresql
from contract.schedulers import forked_scheduler

__all__ = ["postgresql"]

TIMEOUT_SECONDS = 240.0
PLANTED = "planted-4711-hush"
WAITS = 'echo done ${#PASSWORD}; until [ -e "$CARREL_CHECKPOINT_DIR/go" ]; do sleep 0.1; done'
JOB = {
    "name": "train-1",
    "project": "vision",
    "command": ["sh", "-c", WAITS],
    "gpus": 1,
    "secret_environment": {"PASSWORD": PLANTED},
}


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": "token ada"}) as session:
        yield session


async def until(session: aiohttp.ClientSession, url: str, phase: str) -> dict[str, Any]:
    """The workload once it has reached a phase."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            async with session.get(url) as answer:
                found: dict[str, Any] = await answer.json()
            if found["status"]["phase"] == phase:
                return found
            await asyncio.sleep(0.1)


def files_with(text: str, folder: Path) -> list[str]:
    """Names of the files below a folder that hold a text."""
    assert (folder / "ledger-secrets.key").stat().st_mode & 0o777 == 0o600
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


async def walk(scheduler: SchedulerProcess, session: aiohttp.ClientSession) -> None:
    """Submit, kill the scheduler while the job runs, start it again, and see the job through."""
    await scheduler.start()
    await scheduler.ready(session)
    project = {"name": "vision", "quota": {"gpus": 2}}
    async with session.post(f"{scheduler.api}/projects", json=project) as answer:
        assert answer.status == 201, await answer.text()
    async with session.post(f"{scheduler.api}/workloads", json=JOB) as answer:
        assert answer.status == 201, await answer.text()
        assert PLANTED not in await answer.text()
        uid = (await answer.json())["uid"]
    url = f"{scheduler.api}/workloads/vision/train-1"
    await until(session, url, "running")
    assert files_with(PLANTED, scheduler.state_dir) == []
    await scheduler.kill()
    await scheduler.start()
    await scheduler.ready(session)
    (scheduler.state_dir / "engine" / "checkpoints" / uid / "go").touch()
    done = await until(session, url, "succeeded")
    assert (done["status"]["attempt"], done["status"]["failures"]) == (0, 0)
    async with session.get(f"{url}/history") as answer:
        history = await answer.json()
    assert [row["to_phase"] for row in history["transitions"]] == [
        "pending",
        "starting",
        "running",
        "succeeded",
    ]
    async with session.get(f"{url}/logs") as answer:
        assert await answer.text() == f"done {len(PLANTED)}\n"
    assert PLANTED not in scheduler.log.read_text()
    assert files_with(PLANTED, scheduler.state_dir) == []
    backup = scheduler.state_dir / "one.backup"
    command = [sys.executable, "-m", "carrel.cli", "backup", str(backup)]
    await asyncio.to_thread(
        subprocess.run, [*command, "--state-dir", str(scheduler.state_dir)], check=True
    )
    content = gzip.decompress(backup.read_bytes())
    assert b"ledger-secrets.key" in content
    assert PLANTED.encode() not in content


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]
)
async def test_a_job_lives_through_a_kill_of_the_scheduler(
    database: str, tmp_path: Path, session: aiohttp.ClientSession, request: pytest.FixtureRequest
) -> None:
    url = ""
    if database == "postgresql":
        server: PostgreSQL = request.getfixturevalue("postgresql")
        url = server.new_database()
    accounts = {"ada": Account("ada", scopes=(USE, ADMIN), groups={"project-vision"})}
    async with StandInHub(accounts) as hub:
        scheduler = forked_scheduler(tmp_path, hub.url, "ada", database_url=url)
        try:
            await walk(scheduler, session)
        finally:
            await scheduler.stop()
