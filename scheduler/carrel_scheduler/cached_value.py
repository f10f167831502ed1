"""A value that is read rarely and asked for often; time comes from outside."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CachedValue(Generic[T]):
    """A value that is cached for some seconds, or until it is invalidated.

    What was being read when it was invalidated is not kept, so that a change counts for whoever
    asks after it.

    Args:
        read: reads the value.
        seconds: how long one is kept.
        clock: in seconds.
    """

    def __init__(
        self, read: Callable[[], Awaitable[T]], seconds: float, clock: Callable[[], float]
    ) -> None:
        self._read, self._seconds, self._clock = read, seconds, clock
        self._kept: tuple[float, T] | None = None
        self._invalidations = 0

    async def get(self) -> T:
        """The value; raises errors of the read."""
        now = self._clock()
        if self._kept is not None and now < self._kept[0]:
            return self._kept[1]
        before = self._invalidations
        value = await self._read()
        if before == self._invalidations:
            self._kept = (now + self._seconds, value)
        return value

    def invalidate(self) -> None:
        """Read the value again at the next call."""
        self._kept = None
        self._invalidations += 1
