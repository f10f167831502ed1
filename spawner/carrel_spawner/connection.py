"""One client for all spawners of the Hub process, so that they share its connections."""

import asyncio
from weakref import WeakKeyDictionary

from carrel.client import AsyncClient

_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], AsyncClient]] = (
    WeakKeyDictionary()
)


def shared_client(url: str, token: str) -> AsyncClient:
    """The running event loop's client for this service and token."""
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    if (url, token) not in clients:
        clients[url, token] = AsyncClient(url, token)
    return clients[url, token]


async def close_shared() -> None:
    """Close the running loop's clients (tests; a Hub keeps them until it ends)."""
    for client in _CLIENTS.pop(asyncio.get_running_loop(), {}).values():
        await client.close()
