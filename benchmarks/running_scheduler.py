"""A scheduler with a stand-in for the Hub, for the length of a measurement."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp

from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.stacks import end_all_below
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub

ADA: Final = "a"
"""Her token."""


@asynccontextmanager
async def running_scheduler(
    state: Path, *, folder: Path, gpus: int = 4, people: Mapping[str, Account] | None = None
) -> AsyncIterator[tuple[SchedulerProcess, aiohttp.ClientSession]]:
    """The scheduler, and a session of ada's, who administers it and is in project ``vision``.

    Args:
        state: its state folder; made here.
        folder: what runs below it has ended afterwards.
        gpus: how many it simulates.
        people: further ones, by their tokens.
    """
    accounts = {**(people or {}), ADA: Account("ada", (USE, ADMIN), {"project-vision"})}
    state.mkdir(mode=0o700)
    async with (
        StandInHub(accounts) as hub,
        aiohttp.ClientSession(headers={"Authorization": f"token {ADA}"}) as session,
    ):
        scheduler = SchedulerProcess(state, hub.url, ADA, gpus=gpus)
        try:
            await scheduler.start()
            await scheduler.ready(session)
            yield scheduler, session
        finally:
            await scheduler.stop()
            await asyncio.to_thread(end_all_below, folder)
