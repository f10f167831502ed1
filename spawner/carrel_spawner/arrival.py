"""Is the workspace's server there? Ports on loopback, and waiting for the first answer.

The Hub checks again by itself; it is done here first because a server that dies at once would
otherwise show the Hub's bare error page instead of the reason.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import aiohttp

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 0.4
CONNECT_SECONDS: Final = 5.0


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
    """Whether anybody accepts connections there."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
    except OSError:
        return False
    transport.close()
    return True
