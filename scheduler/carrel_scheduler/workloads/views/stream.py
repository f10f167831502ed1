"""The event stream: every listener has a bounded queue; a slow one loses its stream."""

import asyncio

from carrel_scheduler.workloads.views.contract import LiveEvent

MOST_WAITING = 2_000


class Listener:
    """One listener's queue; see ``contract.Subscription``."""

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue()
        self._closed = False

    async def next(self) -> LiveEvent | None:
        """The next event; ``None`` at the end."""
        if self._closed and self._queue.empty():
            return None
        return await self._queue.get()

    def close(self) -> None:
        """Unsubscribe; a waiting ``next`` returns ``None``."""
        if not self._closed:
            self._closed = True
            self._stream.remove(self)
            self._queue.put_nowait(None)

    def offer(self, event: LiveEvent) -> None:
        """Hand an event over, or close a listener that fell too far behind."""
        if self._queue.qsize() >= MOST_WAITING:
            self.close()
        else:
            self._queue.put_nowait(event)


class Stream:
    """All listeners."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()

    def subscribe(self) -> Listener:
        """A new listener, from now on."""
        listener = Listener(self)
        self._listeners.add(listener)
        return listener

    def remove(self, listener: Listener) -> None:
        """Forget a listener."""
        self._listeners.discard(listener)

    @property
    def has_listeners(self) -> bool:
        """Whether there is any listener."""
        return bool(self._listeners)

    def publish(self, event: LiveEvent) -> None:
        """Hand an event to everybody."""
        for listener in tuple(self._listeners):
            listener.offer(event)

    def close(self) -> None:
        """End every stream."""
        for listener in tuple(self._listeners):
            listener.close()
