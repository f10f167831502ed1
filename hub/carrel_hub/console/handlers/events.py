"""The relay: one websocket a page, which says that something visible changed, never what.

It also says every 15 s that the scheduler answers.

The scheduler decides what the signed-in user may see; the browser then reads its page again. Many
changes at once are one message, at most two a second.

A websocket and not server-sent events: the proxy of a small installation passes on an ordinary
answer only when it is complete, and has room for few of them at a time.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import Final

from tornado.log import app_log
from tornado.websocket import WebSocketClosedError, WebSocketHandler
from typing_extensions import override

from carrel.errors import CarrelError
from carrel_hub.console.handlers.base import SignedInPage

SHORTEST_PAUSE_SECONDS: Final = 0.5
BEAT_SECONDS: Final = 15.0
LONGEST_MESSAGE_BYTES: Final = 1024


class EventRelay(SignedInPage, WebSocketHandler):
    """``events``; with ``project`` and ``name``, of that workload only."""

    _tasks: tuple[asyncio.Task[None], ...] = ()

    @override
    def open(self, *_: str) -> None:
        """Begin to listen."""
        changed = asyncio.Event()
        self._tasks = (
            asyncio.create_task(self._listen(changed)),
            asyncio.create_task(self._tell(changed)),
            asyncio.create_task(self._beat()),
        )

    @override
    def on_message(self, message: str | bytes) -> None:
        """Ignore messages: browsers send none."""

    @override
    def on_close(self) -> None:
        """Stop when the browser has left."""
        for task in self._tasks:
            task.cancel()

    async def _listen(self, changed: asyncio.Event) -> None:
        project = self.get_query_argument("project", None)
        name = self.get_query_argument("name", None)
        try:
            async with aclosing(self.client.events(project, name)) as events:
                async for _ in events:
                    changed.set()
        except CarrelError as error:
            app_log.warning("The stream of events for %s ended: %s", self.user, error)
        self.close()

    async def _beat(self) -> None:
        """Say again and again that the scheduler answers: pages notice when it does not."""
        with suppress(WebSocketClosedError):
            while True:
                with suppress(CarrelError):
                    await self.client.whoami()
                    await self.write_message("alive")
                await asyncio.sleep(BEAT_SECONDS)

    async def _tell(self, changed: asyncio.Event) -> None:
        with suppress(WebSocketClosedError):
            while True:
                await changed.wait()
                changed.clear()
                await self.write_message("change")
                await asyncio.sleep(SHORTEST_PAUSE_SECONDS)
