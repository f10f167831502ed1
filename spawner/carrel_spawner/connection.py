"""What all spawners of the Hub process share, so that they share its connections.

As many starts as the Hub allows go on at once, so the number of connections is not bounded here.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

import aiohttp

from carrel.client import AsyncClient
from carrel_spawner.feed import close_feed

PROBE_SECONDS: Final = 5.0
READ_SECONDS: Final = 3.0
"""A person waits before a page: a scheduler that hangs is told after so long."""


@dataclass
class _Shared:
    """Of one event loop. ``calls`` goes to the scheduler, ``probes`` to workspaces."""

    calls: aiohttp.ClientSession
    probes: aiohttp.ClientSession
    clients: dict[tuple[str, str], AsyncClient] = field(default_factory=dict)


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


def _shared() -> _Shared:
    loop = asyncio.get_running_loop()
    if loop not in _SHARED:
        _SHARED[loop] = _Shared(
            calls=aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)),
            probes=aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=PROBE_SECONDS),
            ),
        )
    return _SHARED[loop]


def shared_client(url: str, token: str) -> AsyncClient:
    """The running event loop's client for this service and token."""
    shared = _shared()
    if (url, token) not in shared.clients:
        shared.clients[url, token] = AsyncClient(
            url, token, read_timeout=READ_SECONDS, session=shared.calls
        )
    return shared.clients[url, token]


def probing_session() -> aiohttp.ClientSession:
    """The running event loop's session for asking whether a workspace answers."""
    return _shared().probes


async def close_shared() -> None:
    """Close what the running loop shares (tests; a Hub keeps it until it ends)."""
    shared = _SHARED.pop(asyncio.get_running_loop(), None)
    if shared is None:
        return
    for client in shared.clients.values():
        await close_feed(client)
    await shared.calls.close()
    await shared.probes.close()
