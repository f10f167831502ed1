"""A request for a websocket: messages, pings and the close code pass both ways.

The server is asked first, so that what it refuses is refused, and the sub-protocol that it picks is
the one that the person gets. Pings pass to the far end and come back from there: they prove that
both ends live, and say nothing about use. The person's connection serves nothing else afterwards.
"""

import asyncio
import contextlib
import time
from typing import Any, Final

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web
from multidict import CIMultiDict
from yarl import URL

from carrel_hub.gateway import safety
from carrel_hub.gateway.door import Visit
from carrel_hub.gateway.headers import FORWARDED, FRAMING, HANDSHAKE, HOP, forwarded, kept
from carrel_hub.gateway.table import Target
from carrel_hub.gateway.upstream import Attempt, Upstreams

LARGEST_MESSAGE: Final = 256 * 1024 * 1024
CLOSE_SECONDS: Final = 5.0
_DROPPED: Final = HOP | HANDSHAKE | FORWARDED | FRAMING | safety.NOT_FOR_TARGETS
_UNSENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_OF_A_BODY: Final = FRAMING | {"content-encoding", "content-type"}

Side = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


class SocketWay:
    """See ``passing.Way``."""

    exceeded = False

    def __init__(self, request: web.Request, upstreams: Upstreams) -> None:
        self.request, self._upstreams = request, upstreams
        self.answered_at: float | None = None

    async def once(self, visit: Visit, target: Target) -> web.StreamResponse:
        """One try, as long as the websocket is open. Raises ``TargetError``."""
        try:
            far = await self._connect(visit, target)
        except aiohttp.WSServerHandshakeError as refusal:
            self.answered_at = time.perf_counter()
            return _refused(visit, target, refusal)
        self.answered_at = time.perf_counter()
        near = web.WebSocketResponse(
            protocols=[far.protocol] if far.protocol else [],
            timeout=CLOSE_SECONDS,
            autoclose=False,
            autoping=False,
            compress=False,
            max_msg_size=LARGEST_MESSAGE,
        )
        near.force_close()
        try:
            await near.prepare(self.request)
            await _Pair().run(near, far)
        finally:
            await far.close(code=WSCloseCode.GOING_AWAY)
        return near

    async def _connect(self, visit: Visit, target: Target) -> aiohttp.ClientWebSocketResponse:
        request = self.request
        headers = CIMultiDict(kept(request.headers, _DROPPED))
        headers.extend(forwarded(request.headers, request.remote, request.scheme))
        headers.extend(safety.for_target(request.headers, visit.person.name, visit.prefix))
        path = visit.prefix + visit.rest if visit.route.keep_prefix else visit.rest
        offered = ",".join(request.headers.getall("Sec-WebSocket-Protocol", ()))
        try:
            async with asyncio.timeout(visit.route.timeout_seconds):
                return await self._upstreams.session(target).ws_connect(
                    URL(target.base + path, encoded=True),
                    headers=headers,
                    protocols=[one.strip() for one in offered.split(",") if one.strip()],
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                    autoclose=False,
                    autoping=False,
                    max_msg_size=LARGEST_MESSAGE,
                )
        except aiohttp.WSServerHandshakeError:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            unsent = isinstance(
                error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
            )
            raise Attempt(sent=not unsent).failed(error) from error


def _refused(
    visit: Visit, target: Target, refusal: aiohttp.WSServerHandshakeError
) -> web.StreamResponse:
    """What the server said, but for its words."""
    told = CIMultiDict(refusal.headers or {})
    headers = safety.for_browser(
        kept(told, HOP | HANDSHAKE | _OF_A_BODY),
        prefix=visit.prefix,
        base=target.base,
        keep_prefix=visit.route.keep_prefix,
        sandboxed=not visit.own_origin,
    )
    status = refusal.status if refusal.status >= 300 else 502
    response = web.Response(
        status=status, headers=CIMultiDict(headers), text="The websocket was refused.\n"
    )
    response.force_close()
    return response


class _Pair:
    """Both directions; the first that ends decides with which code the other end is closed."""

    def __init__(self) -> None:
        self._ended = False

    async def run(self, near: Side, far: Side) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._carry(near, far, lost=WSCloseCode.GOING_AWAY))
            both.create_task(self._carry(far, near, lost=WSCloseCode.INTERNAL_ERROR))

    async def _carry(self, source: Side, sink: Side, lost: int) -> None:
        with contextlib.suppress(ConnectionError):  # the direction from the sink tells why
            code, reason = await _messages(source, sink, lost)
            if not self._ended:
                self._ended = True
                await sink.close(code=code, message=reason)
                await source.close(code=code, message=reason)


async def _messages(source: Side, sink: Side, lost: int) -> tuple[int, bytes]:
    """Until the source closes; with which code and reason it did."""
    while True:
        message = await source.receive()
        match message.type:
            case WSMsgType.TEXT:
                await sink.send_str(message.data)
            case WSMsgType.BINARY:
                await sink.send_bytes(message.data)
            case WSMsgType.PING:
                await sink.ping(message.data)
            case WSMsgType.PONG:
                await sink.pong(message.data)
            case _:
                return _why(message, lost)


def _why(message: Any, lost: int) -> tuple[int, bytes]:
    """Code and reason of what ended a socket; ``lost`` where it ended without a word."""
    if message.type is WSMsgType.CLOSE:
        return message.data or WSCloseCode.OK, (message.extra or "").encode()
    if isinstance(message.data, aiohttp.WebSocketError):
        return message.data.code, b""
    return lost, b""
