"""Connections to servers, and what it means when one does not answer.

Each server has a session of its own, so a connection is never used for another server that was
given the same port later.
"""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final

import aiohttp

from carrel_hub.gateway.balancing import LoadBalancer
from carrel_hub.gateway.routing import RouteTarget, RoutingTable

CONNECT_SECONDS: Final = 10.0
# Below what servers commonly grant, so that none hangs up while we send.
IDLE_CONNECTION_SECONDS: Final = 4.0
# Addresses and cookies of sign-ins get long; as much as the Hub takes.
LONGEST_LINE: Final = 64 * 1024
MOST_UNUSED: Final = 64


class TargetError(Exception):
    """A server gave no answer.

    Attributes:
        sent: it may have seen the request.
        timed_out: it took too long.
    """

    def __init__(self, error: Exception, *, sent: bool) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.sent = sent
        self.timed_out = isinstance(error, TimeoutError) and not isinstance(
            error, aiohttp.ClientError
        )


@dataclass(slots=True)
class Attempt:
    """An attempt to reach a server, given as ``trace_request_ctx``; ``sent``: it may have seen it.

    The client itself asks again over a new connection when a kept one turns out to be closed, so
    the error of a call does not tell.
    """

    sent: bool = False


async def _sent(_: aiohttp.ClientSession, context: SimpleNamespace, __: object) -> None:
    if isinstance(context.trace_request_ctx, Attempt):  # of a websocket there is none
        context.trace_request_ctx.sent = True


class Upstreams:
    """Client sessions by target; those of removed targets are closed."""

    def __init__(self, table: RoutingTable, balancer: LoadBalancer) -> None:
        self._table, self._balancer = table, balancer
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def session(self, target: RouteTarget) -> aiohttp.ClientSession:
        """The connections to one server."""
        found = self._sessions.get(target.uid)
        if found is None:
            if len(self._sessions) >= MOST_UNUSED:
                self._close_unused()
            found = self._sessions[target.uid] = _session()
        return found

    def _close_unused(self) -> None:
        used = self._balancer.busy_targets().union(*(one.target_uids for one in self._table))
        for uid in self._sessions.keys() - used:
            task = asyncio.create_task(self._sessions.pop(uid).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        await asyncio.gather(*self._closing)


def _session() -> aiohttp.ClientSession:
    """An HTTP session without a limit of connections, without cookies and decompression."""
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(_sent)
    return aiohttp.ClientSession(
        trace_configs=[trace],
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )
