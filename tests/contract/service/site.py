"""A scheduler service with a project, and what tests of work on it ask again and again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from contract.schedulers import forked_scheduler

TIMEOUT_SECONDS = 480.0


class Site:
    """The service as the member ``ada`` of project ``vision`` sees it."""

    def __init__(self, scheduler: SchedulerProcess, session: aiohttp.ClientSession) -> None:
        self.scheduler, self._session = scheduler, session

    async def submit(self, name: str, **fields: Any) -> str:
        """Submit to ``vision``; returns the uid."""
        body = {"name": name, "project": "vision", **fields}
        made = await self.ask("POST", "/workloads", body)
        return str(made["uid"])

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        url = f"{self.scheduler.api}{path}"
        async with self._session.request(method, url, json=body) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json() if answer.content_type == "application/json" else None

    async def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask("GET", f"/workloads/vision/{name}")
        return found

    async def logs(self, name: str, **query: str) -> str:
        url = f"{self.scheduler.api}/workloads/vision/{name}/logs"
        async with self._session.get(url, params=query) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()

    async def said(self, name: str, end: str = "", **query: str) -> str:
        """The output of a job, once there is some that ends with ``end``."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                text = await self.logs(name, **query)
                if text and text.endswith(end):
                    return text
                await asyncio.sleep(0.1)

    async def until(
        self, name: str, met: Callable[[dict[str, Any]], bool], why: str = ""
    ) -> dict[str, Any]:
        """The workload's status once it is as wanted."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    status = (await self.get(name))["status"]
                    if met(status):
                        return status
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{name} {why}: {status}") from None

    async def phase(self, name: str, phase: str) -> dict[str, Any]:
        return await self.until(name, lambda status: status["phase"] == phase, f"gets {phase}")

    def checkpoints(self, uid: str) -> Path:
        return self.scheduler.state_dir / "engine" / "checkpoints" / uid

    async def restart(self) -> None:
        """SIGKILL the scheduler and start it again."""
        await self.scheduler.kill()
        await self.scheduler.start()
        await self.scheduler.ready(self._session)


@asynccontextmanager
async def site(
    state_dir: Path,
    gpus: int,
    quota: int | None = None,
    more: Mapping[str, str] | None = None,
) -> AsyncIterator[Site]:
    accounts = {"ada": Account("ada", scopes=(USE, ADMIN), groups={"project-vision"})}
    async with (
        StandInHub(accounts) as hub,
        aiohttp.ClientSession(headers={"Authorization": "token ada"}) as session,
    ):
        scheduler = forked_scheduler(state_dir, hub.url, "ada", gpus=gpus, more=more)
        await scheduler.start()
        try:
            await scheduler.ready(session)
            made = Site(scheduler, session)
            quota = gpus if quota is None else quota
            await made.ask("POST", "/projects", {"name": "vision", "quota": {"gpus": quota}})
            yield made
            await _end_all(made)
        finally:
            await scheduler.stop()


async def _end_all(made: Site) -> None:
    """End everything after a test."""
    page = await made.ask("GET", "/workloads?project=vision")
    for item in page["items"]:
        await made.ask("DELETE", f"/workloads/vision/{item['name']}")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            if not (await made.ask("GET", "/workloads?project=vision"))["items"]:
                return
            await asyncio.sleep(0.1)
