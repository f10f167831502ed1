"""Probes: whether the Hub, the proxy and the gateway answer the scheduler.

They are asked side by side every half minute, beside the decisions; any answer but an error of the
server counts. What they answer is not read.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from carrel_scheduler.periodic import run_periodically
from carrel_scheduler.service.settings import ServiceSettings

log = logging.getLogger(__name__)
PAUSE_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 5.0


def addresses(settings: ServiceSettings) -> dict[str, str]:
    """The address that is asked of each part; parts without a known address are left out."""
    front = settings.front_url.rstrip("/")
    found = {
        "Hub": f"{settings.hub_api_url.rstrip('/')}/",
        "proxy": f"{front}{urlsplit(settings.hub_api_url).path.rstrip('/')}/" if front else "",
        "gateway": f"{settings.gateway_url}/health" if settings.gateway_url else "",
    }
    return {name: url for name, url in found.items() if url}


class PartProbes:
    """Probes the other parts periodically.

    Args:
        urls: of the parts, by name.
        host: the name that the proxy is asked by; empty: that of its address.
        ask: asks one address; returns why it gave no answer, empty for one.

    Attributes:
        found: what came of the last questions, by the part's name.
    """

    def __init__(
        self,
        urls: Mapping[str, str],
        host: str = "",
        ask: Callable[[str, Mapping[str, str]], Coroutine[Any, Any, str]] | None = None,
    ) -> None:
        self._urls, self._host = urls, host
        self._ask = ask or answers
        self.found: dict[str, str] = {}

    async def run(self) -> None:
        """Probe until cancelled."""
        await run_periodically(self.once, PAUSE_SECONDS, log, "other parts were not asked")

    async def once(self) -> None:
        """Probe each part once."""
        names = list(self._urls)
        answered = await asyncio.gather(*(self._ask_part(name) for name in names))
        self.found = dict(zip(names, answered, strict=True))

    async def _ask_part(self, name: str) -> str:
        headers = {"Host": self._host} if name == "proxy" and self._host else {}
        return await self._ask(self._urls[name], headers)


async def answers(url: str, headers: Mapping[str, str]) -> str:
    """Ask one address; returns why it gave no answer, as the end of a sentence."""
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        # Our own certificate may bear any name, and nothing secret is asked for.
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=headers, allow_redirects=False, ssl=False) as response,
        ):
            return f"answered {response.status}" if response.status >= 500 else ""
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return f"does not answer ({type(error).__name__})"
