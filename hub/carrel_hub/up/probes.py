"""When a part that runs has stopped answering.

Each part is asked a cheap question over HTTP; any answer, also an error, shows that it lives. It
counts as silent only after several questions in a row went unanswered, so that neither a busy
machine nor a pause of `carrel up` itself (laptop lid, SIGSTOP) ends a healthy part.
"""

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp

SILENCE_SECONDS: Final = 10.0
LONGEST_SILENCE_SECONDS: Final = 80.0
PAUSE_SECONDS: Final = 2.0
QUESTIONS: Final = 2
START_SECONDS: Final = 180.0
# What keeps `carrel up` itself from asking says nothing about the part.
_OUR_OWN: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})

Ask = Callable[[float], Awaitable[bool]]
"""Asks once; whether an answer came within so many seconds."""


@dataclass(frozen=True, slots=True)
class Watchdog:
    """Watches one part. ``clock`` is monotonic; both it and ``sleep`` are replaced in tests."""

    ask: Ask
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def until_silent(self, patience: float = SILENCE_SECONDS) -> None:
        """Return once a part that has just been started is silent for ``patience`` seconds.

        Until its first answer it may take ``START_SECONDS``.
        """
        if not await self._answers(START_SECONDS, int(START_SECONDS / SILENCE_SECONDS)):
            return
        while await self._answers(patience, QUESTIONS):
            await self.sleep(PAUSE_SECONDS)

    async def _answers(self, patience: float, questions: int) -> bool:
        """Whether one of so many questions, spread over ``patience`` seconds, is answered."""
        each = patience / questions
        for _ in range(questions):
            began = self.clock()
            while (left := began + each - self.clock()) > 0:
                if await self.ask(left):
                    return True
                await self.sleep(min(PAUSE_SECONDS, max(0.0, began + each - self.clock())))
        return False


def over_http(session: aiohttp.ClientSession, url: str, headers: Mapping[str, str]) -> Ask:
    """Ask by fetching ``url``."""

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
