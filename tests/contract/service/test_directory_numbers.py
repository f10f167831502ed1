"""Work under the numbers that the directory gives its user, through the whole scheduler."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.stacks import end_all_below
from benchmarks.standin_hub import Account, StandInHub
from carrel.client import AsyncClient
from carrel_scheduler.api.principals.identity import ADMIN, SPAWN, USE
from carrel_schema.governance.people import PosixIdentity
from contract.schedulers import forked_scheduler
from contract.service.test_after import ended, submit
from contract.service.test_named_secrets import log_of
from contract.service.test_results_of_cells import PATIENCE_SECONDS


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
                end_all_below(tmp_path)


async def test_a_job_runs_under_them_or_says_why_not(client: AsyncClient) -> None:
    hub = AsyncClient(client.settings.url, "hub", session=client._transport.session)
    await hub.put_user_identity("ada", PosixIdentity(uid=420_101, gid=430_101, gids=(430_102,)))
    await submit(client, "first", "id -u; id -G")
    assert await ended(client, "first") == ["succeeded"]
    numbers = (await log_of(client, "first")).split()
    if os.geteuid() == 0:
        assert numbers == ["420101", "430101", "430102"]
    await hub.put_user_identity("ada", PosixIdentity(problem="the directory has no uid of hers"))
    await submit(client, "second", "true", backoff_limit=0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for event in client.events("vision", "second"):
            reason = event.workload.status.reason
            if reason is not None and "the directory has no uid of hers" in reason.sentence:
                break
