"""Notebook jobs and TensorBoards on a real scheduler: reclaimed, resumed, shown to colleagues."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub

PATIENCE_SECONDS = 120.0
Json = dict[str, Any]


class House:
    """A scheduler with one GPU, and two people in two projects."""

    def __init__(self, scheduler: SchedulerProcess, session: aiohttp.ClientSession) -> None:
        self.scheduler, self._session = scheduler, session
        self.homes = scheduler.state_dir / "engine" / "homes"

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

    async def page(self, url: str) -> Any:
        try:
            async with self._session.get(url) as answer:
                return await answer.json() if answer.status == 200 else None
        except aiohttp.ClientError:
            return None

    async def until(self, path: str, met: Callable[[Any], bool], url: str = "") -> Any:
        """What a path, or any URL, gives once it is as it should be."""
        found = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    found = await (self.page(url) if url else self.get(path))
                    if met(found):
                        return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{path or url} stayed {json.dumps(found)[:3000]}") from None

    async def phase(self, path: str, wanted: str) -> Json:
        found: Json = await self.until(path, lambda one: one["status"]["phase"] == wanted)
        return found


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    accounts = {
        "ada": Account("ada", scopes=(USE, ADMIN), groups={"project-vision", "project-speech"}),
        "grace": Account("grace", groups={"project-vision"}),
    }
    async with StandInHub(accounts) as hub, aiohttp.ClientSession() as session:
        scheduler = SchedulerProcess(tmp_path, hub.url, "ada", gpus=1)
        await scheduler.start()
        async with aiohttp.ClientSession(headers={"Authorization": "token ada"}) as first:
            await scheduler.ready(first)
        made = House(scheduler, session)
        for name, gpus in (("vision", 0), ("speech", 1)):
            await made.post("/projects", {"name": name, "quota": {"gpus": gpus}})
        try:
            yield made
        finally:
            await end_everything(made)
            await scheduler.stop()


async def end_everything(house: House) -> None:
    """Tasks outlive their scheduler; a test leaves nothing behind."""
    headers = {"Authorization": "token ada"}
    for one in (await house.get("/workloads"))["items"]:
        url = f"{house.scheduler.api}/workloads/{one['project']}/{one['name']}"
        async with aiohttp.ClientSession(headers=headers) as session:
            await session.delete(url)
    await house.until("/workloads", lambda found: not found["items"])


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


async def test_a_reclaimed_notebook_goes_on_from_its_restart_point(house: House) -> None:
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
    await house.post("/workloads", body)
    path = "/workloads/vision/night"
    seen = await house.until(path, lambda one: (one["status"]["notebook"] or {}).get("cell") == 4)
    output = Path(seen["status"]["notebook"]["output"])
    assert output == house.homes / "ada" / "work.night.ipynb"
    assert "dear 7" in output.read_text()
    assert seen["status"]["progress"]["unit"] == "cell"

    claim = {"name": "due", "project": "speech", "gpus": 1, "command": ["sleep", "600"]}
    await house.post("/workloads", claim)
    await house.phase("/workloads/speech/due", "running")
    waiting = await house.phase(path, "pending")
    assert waiting["status"]["last_preemption"]["for_project"] == "speech"
    (house.homes / "ada" / "go").touch()
    await house.post("/workloads/speech/due/suspend", {})
    done = await house.phase(path, "succeeded")
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


async def test_a_failing_cell_is_the_reason_of_the_job(house: House) -> None:
    body = {
        "kind": "notebook",
        "name": "broken",
        "project": "vision",
        "files": {"work.ipynb": notebook(("x = 1", []), ("{}['loss']", []))},
        "notebook": {"path": "work.ipynb"},
    }
    await house.post("/workloads", body)
    failed = await house.phase("/workloads/vision/broken", "failed")
    sentence = "Failed: Cell 2 of 2 failed: KeyError: 'loss'. "
    assert failed["status"]["reason"]["sentence"].startswith(sentence)
    assert failed["status"]["notebook"]["code"] == "cell_failed"


REPORTS = (
    "import carrel\nfor step in range(5):\n    carrel.report(step=step, loss=1 / (1 + step))\n"
)


async def test_tensorboard_shows_a_colleagues_job(house: House) -> None:
    job = {
        "name": "train-1",
        "project": "vision",
        "command": ["python", "train.py"],
        "files": {"train.py": REPORTS},
    }
    await house.post("/workloads", job, user="grace")
    await house.phase("/workloads/vision/train-1", "succeeded")
    board = {
        "kind": "tensorboard",
        "name": "board",
        "project": "vision",
        "tensorboard": {"jobs": ["train-1"]},
    }
    made = await house.post("/workloads", board)
    assert made["spec"]["cpu_millicores"] == 500
    assert made["spec"]["preemptible"] is False
    running = await house.phase("/workloads/vision/board", "running")
    port = running["status"]["tasks"][0]["ports"]["main"]
    base = f"http://127.0.0.1:{port}/services/gateway/vision/board"
    runs = await house.until("", lambda found: found == ["train-1"], f"{base}/data/runs")
    assert runs == ["train-1"]
    url = f"{base}/data/plugin/scalars/scalars?tag=loss&run=train-1"
    points = await house.until("", lambda found: found is not None and len(found) == 5, url)
    assert [point[1] for point in points] == [0, 1, 2, 3, 4]
    assert points[-1][2] == pytest.approx(0.2)


async def test_a_tensorboard_over_nothing_is_refused(house: House) -> None:
    body = {"kind": "tensorboard", "name": "b", "project": "vision"}
    headers = {"Authorization": "token ada"}
    async with aiohttp.ClientSession(headers=headers) as session:
        asked = {**body, "tensorboard": {"jobs": ["train-9"]}}
        async with session.post(f"{house.scheduler.api}/workloads", json=asked) as answer:
            found = await answer.json()
    assert (answer.status, found["code"]) == (422, "unknown_job")
    assert found["errors"][0]["field"] == "tensorboard.jobs.0"
