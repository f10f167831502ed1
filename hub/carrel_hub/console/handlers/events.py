"""The relay: one stream a browser, which says that something visible changed, never what.

The scheduler decides what the signed-in user may see; the browser then reads its page again. Many
changes at once are one message, at most two a second.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import Final

from tornado.iostream import StreamClosedError
from tornado.log import app_log
from typing_extensions import override

from carrel.errors import CarrelError
from carrel_hub.console.handlers.base import SignedInPage

SHORTEST_PAUSE_SECONDS: Final = 0.5
KEEP_ALIVE_SECONDS: Final = 15.0


class EventRelay(SignedInPage):
    """``GET events``; with ``project`` and ``name``, of that workload only."""

    _relay: asyncio.Task[None] | None = None

    @override
    async def get(self) -> None:
        """Stream until the browser leaves or the scheduler's stream ends."""
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("X-Accel-Buffering", "no")
        changed = asyncio.Event()
        source = asyncio.create_task(self._listen(changed))
        self._relay = asyncio.create_task(self._tell(changed, source))
        try:
            with suppress(StreamClosedError, asyncio.CancelledError):
                await self._relay
        finally:
            source.cancel()
            await asyncio.gather(source, return_exceptions=True)

    @override
    def on_connection_close(self) -> None:
        """Stop when the browser has left."""
        if self._relay is not None:
            self._relay.cancel()

    async def _listen(self, changed: asyncio.Event) -> None:
        project = self.get_query_argument("project", None)
        name = self.get_query_argument("name", None)
        try:
            async with aclosing(self.client.events(project, name)) as events:
                async for _ in events:
                    changed.set()
        except CarrelError as error:
            app_log.warning("The stream of events for %s ended: %s", self.user, error)

    async def _tell(self, changed: asyncio.Event, source: asyncio.Task[None]) -> None:
        self.write(": connected\n\n")
        await self.flush()
        while not source.done():
            waiter = asyncio.create_task(changed.wait())
            try:
                await asyncio.wait(
                    {waiter, source},
                    timeout=KEEP_ALIVE_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                waiter.cancel()
            if changed.is_set():
                changed.clear()
                self.write("event: change\ndata: {}\n\n")
            else:
                self.write(": still here\n\n")
            await self.flush()
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)
