"""Notebook jobs and schedules on a real scheduler: reclaimed, resumed, failing, suspended."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from contract.schedulers import forked_scheduler

TIMEOUT_SECONDS = 240.0
Json = dict[str, Any]


class NotebookSite:
    """A scheduler with one GPU, and two people in two projects."""

    def __init__(self, scheduler: SchedulerProcess, session: aiohttp.ClientSession) -> None:
        self.scheduler, self._session = scheduler, session
        self.homes = scheduler.state_dir / "engine" / "homes"

    async def ready(self) -> None:
        async with aiohttp.ClientSession(headers={"Authorization": "token ada"}) as session:
            await self.scheduler.ready(session)

    async def crash(self) -> None:
        """The scheduler is killed and starts again; what runs goes on."""
        await self.scheduler.kill()
        await self.scheduler.start()
        await self.ready()

    async def post(self, path: str, body: Mapping[str, Any], user: str = "ada") -> Json:
        headers = {"Authorization": f"token {user}"}
        url = f"{self.scheduler.api}{path}"
        async with self._session.post(url, json=body, headers=headers) as answer:
            found: Json = await answer.json()
            assert answer.status < 300, found
            return found

    async def get(self, path: str) -> Any:
        headers = {"Authorization": "token ada"}
        async with self._session.get(f"{self.scheduler.api}{path}", headers=headers) as answer:
            return await answer.json()

    async def until(self, path: str, met: Callable[[Any], bool]) -> Any:
        """What a path gives once it is as it should be."""
        found = None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    found = await self.get(path)
                    if met(found):
                        return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{path} stayed {json.dumps(found)[:3000]}") from None

    async def phase(self, path: str, wanted: str) -> Json:
        found: Json = await self.until(path, lambda one: one["status"]["phase"] == wanted)
        return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[NotebookSite]:
    accounts = {
        "ada": Account("ada", scopes=(USE, ADMIN), groups={"project-vision", "project-speech"}),
        "grace": Account("grace", groups={"project-vision"}),
    }
    async with StandInHub(accounts) as hub, aiohttp.ClientSession() as session:
        scheduler = forked_scheduler(tmp_path, hub.url, "ada", gpus=1)
        await scheduler.start()
        try:
            made = NotebookSite(scheduler, session)
            await made.ready()
            for name, gpus in (("vision", 0), ("speech", 1)):
                await made.post("/projects", {"name": name, "quota": {"gpus": gpus}})
            yield made
            await end_everything(made)
        finally:
            await scheduler.stop()


async def end_everything(site: NotebookSite) -> None:
    """Tasks outlive their scheduler; a test leaves nothing behind."""
    headers = {"Authorization": "token ada"}
    for one in (await site.get("/workloads"))["items"]:
        url = f"{site.scheduler.api}/workloads/{one['project']}/{one['name']}"
        async with aiohttp.ClientSession(headers=headers) as session:
            await session.delete(url)
    await site.until("/workloads", lambda found: not found["items"])


def notebook(*cells: tuple[str, list[str]]) -> str:
    made: list[Json] = [
        {
            "cell_type": "code",
            "metadata": {"tags": tags},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for source, tags in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})


async def test_a_reclaimed_notebook_goes_on_from_its_restart_point(site: NotebookSite) -> None:
    waits = (
        "import pathlib, time\nhome = pathlib.Path.home()\n(home / 'waits').touch()\n"
        "while not (home / 'go').exists():\n    time.sleep(0.1)"
    )
    text = notebook(
        ("rate = 1", ["parameters"]),
        ("print('dear', rate)", []),
        ("print('cheap', rate)", ["restart-point"]),
        (waits, []),
        ("print('end')", []),
    )
    body = {
        "kind": "notebook",
        "name": "night",
        "project": "vision",
        "gpus": 1,
        "grace_seconds": 60.0,
        "files": {"work.ipynb": text},
        "notebook": {"path": "work.ipynb", "parameters": {"rate": 7}},
    }
    await site.post("/workloads", body)
    path = "/workloads/vision/night"
    seen = await site.until(path, lambda one: (one["status"]["notebook"] or {}).get("cell") == 4)
    output = Path(seen["status"]["notebook"]["output"])
    assert output == site.homes / "ada" / "work.night.ipynb"
    assert "dear 7" in output.read_text()
    assert seen["status"]["progress"]["unit"] == "cell"

    await site.crash()
    again = await site.phase(path, "running")
    assert again["status"]["notebook"] == seen["status"]["notebook"]
    assert (again["status"]["attempt"], again["status"]["failures"]) == (0, 0)

    claim = {"name": "due", "project": "speech", "gpus": 1, "command": ["sleep", "600"]}
    await site.post("/workloads", claim)
    await site.phase("/workloads/speech/due", "running")
    waiting = await site.phase(path, "pending")
    assert waiting["status"]["last_preemption"]["for_project"] == "speech"
    (site.homes / "ada" / "go").touch()
    await site.post("/workloads/speech/due/suspend", {})
    done = await site.phase(path, "succeeded")
    assert done["status"]["notebook"] == {
        "cell": 6,
        "cells": 6,
        "output": str(output),
        "resumed_from": 4,
        "error": "",
        "code": "",
    }
    said = output.read_text()
    assert said.count("dear 7") == said.count("cheap 7") == 1
    assert "end" in said


async def test_a_failing_cell_is_the_reason_and_a_schedule_waits_for_its_time(
    site: NotebookSite,
) -> None:
    body = {
        "kind": "notebook",
        "name": "broken",
        "project": "vision",
        "files": {"work.ipynb": notebook(("x = 1", []), ("{}['loss']", []))},
        "notebook": {"path": "work.ipynb"},
    }
    await site.post("/workloads", body)
    failed = await site.phase("/workloads/vision/broken", "failed")
    sentence = "Failed: Cell 2 of 2 failed: KeyError: 'loss'. "
    assert failed["status"]["reason"]["sentence"].startswith(sentence)
    assert failed["status"]["notebook"]["code"] == "cell_failed"
    clock = {"cron": "0 0 1 1 *", "time_zone": "Europe/Berlin"}
    work = {"kind": "schedule", "name": "yearly", "project": "vision", "schedule": clock}
    await site.post("/workloads", {**work, "notebook": {"path": "/a.ipynb"}})
    path = "/workloads/vision/yearly"
    begun = await site.phase(path, "running")
    assert begun["status"]["schedule"]["next_at"] > begun["created_at"]
    assert begun["spec"]["command"][-1] == "carrel.job.notebook"
    await site.post(f"{path}/suspend", {})
    assert (await site.phase(path, "stopped"))["status"]["schedule"]["next_at"] is None
    await site.post(f"{path}/resume", {})
    again = await site.phase(path, "running")
    assert again["status"]["schedule"]["next_at"] == begun["status"]["schedule"]["next_at"]
