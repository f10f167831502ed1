"""A scheduler that the API server does not know says so where it is asked, and asks seldom."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from carrel_scheduler.engines.kubernetes.leadership import Clocks, Leader
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.transport import NOT_KNOWN, CredentialsBreaker, KubeTransport
from carrel_scheduler.service.listening import serve_trouble
from k8s.cluster.waiting import free_port

TIMEOUT_SECONDS = 60.0
pytestmark = [pytest.mark.enable_socket]


class Server:
    """An API server of one lease, which nobody may see until ``knows``."""

    def __init__(self) -> None:
        self.knows = False
        self.asked = 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        if not self.knows:
            return _refused(401, "Unauthorized")
        if request.method == "GET":
            return _refused(404, "NotFound")
        return web.json_response(await request.json())


def _refused(status: int, reason: str) -> web.Response:
    said = {"kind": "Status", "reason": reason, "message": reason, "code": status}
    return web.json_response(said, status=status)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    made.url = f"http://127.0.0.1:{port}"
    yield made
    await runner.cleanup()


def kubeconfig(folder: Path, url: str) -> Path:
    said = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "withdrawn"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "config"
    path.write_text(json.dumps(said))
    return path


class Times:
    """A clock that stands still for the circuit breaker; waiting for the lease takes no time."""

    now = 0.0

    async def pause(self, _: float) -> None:
        await asyncio.sleep(0.01)


async def told(port: int) -> tuple[int, Any]:
    """What the waiting scheduler answers, once it does."""
    async with asyncio.timeout(TIMEOUT_SECONDS), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/services/carrel/ready") as found:
                    return found.status, await found.json()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


async def test_it_waits_unready_with_the_reason_until_it_is_known(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = Times()
    credentials = from_kubeconfig(kubeconfig(tmp_path, server.url))
    transport = KubeTransport(credentials, breaker=CredentialsBreaker(lambda: times.now))
    client = KubeClient(credentials, transport)
    clocks = Clocks(lambda: 0.0, lambda: 0.0, times.pause)
    leader = Leader(client, "carrel-system", "me", clocks)
    port = free_port()
    saying = asyncio.create_task(serve_trouble(lambda: client.trouble, port, "127.0.0.1"))
    with caplog.at_level(logging.INFO):
        leading = asyncio.create_task(leader.acquire())
        assert await told(port) == (503, {"ready": False, "reason": NOT_KNOWN})
        asked = server.asked
        await asyncio.sleep(1.0)  # a hundred tries of the lease
        assert server.asked == asked
        server.knows = True
        times.now += 60.0
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await leading == 1
    assert client.trouble == ""
    saying.cancel()
    await asyncio.gather(saying, return_exceptions=True)
    await client.close()
    words = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    failing = [one for one in words if one.startswith("requests to the Kubernetes API fail")]
    assert sum(NOT_KNOWN in one for one in failing) == 1
    assert sum(one.startswith("the lease can not be read") for one in words) == 1
    assert "withdrawn" not in caplog.text.replace("was withdrawn", "")
