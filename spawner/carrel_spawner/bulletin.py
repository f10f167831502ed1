"""The news of one start: written by ``start()``, read by any number of progress pages.

A reader that comes late gets everything from the beginning. Reading never raises and ends when the
start does.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from carrel_spawner.pages import said


class Bulletin:
    """An append-only list of progress events. Not thread-safe; lives in the Hub's event loop."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._closed = False
        self._changed = asyncio.Event()

    def post(self, percent: int, message: str) -> None:
        """Add an event, unless it says what the last one said."""
        event = {
            "progress": max(percent, self._percent()),
            "message": message,
            "html_message": str(said(message)),
        }
        if not self._events or self._events[-1]["message"] != message:
            self._events.append(event)
            self._wake()

    @property
    def last(self) -> str:
        """The latest message; empty when there is none."""
        return str(self._events[-1]["message"]) if self._events else ""

    def close(self) -> None:
        """No more news."""
        self._closed = True
        self._wake()

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """All events from the first on, until the bulletin is closed."""
        position = 0
        while True:
            changed = self._changed
            while position < len(self._events):
                yield dict(self._events[position])
                position += 1
            if self._closed:
                return
            await changed.wait()

    def _percent(self) -> int:
        """The bar never runs backwards."""
        return int(self._events[-1]["progress"]) if self._events else 0

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
