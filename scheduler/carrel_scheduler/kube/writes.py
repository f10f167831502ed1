"""Many writes in flight, but never more than the server is asked to take at once.

A few workers take writes in the order in which they came; several are under way at once, so two
writes of one object belong into one function. A write that waits because the server is overloaded
(429) keeps its worker: the more it is overloaded, the less is sent.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, TypeVar

R = TypeVar("R")
IN_FLIGHT: Final = 64

_Entry = tuple[Callable[[], Awaitable[Any]], "asyncio.Future[Any]"]


class Writer:
    """Runs writes, ``limit`` at once at most. Its workers end when there is nothing to do."""

    def __init__(self, limit: int = IN_FLIGHT) -> None:
        self._limit = limit
        self._waiting: deque[_Entry] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def unfinished(self) -> int:
        """The number of writes that are queued or in progress."""
        return len(self._waiting) + len(self._workers)

    def submit(self, write: Callable[[], Awaitable[R]]) -> "asyncio.Future[R]":
        """Run a write when its turn comes; the future has its result or its error.

        Cancelling the future takes back a write that has not begun, and none that has. Raises
        ``RuntimeError`` after ``close``.
        """
        if self._closed:
            raise RuntimeError("the writer was closed")
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((write, done))
        if len(self._workers) < self._limit:
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        return done

    async def _work(self) -> None:
        while self._waiting:
            write, done = self._waiting.popleft()
            if done.cancelled():
                continue
            try:
                result = await write()
            except asyncio.CancelledError:
                done.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is for who asked
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

    async def close(self) -> None:
        """Take back what has not begun, break off what has; its outcome is unknown."""
        self._closed = True
        while self._waiting:
            self._waiting.popleft()[1].cancel()
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
