"""A scheduler with a client of ada's, and jobs of hers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stacks import end_all_below
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from carrel.client import AsyncClient
from carrel_scheduler.api.principals.identity import SPAWN
from contract.schedulers import forked_scheduler

TIMEOUT_SECONDS = 240.0


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    """A client of ada's, with a scheduler that knows the Hub by the token ``hub``."""
    accounts = {
        "ada": Account("ada", scopes=(USE, ADMIN), groups={"project-vision"}),
        "hub": Account("hub", scopes=(USE, SPAWN)),
    }
    (tmp_path / "service").mkdir()
    async with StandInHub(accounts) as hub:
        scheduler = forked_scheduler(tmp_path / "service", hub.url, "ada")
        url = scheduler.api.removesuffix("/api/v1")
        async with AsyncClient(url, "ada") as found:
            try:
                await scheduler.start()
                await scheduler.ready(found._transport.session)
                await found.create_project({"name": "vision", "quota": {"gpus": 2}})
                yield found
            finally:
                await scheduler.stop()
                end_all_below(tmp_path)  # as an endpoint, which outlives the scheduler


async def submit(client: AsyncClient, name: str, command: str, **fields: Any) -> None:
    body = {"project": "vision", "name": name, "command": ["sh", "-c", command], **fields}
    await client.create_workload(body)


async def ended(client: AsyncClient, *names: str) -> list[str]:
    jobs = await client.wait([("vision", name) for name in names], timeout=TIMEOUT_SECONDS)
    return [job.status.phase for job in jobs]


async def log_of(client: AsyncClient, name: str) -> str:
    return "".join([piece async for piece in client.logs("vision", name)])
