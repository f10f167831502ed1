"""Named secrets of real jobs: in their environment, and nowhere else."""

import asyncio
from hashlib import sha256

from carrel.client import AsyncClient
from contract.service.jobs import TIMEOUT_SECONDS, client, ended, log_of, submit

__all__ = ["client"]
PLANTED = "planted-9876"
SHOW = 'test -n "$T" && printf %s "$T" | sha256sum | cut -c1-8; env | grep -c SECRET: || true'


async def test_a_job_gets_the_value_that_counts_when_it_starts(client: AsyncClient) -> None:
    for number, value in enumerate((PLANTED, f"{PLANTED}-new")):
        await client.put_secret("hub", "user/ada", {"TOKEN": value})
        name = f"job-{number}"
        await submit(client, name, SHOW, environment={"T": "SECRET:hub,TOKEN"})
        assert await ended(client, name) == ["succeeded"]
        lines = (await log_of(client, name)).split()
        assert lines == [sha256(value.encode()).hexdigest()[:8], "0"]


async def test_a_job_whose_secret_is_gone_says_so(client: AsyncClient) -> None:
    await client.put_secret("hub", "user/ada", {"TOKEN": PLANTED})
    reference = {"T": "SECRET:hub,TOKEN"}
    await submit(client, "later", "sleep 600", environment=reference, backoff_limit=0)
    await phase(client, "later", "running")
    await client.suspend("vision", "later")
    await phase(client, "later", "stopped")
    await client.delete_secret("hub", "user/ada")
    await client.resume("vision", "later")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in client.events("vision", "later"):
            reason = event.workload.status.reason
            if reason is not None and "SECRET:hub,TOKEN" in reason.sentence:
                break
    assert PLANTED not in str(await client.history("vision", "later"))


async def phase(client: AsyncClient, name: str, wanted: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in client.events("vision", name):
            if event.workload.status.phase == wanted:
                return
