"""The site of all kinds of work, and the gateway to it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from carrel_hub.gateway.app import running
from carrel_hub.gateway.settings import GatewaySettings
from k8s.cluster.node import Node
from k8s.cluster_service import TIMEOUT_SECONDS, ClusterService
from k8s.ours import Kubectl
from k8s.served import Shell


@dataclass(frozen=True, slots=True)
class Site:
    """The site of the tests: ``prints`` and ``prose`` are projects of four GPUs each."""

    service: ClusterService
    shell: Shell
    kubectl: Kubectl
    node: Node
    gateway: str
    folder: Path

    async def asked(self, path: str) -> tuple[int, str]:
        """The gateway's answer to ada."""
        headers = {"Authorization": "Bearer ada"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{self.gateway}/{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def until_asked(self, path: str, met: Callable[[int, str], bool]) -> None:
        """Ask until the answer is as it should be."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not met(*await self.asked(path)):  # noqa: ASYNC110 - nobody sets an event of ours
                await asyncio.sleep(0.2)


@asynccontextmanager
async def gateway(service: ClusterService) -> AsyncIterator[str]:
    """A gateway on this machine; pods have addresses that it reaches."""
    settings = GatewaySettings(
        prefix="/services/gateway/",
        hub_prefix="/hub/",
        hub_api_url=service.hub_url,
        host="127.0.0.1",
        port=0,
        api_url=service.scheduler.url,
        client_id="service-gateway",
        token="gate",
    )
    async with running(settings) as port:
        yield f"http://127.0.0.1:{port}/services/gateway"
