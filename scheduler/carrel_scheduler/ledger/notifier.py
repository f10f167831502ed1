"""Wakes watches: the newest known version, and those who wait for a newer one.

It carries no changes. A watch that wakes reads them from the database, so it makes no difference
who wrote them, this process or another. Used in the event loop only.
"""

import asyncio


class Notifier:
    """Newest version seen, and its waiters."""

    def __init__(self) -> None:
        self._newest = 0
        self._closed = False
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def closed(self) -> bool:
        """True once the ledger closes: watches end."""
        return self._closed

    def publish(self, version: int) -> None:
        """A version was committed; older news is ignored."""
        if version > self._newest:
            self._newest = version
            self._wake()

    def close(self) -> None:
        """Wake everybody for the last time."""
        self._closed = True
        self._wake()

    async def newer_than(self, version: int, patience: float) -> None:
        """Return when a newer version is known, after ``patience`` seconds, or on closing."""
        if self._newest > version or self._closed:
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
