"""HTTP probes of the parts: when one is ready, and when one that runs has stopped answering.

For readiness a part is asked until it answers or has ended. For liveness each part is asked a cheap
endpoint; any response, also an error, counts as success. A part is unresponsive only after several
probes in a row failed, so that neither a busy machine nor a pause of `carrel up` itself (a
suspended laptop, SIGSTOP) ends a healthy part.
"""

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from carrel_hub.keys import Keys
from carrel_hub.settings import InstallationSettings
from carrel_hub.up.checks import StartupError
from carrel_hub.up.parts import ProcessPart

UNRESPONSIVE_SECONDS: Final = 10.0
LONGEST_UNRESPONSIVE_SECONDS: Final = 80.0
PAUSE_SECONDS: Final = 2.0
READY_SECONDS: Final = 180.0
READY_PAUSE_SECONDS: Final = 0.15
PROBES: Final = 2
START_SECONDS: Final = 180.0
# Errors of `carrel up` itself say nothing about the part.
_OUR_OWN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})

Ask = Callable[[float], Awaitable[bool]]
"""Asks once; whether an answer came within so many seconds."""


def readiness(settings: InstallationSettings, keys: Keys) -> dict[str, tuple[str, dict[str, str]]]:
    """The readiness probes: for each part the page that answers once it is usable, and headers."""
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


def liveness(settings: InstallationSettings, keys: Keys) -> dict[str, tuple[str, dict[str, str]]]:
    """The liveness probes: for each part a page that it answers at once and alone, and headers."""
    return readiness(settings, keys) | {
        "scheduler": (f"{settings.api_url}/health", {}),
        "hub": (f"{settings.hub_url}/hub/health", {}),
        "console": (f"{settings.console_url}/services/console/static/console.css", {}),
    }


async def until_ready(
    part: ProcessPart, url: str, headers: dict[str, str], check: Callable[[ProcessPart], None]
) -> None:
    """Wait until ``url`` answers without an error. Raises ``StartupError``, as ``check`` does."""
    # A connection that is dropped at a gate would be tried again only after a second.
    timeout = aiohttp.ClientTimeout(total=5, sock_connect=0.5)
    try:
        async with (
            asyncio.timeout(READY_SECONDS),
            aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
        ):
            while True:
                check(part)
                if await _answers(session, url):
                    return
                await asyncio.sleep(READY_PAUSE_SECONDS)
    except TimeoutError:
        raise StartupError(
            f"{part.shown} did not answer within {READY_SECONDS:.0f} s; its log: {part.log}"
        ) from None


def routes_loaded(
    session: aiohttp.ClientSession, settings: InstallationSettings
) -> Callable[[], Awaitable[bool]]:
    """Asks whether the proxy has read its routes: its API, which is one of them, wants a key."""
    url = f"http://127.0.0.1:{settings.ports.proxy_api}/api/overview"
    limit = aiohttp.ClientTimeout(total=5)

    async def ask() -> bool:
        try:
            async with session.get(url, timeout=limit) as response:
                return response.status == 401
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    return ask


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        # Our own certificate may bear any name, and what is asked for here is no secret.
        async with session.get(url, allow_redirects=False, ssl=False) as response:
            return response.status < 400
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        return False


@dataclass(frozen=True, slots=True)
class Watchdog:
    """Watches one part. ``clock`` is monotonic; both it and ``sleep`` are replaced in tests."""

    ask: Ask
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def until_unresponsive(self, seconds: float = UNRESPONSIVE_SECONDS) -> None:
        """Return once a part that was just started has not answered for ``seconds``.

        Until its first answer it may take ``START_SECONDS``.
        """
        if not await self._answers(START_SECONDS, int(START_SECONDS / UNRESPONSIVE_SECONDS)):
            return
        while await self._answers(seconds, PROBES):
            await self.sleep(PAUSE_SECONDS)

    async def _answers(self, seconds: float, questions: int) -> bool:
        """Whether one of so many probes, spread over ``seconds``, succeeds."""
        each = seconds / questions
        for _ in range(questions):
            began = self.clock()
            while (left := began + each - self.clock()) > 0:
                if await self.ask(left):
                    return True
                await self.sleep(min(PAUSE_SECONDS, max(0.0, began + each - self.clock())))
        return False


def over_http(session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> Ask:
    """A probe that fetches ``url``."""

    async def ask(seconds: float) -> bool:
        limit = aiohttp.ClientTimeout(total=seconds)
        try:
            async with session.get(url, headers=headers, allow_redirects=False, timeout=limit):
                return True
        except OSError as error:
            return error.errno in _OUR_OWN
        except (aiohttp.ClientError, TimeoutError):
            return False

    return ask
