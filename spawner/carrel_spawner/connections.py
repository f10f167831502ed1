"""HTTP sessions of all spawners of the Hub process, ports, and waiting for a server's answer.

As many starts as the Hub allows go on at once, so the number of connections is not bounded here.
The Hub checks by itself whether a server answers; it is done here first because a server that dies
at once would otherwise show the Hub's bare error page instead of the reason.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import aiohttp

from carrel.client import AsyncClient

PROBE_SECONDS: Final = 5.0
FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 0.4
CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 3.0
"""A person waits before a page: a scheduler that hangs is told after so long."""


@dataclass
class _Sessions:
    """HTTP sessions of one event loop: ``calls`` to the scheduler, ``probes`` to workspaces."""

    calls: aiohttp.ClientSession
    probes: aiohttp.ClientSession
    clients: dict[tuple[str, str], AsyncClient] = field(default_factory=dict)


_SHARED: WeakKeyDictionary[asyncio.AbstractEventLoop, _Sessions] = WeakKeyDictionary()


def _shared() -> _Sessions:
    loop = asyncio.get_running_loop()
    if loop not in _SHARED:
        _SHARED[loop] = _Sessions(
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
            url,
            token,
            read_timeout=READ_SECONDS,
            session=shared.calls,
            origin={"X-Carrel-Channel": "hub"},
        )
    return shared.clients[url, token]


def probing_session() -> aiohttp.ClientSession:
    """The running event loop's session for asking whether a workspace answers."""
    return _shared().probes


@contextmanager
def held_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port that the kernel gives to nobody else until the server has it.

    Hold it until the server answers. A socket that is bound but does not listen keeps its port from
    everybody who is given any port, in whatever process: other spawners, and outgoing connections.
    It lets in only who names that port and, as servers do, sets ``SO_REUSEADDR``, also under
    another account.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        yield int(holder.getsockname()[1])


async def wait_for_answer(session: aiohttp.ClientSession, url: str) -> None:
    """Return as soon as something answers HTTP at ``url``; waits for ever, so bound it.

    While nobody listens there, a bare connection tells so at a fraction of what a request costs.
    """
    where = urlsplit(url)
    pause = FIRST_PAUSE_SECONDS
    while True:
        if await _is_open(where.hostname or "", where.port or 80):
            try:
                async with session.get(url, allow_redirects=False) as response:
                    if response.status < 500:
                        return
            except (aiohttp.ClientError, TimeoutError, ConnectionError):
                pause = min(pause * 1.3, LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause)


async def _is_open(host: str, port: int) -> bool:
    """Whether the port accepts connections."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    except OSError:
        return False
    transport.close()
    return True
