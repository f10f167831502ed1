"""A real scheduler and a gateway before it, with a Hub that answers who people are."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.ports import free_port
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.stacks import end_all_below
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from carrel_hub.gateway.app import running
from carrel_hub.gateway.settings import GatewaySettings
from contract.schedulers import forked_scheduler

TIMEOUT_SECONDS = 240.0
COME = "access:services!service=gateway"
SERVER = Path(__file__).with_name("server.py")


def accounts() -> dict[str, Account]:
    """Two members of vision, one of speech, an admin, the gateway itself."""
    return {
        "ada": Account("ada", (USE, ADMIN, COME), {"project-vision"}),
        "bea": Account("bea", (USE, COME), {"project-vision"}),
        "carl": Account("carl", (USE, COME), {"project-speech"}),
        "narrow": Account("narrow", (USE,), {"project-vision"}),
        "gate": Account("gate", ("custom:carrel:gateway",)),
        "scraper": Account("scraper", ("custom:carrel:metrics",)),
    }


class GatewaySite:
    """A running scheduler and gateway, and requests to both."""

    def __init__(
        self, scheduler: SchedulerProcess, gateway: str, session: aiohttp.ClientSession
    ) -> None:
        self.scheduler, self.gateway, self.session = scheduler, gateway, session

    def address(self, path: str) -> str:
        """The URL of a path at the gateway."""
        return f"{self.gateway}/services/gateway/{path}"

    async def api(self, method: str, path: str, who: str = "ada", body: Any = None) -> Any:
        """The scheduler's API; raises ``AssertionError`` when refused."""
        async with self.session.request(
            method,
            self.scheduler.api + path,
            json=body,
            headers={"Authorization": f"token {who}"},
        ) as answer:
            text = await answer.text()
            assert answer.status < 300, text
            return await answer.json() if text else None

    async def ask(
        self, method: str, path: str, who: str | None = "ada", **options: Any
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """The gateway as somebody: status, body, headers."""
        headers = dict(options.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {who}"
        async with self.session.request(
            method, self.address(path), headers=headers, allow_redirects=False, **options
        ) as answer:
            return answer.status, await answer.read(), answer.headers

    async def submit(self, name: str, **fields: Any) -> dict[str, Any]:
        """An endpoint of ada's that runs ``server.py``."""
        body = {
            "name": name,
            "project": "vision",
            "kind": "inference",
            "command": ["python", "server.py"],
            "files": {"server.py": SERVER.read_text()},
            "inference": {"readiness_path": "/healthz"},
            "grace_seconds": 10,
        }
        found: dict[str, Any] = await self.api("POST", "/workloads", body=body | fields)
        return found

    async def status(self, name: str) -> dict[str, Any]:
        """The status of ada's work."""
        found: dict[str, Any] = (await self.api("GET", f"/workloads/vision/{name}"))["status"]
        return found

    async def until(
        self, name: str, met: Callable[[dict[str, Any]], bool], what: str = ""
    ) -> dict[str, Any]:
        """The status once it is as it should be."""
        found: dict[str, Any] = await until(lambda: self.status(name), met, what or name)
        return found

    async def until_ready(self, name: str, count: int = 1) -> dict[str, Any]:
        """The status once so many replicas are ready, and the gateway knows."""
        status = await self.until(name, lambda one: (one["endpoint"] or {}).get("ready") == count)
        if count:
            await until(
                lambda: self.ask("GET", f"vision/{name}/healthz"),
                lambda answer: answer[0] == 200,
                f"{name} at the gateway",
            )
        return status


async def until(read: Callable[[], Awaitable[Any]], met: Callable[[Any], bool], what: str) -> Any:
    """Read until a condition is met; returns what was read."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        found = await read()
        if met(found):
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come; it is {found}")
        await asyncio.sleep(0.1)


@asynccontextmanager
async def gateway_site(folder: Path, gpus: int = 2) -> AsyncIterator[GatewaySite]:
    """A scheduler whose GPUs all belong to vision, and a gateway in this process."""
    async with StandInHub(accounts()) as hub, aiohttp.ClientSession() as session:
        gateway = free_port()
        told = {"CARREL_GATEWAY_URL": f"http://127.0.0.1:{gateway}/services/gateway"}
        scheduler = forked_scheduler(folder, hub.url, "ada", gpus=gpus, more=told)
        await scheduler.start()
        try:
            async with aiohttp.ClientSession(headers={"Authorization": "token ada"}) as asking:
                await scheduler.ready(asking)
            settings = GatewaySettings(
                prefix="/services/gateway/",
                hub_prefix="/hub/",
                hub_api_url=hub.url,
                host="127.0.0.1",
                port=gateway,
                api_url=scheduler.url,
                client_id="service-gateway",
                public_url=f"http://localhost:{gateway}",
                token="gate",
            )
            async with running(settings) as port:
                made = GatewaySite(scheduler, f"http://127.0.0.1:{port}", session)
                body = {"name": "vision", "quota": {"gpus": gpus}}
                await made.api("POST", "/projects", body=body)
                yield made
        finally:
            await scheduler.stop()
            await asyncio.to_thread(end_all_below, folder)
