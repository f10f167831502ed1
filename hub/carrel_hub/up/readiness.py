"""When a part can be used: asked over HTTP until it answers or has ended."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from carrel_hub.keys import Keys
from carrel_hub.settings import Settings
from carrel_hub.up.parts import Part
from carrel_hub.up.supervisor import Supervisor
from carrel_hub.up.trouble import Trouble

PATIENCE_SECONDS: Final = 180.0
PAUSE_SECONDS: Final = 0.15


def probes(settings: Settings, keys: Keys) -> dict[str, tuple[str, dict[str, str]]]:
    """For each part the page that answers once it is usable, and headers to ask with."""
    return {
        "proxy": (
            f"http://127.0.0.1:{settings.ports.proxy_api}/ping",
            {},
        ),
        "scheduler": (
            f"{settings.api_url}/api/v1/openapi.json",
            {"Authorization": f"token {keys.setup}"},
        ),
        # Through the proxy: the Hub answers by itself before it has given its own route there.
        "hub": (
            f"{settings.front_url}/hub/api/",
            {"Host": urlsplit(settings.public_url).netloc},
        ),
        "console": (
            f"{settings.front_url}/services/console/",
            {"Host": urlsplit(settings.public_url).netloc},
        ),
        "gateway": (f"{settings.gateway_url}/services/gateway/health", {}),
    }


def health(settings: Settings, keys: Keys) -> dict[str, tuple[str, dict[str, str]]]:
    """For each part a page that it answers at once and by itself, and headers to ask with."""
    return probes(settings, keys) | {
        "scheduler": (f"{settings.api_url}/health", {}),
        "hub": (f"{settings.hub_url}/hub/health", {}),
        "console": (f"{settings.console_url}/services/console/static/console.css", {}),
    }


async def wait(part: Part, url: str, headers: dict[str, str], supervisor: Supervisor) -> None:
    """Wait until ``url`` answers without an error. Raises ``Trouble``."""
    timeout = aiohttp.ClientTimeout(total=5)
    try:
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
        ):
            while True:
                supervisor.check(part)
                if await _answers(session, url):
                    return
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError:
        raise Trouble(
            f"{part.shown} did not answer within {PATIENCE_SECONDS:.0f} s; its log: {part.log}"
        ) from None


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        # Our own certificate may bear any name, and what is asked for here is no secret.
        async with session.get(url, allow_redirects=False, ssl=False) as response:
            return response.status < 400
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return False
