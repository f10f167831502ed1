"""Streams of an engine: changes of tasks for each of its listeners, and lines of output."""

import asyncio
import io
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable

from typing_extensions import override

from carrel_scheduler.engines.contract import TaskStatus


class StatusStream(AsyncIterator[TaskStatus]):
    """The changes of tasks since its creation; it ends when the engine is closed."""

    def __init__(self, open_engine: Callable[[], Awaitable[None]]) -> None:
        self._open = open_engine
        self._queue: asyncio.Queue[TaskStatus | None] = asyncio.Queue()
        self._ended = False

    def put(self, status: TaskStatus | None) -> None:
        """Add a change; ``None`` ends the stream."""
        self._queue.put_nowait(status)

    @override
    async def __anext__(self) -> TaskStatus:
        if self._queue.empty() and not self._ended:
            await self._open()
        status = None if self._ended else await self._queue.get()
        if status is None:
            self._ended = True
            raise StopAsyncIteration
        return status


class Streams:
    """The streams of an engine that still have readers."""

    def __init__(self) -> None:
        self._streams: weakref.WeakSet[StatusStream] = weakref.WeakSet()
        self._closed = False

    def add(self, stream: StatusStream) -> StatusStream:
        """Publish to a stream from now on; after ``close`` the stream ends at once."""
        self._streams.add(stream)
        if self._closed:
            stream.put(None)
        return stream

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for stream in list(self._streams):
            stream.put(None)

    def publish(self, status: TaskStatus) -> None:
        """Add a change to all streams."""
        for stream in list(self._streams):
            stream.put(status)


def lines_of(data: bytes) -> list[bytes]:
    """Split after newlines only (``splitlines`` also splits at carriage returns)."""
    return io.BytesIO(data).readlines()
