"""Changes of routes go to Traefik in groups, and one question tells when it has read them.

Traefik builds all routers anew for each version of its file, and the Hub waits for the disk. Of
changes that are made while Traefik still reads the last version, all go into the next one, as in a
group commit. Each version has a mark of its own, so that nobody has to ask after each route.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

COLLECTING_SECONDS: Final = 0.1
FIRST_PAUSE_SECONDS: Final = 0.01
LONGEST_PAUSE_SECONDS: Final = 0.25


class GroupWrites:
    """Versions of one file, written by this process and read by another. Of one event loop.

    Args:
        write: puts everything into the file, with this mark.
        ask: the mark of the version that was read last; empty while nobody can tell.
    """

    def __init__(self, write: Callable[[str], None], ask: Callable[[], Awaitable[str]]) -> None:
        self._write, self._ask = write, ask
        # Marks of an earlier process are not ours.
        self._own = f"{secrets.token_hex(8)}-"
        self.written = self._read = 0
        self._writing: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    async def write(self) -> None:
        """Have what was changed so far written; afterwards it is in version ``written``."""
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_next())
        await asyncio.shield(self._writing)

    async def until_read(self, number: int) -> None:
        """Wait, as long as it takes, until this version or a later one was read."""
        while self._read < number:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask_until_news())
            await asyncio.shield(self._asking)

    async def _write_next(self) -> None:
        try:
            async with asyncio.timeout(COLLECTING_SECONDS):
                await self.until_read(self.written)
        except TimeoutError:
            pass  # it is slow, or away: new routes are written all the same
        finally:
            self._writing = None  # what is changed from here on belongs to the next version
        self._write(f"{self._own}{self.written + 1}")
        self.written += 1

    async def _ask_until_news(self) -> None:
        """Ask until another of our versions was read than the last time."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            await asyncio.sleep(pause)
            mark = await self._ask()
            number = int(mark.removeprefix(self._own)) if mark.startswith(self._own) else 0
            if number > self._read:
                self._read = number
                return
            pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
