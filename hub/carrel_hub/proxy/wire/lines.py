"""Connections to targets: made when needed, kept for a moment after a use."""

import asyncio
from collections import deque
from collections.abc import Hashable
from typing import Final

from carrel_hub.proxy.wire.line import Line, TargetError

CONNECT_SECONDS: Final = 10.0
# Below what servers commonly grant, so that none hangs up while we send.
KEPT_SECONDS: Final = 4.0


class Lines:
    """By key: a server that came back at an address of another one is not the same."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, deque[Line]] = {}
        self._all: set[Line] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    def kept(self, key: Hashable) -> Line | None:
        """The one that was used last, if there is one that nobody uses."""
        kept = self._kept.get(key)
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        while kept:
            line = kept.pop()
            if line.since >= oldest and not line.transport.is_closing():
                return line
            line.transport.abort()
        return None

    async def connect(self, key: Hashable, host: str, port: int) -> Line:
        """A new one. Raises ``TargetError``."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, line = await loop.create_connection(
                    lambda: Line(key, self._idle, self._lost), host, port
                )
        except (OSError, TimeoutError) as error:
            raise TargetError(f"{type(error).__name__}: {error}", sent=False) from error
        self._all.add(line)
        return line

    async def close(self) -> None:
        """Hang up everywhere."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        left = tuple(self._all)
        for line in left:
            line.transport.abort()
        await asyncio.gather(*(line.closed for line in left))

    def _idle(self, line: Line) -> None:
        loop = asyncio.get_running_loop()
        line.since = loop.time()
        self._kept.setdefault(line.key, deque()).append(line)
        if self._sweeper is None:
            self._sweeper = loop.call_later(KEPT_SECONDS, self._sweep)

    def _lost(self, line: Line) -> None:
        self._all.discard(line)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEPT_SECONDS
        for key, kept in list(self._kept.items()):
            while kept and (kept[0].since <= oldest or kept[0].transport.is_closing()):
                kept.popleft().transport.abort()
            if not kept:
                del self._kept[key]
        again = KEPT_SECONDS / 4
        self._sweeper = loop.call_later(again, self._sweep) if self._kept else None
