"""Listening for callers, and an end that lets those who are being answered finish."""

import asyncio
from collections.abc import Callable
from typing import Final

from carrel_hub.proxy.wire.caller import Caller, Refuse, Serve

WAITING_CONNECTIONS: Final = 1024


class Front:
    """See the module; the arguments are those of ``Caller``."""

    def __init__(
        self, serve: Serve, refuse: Refuse, websockets: Callable[[], asyncio.Protocol]
    ) -> None:
        self._callers: set[Caller] = set()
        self._make = lambda: Caller(serve, refuse, websockets, self._callers)
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; gives the port, which the system chooses for 0. Raises ``OSError``."""
        self._server = await asyncio.get_running_loop().create_server(
            self._make, host, port, backlog=WAITING_CONNECTIONS
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, seconds: float) -> None:
        """Take nothing new; wait so long for what is under way, then break it off."""
        if self._server is not None:
            self._server.close()
        for caller in tuple(self._callers):
            if caller.busy is None:
                caller.transport.abort()
        tasks = [caller.busy for caller in self._callers if caller.busy is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        left = tuple(self._callers)
        for caller in left:
            caller.transport.abort()
        await asyncio.gather(*(caller.gone for caller in left))
        if self._server is not None:
            await self._server.wait_closed()
