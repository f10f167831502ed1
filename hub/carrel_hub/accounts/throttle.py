"""Limit attempts to sign in, for each source and account, and the work that they cause.

A source is an address, or a browser that signed in to the same account before: a stranger who
guesses has counters of its own and locks nobody else out. Attempts count when they begin, so that
many at once are not let through together; a right password takes its own back. Everything is
forgotten after a minute and bounded in number.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

ATTEMPTS_PER_ACCOUNT: Final = 5
ATTEMPTS_PER_SOURCE: Final = 30
WINDOW_SECONDS: Final = 60.0
MOST_COUNTERS: Final = 20_000
HASHES_AT_ONCE: Final = 2
MOST_WAITING: Final = 64


class Busy(Exception):  # noqa: N818 - an outcome to handle
    """Too many passwords are being compared."""


@dataclass(slots=True)
class _Counter:
    """Attempts of one window."""

    ends_at: float
    attempts: int = 0


class Throttle:
    """Attempts of the last minute by source and by source and account; ``clock`` in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_account = _counters(clock)
        self._by_source = _counters(clock)

    def begin(self, source: str, account: str) -> float:
        """Count an attempt; returns the seconds to wait, or 0 when it may go on."""
        now = self._clock()
        counters = (
            (self._by_account, f"{source} {account}", ATTEMPTS_PER_ACCOUNT),
            (self._by_source, source, ATTEMPTS_PER_SOURCE),
        )
        found = [
            (cache.setdefault(key, _Counter(now + WINDOW_SECONDS)), most)
            for cache, key, most in counters
        ]
        wait = max((one.ends_at - now for one, most in found if one.attempts >= most), default=0.0)
        if wait > 0:
            return wait
        for one, _ in found:
            one.attempts += 1
        return 0.0

    def succeeded(self, source: str, account: str) -> None:
        """Forget the source's attempts at this account."""
        counter = self._by_account.pop(f"{source} {account}", None)
        of_source = self._by_source.get(source)
        if counter and of_source:
            of_source.attempts = max(0, of_source.attempts - counter.attempts)

    def __len__(self) -> int:
        """Counters kept."""
        return len(self._by_account) + len(self._by_source)


def _counters(clock: Callable[[], float]) -> TTLCache[str, _Counter]:
    return TTLCache(MOST_COUNTERS, WINDOW_SECONDS, timer=clock)


class HashingSlots:
    """Bounds how many passwords are hashed at once, and how many wait for that."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(HASHES_AT_ONCE)
        self._inside = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold one slot. Raises ``Busy``."""
        if self._inside >= HASHES_AT_ONCE + MOST_WAITING:
            raise Busy
        self._inside += 1
        try:
            async with self._slots:
                yield
        finally:
            self._inside -= 1
