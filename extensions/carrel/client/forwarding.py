"""Connections to a loopback port, passed on to a port of a task: a websocket for each of them."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from carrel.errors import BadSetting, CarrelError

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)
LOOPBACK: Final = "127.0.0.1"
PIECE_BYTES: Final = 2**16
REFUSED: Final = 4404
"""The close code of the service where nothing listens at the port of the task."""
Connect = Callable[[], Awaitable["aiohttp.ClientWebSocketResponse"]]


async def listen(port: int, connect: Connect, opened: Callable[[int], object]) -> None:
    """Listen until cancelled; ``port`` 0 is any free one. Raises ``BadSetting``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _pass_on(await connect(), reader, writer)
        except (CarrelError, ConnectionError) as error:
            log.warning("a connection could not be forwarded: %s", error)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(serve, LOOPBACK, port)
    except OSError as error:
        raise BadSetting(f"Port {port} cannot be had here: {error.strerror}.") from error
    async with server:
        opened(server.sockets[0].getsockname()[1])
        await server.serve_forever()


async def _pass_on(
    socket: "aiohttp.ClientWebSocketResponse",
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    import aiohttp

    sending = asyncio.create_task(_send(socket, reader))
    try:
        while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
            writer.write(message.data)
            await writer.drain()
        if message.type is aiohttp.WSMsgType.CLOSE and message.data == REFUSED:
            log.warning("the port could not be forwarded: %s", message.extra)
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await sending
        await socket.close()


async def _send(socket: "aiohttp.ClientWebSocketResponse", reader: asyncio.StreamReader) -> None:
    while piece := await reader.read(PIECE_BYTES):
        await socket.send_bytes(piece)
    await socket.send_str("")
