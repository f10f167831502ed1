"""One websocket passed on: messages, pings and the close code, both ways.

The target is asked first, so that what it refuses is refused, and the sub-protocol that it picks is
the one that the person gets. Pings pass to the far end and come back from there: they prove that
both ends live, and say nothing about use.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web
from multidict import CIMultiDict

from carrel_hub.proxy.headers import refusal_headers
from carrel_hub.proxy.passage import Passage, UnreachableError

LARGEST_MESSAGE: Final = 256 * 1024 * 1024
CLOSE_SECONDS: Final = 5.0

Side = web.WebSocketResponse | aiohttp.ClientWebSocketResponse


async def pass_on(passage: Passage) -> web.StreamResponse:
    """Connect both ends and stay until one closes; each message of either is a use.

    Raises ``UnreachableError`` when the target cannot be reached.
    """
    try:
        far = await _connect(passage)
    except aiohttp.WSServerHandshakeError as refusal:
        told = None if refusal.headers is None else refusal_headers(CIMultiDict(refusal.headers))
        status = refusal.status if refusal.status >= 300 else 502
        return web.Response(status=status, headers=told, text="The websocket was refused.\n")
    near = web.WebSocketResponse(
        protocols=[far.protocol] if far.protocol else [],
        timeout=CLOSE_SECONDS,
        autoclose=False,
        autoping=False,
        compress=False,
        max_msg_size=LARGEST_MESSAGE,
    )
    try:
        await near.prepare(passage.request)
        passage.used()
        await _Pair(passage.used).run(near, far)
    finally:
        await far.close(code=WSCloseCode.GOING_AWAY)
    return near


async def _connect(passage: Passage) -> aiohttp.ClientWebSocketResponse:
    offered = ",".join(passage.request.headers.getall("Sec-WebSocket-Protocol", ()))
    try:
        async with asyncio.timeout(passage.seconds):
            return await passage.session.ws_connect(
                passage.url,
                headers=passage.headers,
                protocols=[one.strip() for one in offered.split(",") if one.strip()],
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
                autoclose=False,
                autoping=False,
                max_msg_size=LARGEST_MESSAGE,
            )
    except aiohttp.WSServerHandshakeError:
        raise
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnreachableError(f"{type(error).__name__}: {error}") from error


class _Pair:
    """Both directions; the first that ends decides with which code the other end is closed."""

    def __init__(self, used: Callable[[], None]) -> None:
        self._used = used
        self._ended = False

    async def run(self, near: Side, far: Side) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._carry(near, far, lost=WSCloseCode.GOING_AWAY))
            both.create_task(self._carry(far, near, lost=WSCloseCode.INTERNAL_ERROR))

    async def _carry(self, source: Side, sink: Side, lost: int) -> None:
        with contextlib.suppress(ConnectionError):  # the direction from the sink tells why
            code, reason = await self._messages(source, sink, lost)
            if not self._ended:
                self._ended = True
                await sink.close(code=code, message=reason)
                await source.close(code=code, message=reason)

    async def _messages(self, source: Side, sink: Side, lost: int) -> tuple[int, bytes]:
        """Until the source closes; with which code and reason it did."""
        while True:
            message = await source.receive()
            match message.type:
                case WSMsgType.TEXT:
                    self._used()
                    await sink.send_str(message.data)
                case WSMsgType.BINARY:
                    self._used()
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
