"""Views of what the event stream does not carry: told that something changed, they ask."""

import asyncio
from contextlib import aclosing

from typing_extensions import override

from carrel.client import AsyncClient
from carrel.widgets.live import LiveView


class AskingView(LiveView):
    """Asks when something happened, and never more often than it shows changes."""

    pause = 2.0

    async def ask(self, client: AsyncClient) -> None:
        """Learn how things stand. Raises ``CarrelError``."""
        raise NotImplementedError

    @override
    async def follow(self) -> None:
        stale = asyncio.Event()
        stale.set()
        asking = asyncio.create_task(self._ask_when(stale))
        try:
            async with aclosing(self._client.aio.events(opened=stale.set)) as events:
                async for event in events:
                    if asking.done():
                        asking.result()
                    if event.type != "report":
                        stale.set()
        finally:
            asking.cancel()

    async def _ask_when(self, stale: asyncio.Event) -> None:
        while True:
            await stale.wait()
            stale.clear()
            await self.ask(self._client.aio)
            self.touch()
            await asyncio.sleep(self.pace())
