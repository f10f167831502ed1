"""Requests that do not arrive in time end; the relay of events lasts."""

import asyncio

import pytest

from carrel.testing import FakeScheduler
from contract.console import scene
from contract.console.site import Clock, Site, Visitor
from contract.console.test_events import TIMEOUT_SECONDS, listening, stopped

HEAD = "POST /services/console/submit HTTP/1.1\r\nHost: x\r\n"


async def hung_up(site: Site, sent: str) -> bytes:
    """What comes until the server hangs up."""
    port = int(site.origin.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent.encode())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("rest", ["X-Mo", "Content-Length: 9\r\n\r\na="])
async def test_half_a_request_is_hung_up_on_and_the_relay_lasts(rest: str) -> None:
    clock = Clock()
    with FakeScheduler(people=scene.PEOPLE, tcp=True, now=clock) as fake:
        scene.build(fake, clock)
        async with (
            Site(fake, clock, request_seconds=0.3) as site,
            Visitor(site, "ada") as visitor,
        ):
            listener, task = await listening(visitor)
            await listener.until(1)
            seen = len(listener.changes)
            assert await hung_up(site, HEAD + rest) == b""
            fake.report("vision", "train-8", step=1, metrics={"loss": 1.0})
            await listener.until(seen + 1)
            await stopped(task)
