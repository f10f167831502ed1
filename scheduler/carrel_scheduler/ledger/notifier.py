"""Wakes watches when something was committed.

It carries no changes and no versions. A watch that wakes reads from the database, so it makes no
difference who wrote, this process or another, and a false alarm costs one read. Used in the event
loop only.
"""

import asyncio


class Notifier:
    """Counts announcements, and wakes those who wait for the next."""

    def __init__(self) -> None:
        self._news = 0
        self._closed = False
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def news(self) -> int:
        """How many announcements there were; to be asked before reading."""
        return self._news

    @property
    def closed(self) -> bool:
        """True once the ledger closes: watches end."""
        return self._closed

    def announce(self) -> None:
        """Something was committed."""
        self._news += 1
        self._wake()

    def close(self) -> None:
        """Wake everybody for the last time."""
        self._closed = True
        self._wake()

    async def wait(self, news: int, patience: float) -> None:
        """Return on more than this ``news``, after ``patience`` seconds, or on closing."""
        if self._news > news or self._closed:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait((waiter,), timeout=patience)
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
