"""Exchanges with servers: one request over HTTP, or a websocket.

HTTP: each side is read only as fast as the other takes it. A connection to a server serves the next
request only when request and answer were complete; aiohttp frames both.

Websocket: the server is asked first, so that what it refuses is refused, and the sub-protocol that
it picks is the one that the visitor gets. Messages, pings and the close code pass both ways; pings
come back from the far end: they prove that both ends live, and say nothing about use. The visitor's
connection serves nothing else afterwards.
"""

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Final

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web
from multidict import CIMultiDict
from typing_extensions import override
from yarl import URL

from carrel_hub.gateway.access import RouteMatch
from carrel_hub.gateway.headers import Headers, for_browser, for_target
from carrel_hub.gateway.routing import RouteTarget
from carrel_hub.gateway.upstream import Attempt, TargetError, Upstreams

log = logging.getLogger(__name__)

LARGEST_MESSAGE: Final = 256 * 1024 * 1024
CLOSE_SECONDS: Final = 5.0
_CONNECTION_ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError)
_UNSENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

Side = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


class Exchange(ABC):
    """A visitor's request that may be tried with several servers in turn.

    Attributes:
        request: of the visitor.
        answered_at: when a server began to answer, by ``time.perf_counter``.
        too_large: its body turned out to be larger than it may be.
    """

    websocket = False

    def __init__(self, request: web.Request, match: RouteMatch, upstreams: Upstreams) -> None:
        self.request, self.match, self._upstreams = request, match, upstreams
        self.answered_at: float | None = None
        self.too_large = False

    @abstractmethod
    async def attempt(self, target: RouteTarget) -> web.StreamResponse:
        """Try one server; returns the forwarded response. Raises ``TargetError``."""

    def _url(self, target: RouteTarget) -> URL:
        match = self.match
        path = match.prefix + match.rest if match.route.keep_prefix else match.rest
        return URL(target.base + path, encoded=True)

    def _for_target(self) -> CIMultiDict[str]:
        user, prefix = self.match.principal.name, self.match.prefix
        return for_target(self.request, user, prefix, websocket=self.websocket)

    def _for_browser(self, headers: Headers, target: RouteTarget) -> CIMultiDict[str]:
        return for_browser(
            headers,
            prefix=self.match.prefix,
            base=target.base,
            keep_prefix=self.match.route.keep_prefix,
            sandboxed=not self.match.own_origin,
            framed_by=self.match.framed_by,
            refused_websocket=self.websocket,
        )


class HttpExchange(Exchange):
    """A request that is none for a websocket, and its answer, both passed on as they come."""

    _body_begun = False

    @override
    async def attempt(self, target: RouteTarget) -> web.StreamResponse:
        answer = await self._send(target)
        # Closing is right after a complete answer too: its connection has gone back by then.
        with contextlib.closing(answer):
            self.answered_at = time.perf_counter()
            headers = self._for_browser(answer.headers, target)
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=headers
            )
            await response.prepare(self.request)
            await self._copy(answer, response, target)
            return response

    async def _send(self, target: RouteTarget) -> aiohttp.ClientResponse:
        request, attempt = self.request, Attempt()
        try:
            async with asyncio.timeout(self.match.route.timeout_seconds) as limit:
                return await self._upstreams.session(target).request(
                    request.method,
                    self._url(target),
                    headers=self._for_target(),
                    data=self._body(limit) if request.body_exists else None,
                    allow_redirects=False,
                    trace_request_ctx=attempt,
                )
        except _CONNECTION_ERRORS as error:
            raise TargetError(error, sent=attempt.sent) from error

    async def _body(self, limit: asyncio.Timeout) -> AsyncIterator[bytes]:
        """The request's, once; a server's time begins anew with each piece."""
        if self._body_begun:
            raise RuntimeError("the body of this request was passed on before")
        self._body_begun = True
        route, loop, sent = self.match.route, asyncio.get_running_loop(), 0
        async for piece in self.request.content.iter_any():
            sent += len(piece)
            if sent > route.max_request_bytes:
                self.too_large = True
                raise ValueError("the body of this request is larger than it may be")
            if self.answered_at is None:
                limit.reschedule(loop.time() + route.timeout_seconds)
            yield piece

    async def _copy(
        self, answer: aiohttp.ClientResponse, response: web.StreamResponse, target: RouteTarget
    ) -> None:
        pieces = answer.content.iter_any()
        while True:
            try:
                piece = await anext(pieces, None)
            except _CONNECTION_ERRORS as error:
                log.info("%s broke off: %s", target.base, error)
                if self.request.transport is not None:
                    # The end of a body must not look like one that is whole.
                    self.request.transport.abort()
                return
            if piece is None:
                break
            await response.write(piece)
        await response.write_eof()


class WebSocketExchange(Exchange):
    """A websocket, as long as it is open. The first end that closes it says with which code."""

    websocket = True
    _closed = False

    @override
    async def attempt(self, target: RouteTarget) -> web.StreamResponse:
        try:
            far = await self._connect(target)
        except aiohttp.WSServerHandshakeError as refused:
            self.answered_at = time.perf_counter()
            return self._refused(refused, target)
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
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(near, far, lost=WSCloseCode.GOING_AWAY))
                both.create_task(self._carry(far, near, lost=WSCloseCode.INTERNAL_ERROR))
        finally:
            await far.close(code=WSCloseCode.GOING_AWAY)
        return near

    async def _connect(self, target: RouteTarget) -> aiohttp.ClientWebSocketResponse:
        offered = ",".join(self.request.headers.getall("Sec-WebSocket-Protocol", ()))
        try:
            async with asyncio.timeout(self.match.route.timeout_seconds):
                return await self._upstreams.session(target).ws_connect(
                    self._url(target),
                    headers=self._for_target(),
                    protocols=[one.strip() for one in offered.split(",") if one.strip()],
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                    autoclose=False,
                    autoping=False,
                    max_msg_size=LARGEST_MESSAGE,
                )
        except aiohttp.WSServerHandshakeError:
            raise
        except _CONNECTION_ERRORS as error:
            raise TargetError(error, sent=not isinstance(error, _UNSENT)) from error

    def _refused(
        self, refused: aiohttp.WSServerHandshakeError, target: RouteTarget
    ) -> web.StreamResponse:
        """The server's refusal, without its text."""
        response = web.Response(
            status=refused.status if refused.status >= 300 else 502,
            headers=self._for_browser(CIMultiDict(refused.headers or {}), target),
            text="The websocket was refused.\n",
        )
        response.force_close()
        return response

    async def _carry(self, source: Side, sink: Side, lost: int) -> None:
        """Pass on what ``source`` sends until it closes; ``lost``: the code if it just breaks."""
        with contextlib.suppress(ConnectionError):  # the direction from the sink tells why
            code, reason = await _messages(source, sink, lost)
            if not self._closed:
                self._closed = True
                await sink.close(code=code, message=reason)
                await source.close(code=code, message=reason)


async def _messages(source: Side, sink: Side, lost: int) -> tuple[int, bytes]:
    """Forward until the source closes; returns the closing code and reason."""
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
                return _close_code(message, lost)


def _close_code(message: Any, lost: int) -> tuple[int, bytes]:
    """Code and reason of what ended a socket; ``lost`` where it ended without a word."""
    if message.type is WSMsgType.CLOSE:
        return message.data or WSCloseCode.OK, (message.extra or "").encode()
    if isinstance(message.data, aiohttp.WebSocketError):
        return message.data.code, b""
    return lost, b""
