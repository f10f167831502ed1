"""A real proxy process, and small servers for it to pass requests to."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from benchmarks.ports import free_port

TOKEN = "only-the-hub-knows"
START_SECONDS = 120.0
PATIENCE_SECONDS = 60.0
# More than any of these tests needs, so that nothing hangs for ever.
PATIENCE = aiohttp.ClientTimeout(total=180)


class ProxyProcess:
    """``python -m carrel_hub.proxy`` on ports of its own."""

    def __init__(self, folder: Path, *more: str, environment: Mapping[str, str] = {}) -> None:
        self.port, self.api_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.api = f"http://127.0.0.1:{self.api_port}/api/routes"
        self.log = folder / f"proxy-{self.port}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "carrel_hub.proxy"),
                    *("--ip", "127.0.0.1", "--port", str(self.port)),
                    *("--api-ip", "127.0.0.1", "--api-port", str(self.api_port), *more),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "CONFIGPROXY_AUTH_TOKEN": TOKEN, **environment},
            )
        self._wait()

    def stop(self) -> None:
        """As its supervisor does."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_SECONDS)

    def resident_mib(self) -> float:
        """Memory held now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    async def add(self, prefix: str, target: str, **data: Any) -> None:
        """As the Hub does."""
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"token {TOKEN}"}) as hub,
            hub.post(f"{self.api}{prefix}", json={"target": target, **data}) as answer,
        ):
            assert answer.status == 201, await answer.text()

    async def last_activity(self, prefix: str) -> datetime:
        """What the Hub reads."""
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"token {TOKEN}"}) as hub,
            hub.get(self.api) as answer,
        ):
            return datetime.fromisoformat((await answer.json())[prefix]["last_activity"])

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the proxy ended:\n{self.log.read_text()}")
            try:
                with urllib.request.urlopen(f"{self.url}/_chp_healthz", timeout=20):
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"the proxy did not start:\n{self.log.read_text()}")


@asynccontextmanager
async def serving(*routes: web.RouteDef) -> AsyncIterator[str]:
    """A server of the test; gives its address."""
    app = web.Application(client_max_size=2**30)
    app.add_routes(routes)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
