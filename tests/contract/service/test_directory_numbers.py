"""Work under the numbers that the directory gives its user, through the whole scheduler."""

import asyncio
import os

from carrel.client import AsyncClient
from carrel_schema.governance.people import PosixIdentity
from contract.service.jobs import TIMEOUT_SECONDS, client, ended, log_of, submit

__all__ = ["client"]  # a fixture


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
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in client.events("vision", "second"):
            reason = event.workload.status.reason
            if reason is not None and "the directory has no uid of hers" in reason.sentence:
                break
