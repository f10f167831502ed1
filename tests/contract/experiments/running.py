"""A real scheduler on a local engine with simulated GPUs, and experiments on it."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.stacks import end_all_below
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from carrel import AsyncClient
from carrel.models import Workload
from carrel_schema.answers import TrialOut, Trials
from contract.schedulers import forked_scheduler

# For a machine many times slower than any that this is likely to run on.
TIMEOUT_SECONDS = 400.0
PAUSE_SECONDS = 0.1
VISION = "vision"
SPEECH = "speech"


@dataclass
class Lab:
    """A scheduler with two projects, and a client that sees both."""

    scheduler: SchedulerProcess
    client: AsyncClient
    session: aiohttp.ClientSession
    folder: Path

    async def project(self, name: str, gpus: int) -> None:
        await self.client.create_project({"name": name, "quota": {"gpus": gpus}})

    async def sweep(
        self,
        script: str,
        experiment: Mapping[str, Any],
        *arguments: str,
        name: str = "sweep",
        **more: Any,
    ) -> Workload:
        """Submit an experiment of `vision` whose trials run a Python script."""
        body = {
            "name": name,
            "project": VISION,
            "kind": "experiment",
            "command": ["python", "trial.py", *arguments],
            "files": {"trial.py": script},
            "environment": {"SHARED": str(self.folder)},
            "volumes": [{"source": str(self.folder)}],
            "gpus": 1,
            "experiment": dict(experiment),
            **more,
        }
        return await self.client.create_workload(body)

    async def until(
        self, met: Callable[[Workload], bool], name: str = "sweep", project: str = VISION
    ) -> Workload:
        """The workload once a condition holds."""
        last = None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    last = await self.client.get_workload(project, name)
                    if met(last):
                        return last
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"not in time: {last}\n{self._said()}") from error

    async def until_at_rest(self, name: str = "sweep") -> Workload:
        return await self.until(lambda found: found.status.phase in ("succeeded", "failed"), name)

    async def until_trials(self, met: Callable[[Mapping[int, Workload]], bool]) -> None:
        """Wait for a condition on the trials' workloads by number."""
        found: dict[int, Workload] = {}
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not met(found):
                    await asyncio.sleep(PAUSE_SECONDS)
                    found = await self.workloads()
        except TimeoutError as error:
            raise AssertionError(f"not in time: {found}\n{self._said()}") from error

    async def workloads(self, name: str = "sweep") -> dict[int, Workload]:
        """The trials' workloads by number."""
        owner = {"carrel.dev/owner": name}
        listed = await self.client.list_workloads(VISION, kind="trial", labels=owner)
        return {one.spec.part: one for one in listed}

    async def trials(self, name: str = "sweep") -> Trials:
        return await self.client.trials(VISION, name)

    async def rows(self, name: str = "sweep") -> list[TrialOut]:
        return list((await self.trials(name)).items)

    async def said(self, workload: str, attempt: int | None = None) -> str:
        """The output of a workload."""
        pieces = self.client.logs(VISION, workload, attempt=attempt)
        return "".join([text async for text in pieces])

    async def restart(self) -> None:
        """Kill the scheduler as a power cut would, and start another."""
        await self.scheduler.kill()
        await self.scheduler.start()
        await self.scheduler.ready(self.session)

    def _said(self) -> str:
        return self.scheduler.log.read_text()[-3000:]


@asynccontextmanager
async def running(folder: Path, gpus: int) -> AsyncIterator[Lab]:
    """A lab with so many GPUs; everything that it started has ended afterwards."""
    groups = {f"project-{VISION}", f"project-{SPEECH}"}
    accounts = {"ada": Account("ada", scopes=(USE, ADMIN), groups=groups)}
    (folder / "state").mkdir()
    async with (
        StandInHub(accounts) as hub,
        aiohttp.ClientSession(headers={"Authorization": "token ada"}) as session,
    ):
        scheduler = forked_scheduler(folder / "state", hub.url, "ada", gpus=gpus)
        await scheduler.start()
        # Where users are kept apart, a task sees only volumes that its user reaches.
        shared = Path(tempfile.mkdtemp(prefix="carrel-sweep-", dir="/var/tmp"))
        shared.chmod(0o777)
        try:
            await scheduler.ready(session)
            async with AsyncClient(scheduler.url, "ada") as client:
                lab = Lab(scheduler, client, session, shared)
                yield lab
                await _sweep_up(lab)
        finally:
            await scheduler.stop()
            await asyncio.to_thread(end_all_below, folder)
            shutil.rmtree(shared)


async def _sweep_up(lab: Lab) -> None:
    """Delete all work after the test."""
    for found in await lab.client.list_workloads():
        await lab.client.delete_workload(found.project, found.name)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await lab.client.list_workloads():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(PAUSE_SECONDS)


def most_at_once(histories: Mapping[int, Any], since: float = 0.0) -> int:
    """The largest number of workloads that held resources at the same time, from their rows."""
    changes: list[tuple[float, int]] = []
    for history in histories.values():
        held = False
        for row in history.transitions:
            holds = row.to_phase in ("starting", "running", "preempting", "stopping")
            if holds != held:
                changes.append((max(row.at, since), 1 if holds else -1))
            held = holds
    most = now = 0
    for _, step in sorted(changes):
        now += step
        most = max(most, now)
    return most


async def run_python(lab: Lab, folder: Path, *words: str) -> str:
    """What a Python command prints in a process of its own, with the token of a user."""
    environment = {
        **os.environ,
        "CARREL_URL": lab.scheduler.url,
        "CARREL_TOKEN": "ada",
        "CARREL_PROJECT": VISION,
    }
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)
