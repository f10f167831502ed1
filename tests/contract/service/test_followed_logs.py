"""``carrel logs -f`` goes on over all attempts of a job, and waits for one that is pending."""

import asyncio
import os
import sys

from carrel.client import AsyncClient
from contract.service.jobs import TIMEOUT_SECONDS, client

__all__ = ["client"]
TWICE = 'echo "attempt $CARREL_ATTEMPT"; exit $((1 - CARREL_ATTEMPT))'


async def test_the_output_of_every_attempt_is_shown(client: AsyncClient) -> None:
    body = {"project": "vision", "name": "first", "command": ["sleep", "600"], "gpus": 4}
    await client.create_workload({**body, "backoff_limit": 0})
    command = ["sh", "-c", TWICE]
    await client.create_workload({**body, "name": "x", "gpus": 1, "command": command})
    async for event in client.events("vision", "x"):
        if event.workload.status.reason is not None:
            break
    settings = client.settings
    environment = {**os.environ, "CARREL_URL": settings.url, "CARREL_TOKEN": settings.token}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "carrel.cli", "logs", "x", "-f", "-p", "vision",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        waits = await process.stderr.readline()  # it looks before the first attempt begins
        await client.delete_workload("vision", "first")
        output, notes = await process.communicate()
    assert waits
    assert output == b"attempt 0\nattempt 1\n"
    # Why there is another attempt is said where it is seen between the two.
    assert notes.endswith(b"Attempt 2 of x:\n")
    assert process.returncode == 0
