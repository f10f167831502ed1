"""Is the workspace's server there? Ports on loopback, and waiting for the first answer.

The Hub checks again by itself; it is done here first because a server that dies at once would
otherwise show the Hub's bare error page instead of the reason.
"""

import asyncio
import socket
from typing import Final

import aiohttp

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 0.4


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


async def wait_for_answer(session: aiohttp.ClientSession, url: str) -> None:
    """Return as soon as something answers HTTP at ``url``; waits for ever, so bound it."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            async with session.get(url, allow_redirects=False) as response:
                if response.status < 500:
                    return
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            pause = min(pause * 1.3, LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause)
