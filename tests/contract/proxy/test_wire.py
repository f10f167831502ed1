"""The data path over real sockets, on each event loop that the gateway may run on."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from carrel_hub.proxy.headers import HOP, kept
from carrel_hub.proxy.wire.exchange import Exchange
from carrel_hub.proxy.wire.front import Front
from carrel_hub.proxy.wire.heads import FRAMING
from carrel_hub.proxy.wire.lines import Lines
from carrel_hub.proxy.wire.loops import new_loop

LARGE: Final = 8 * 2**20
PATIENCE_SECONDS: Final = 120.0
CAME: Final = web.AppKey("came", asyncio.Event)
GO: Final = web.AppKey("go", asyncio.Event)


async def _digest(request: web.Request) -> web.Response:
    digest = hashlib.sha256()
    async for piece in request.content.iter_any():
        digest.update(piece)
    return web.Response(text=digest.hexdigest())


async def _large(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(LARGE // 2**16):
        await response.write(b"y" * 2**16)
    await response.write_eof()
    return response


async def _echo(request: web.Request) -> web.WebSocketResponse:
    ws = web.WebSocketResponse()
    await ws.prepare(request)
    async for message in ws:
        await ws.send_str(f"heard {message.data}")
    return ws


async def _slow(request: web.Request) -> web.Response:
    request.app[CAME].set()
    await request.app[GO].wait()
    return web.Response(text="at last")


@asynccontextmanager
async def _listening(app: web.Application) -> AsyncIterator[tuple[web.AppRunner, int]]:
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner, int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _front() -> AsyncIterator[tuple[Front, str, web.Application]]:
    """A front whose requests all go to one target; websockets are the target's own."""
    app = web.Application(client_max_size=2 * LARGE)
    app[CAME], app[GO] = asyncio.Event(), asyncio.Event()
    app.router.add_post("/digest", _digest)
    app.router.add_get("/large", _large)
    app.router.add_get("/slow", _slow)
    app.router.add_get("/ws", _echo)
    lines = Lines()
    async with _listening(app) as (runner, port), AsyncExitStack() as stack:

        async def serve(exchange: Exchange) -> None:
            asked = exchange.asked
            if (asked.content_length or 0) > LARGE:
                exchange.answer(web.Response(status=413, text="too large"))
                return
            line = lines.kept("t") or await lines.connect("t", "127.0.0.1", port)
            headers = kept(asked.headers, HOP | FRAMING)
            await exchange.pass_to(line, asked.raw_path, headers, PATIENCE_SECONDS, list)

        assert runner.server is not None
        front = Front(serve, lambda status, code, _: web.Response(status=status, text=code),
                      runner.server)  # fmt: skip
        stack.push_async_callback(lines.close)
        stack.push_async_callback(front.close, 10.0)
        yield front, f"http://127.0.0.1:{await front.start('127.0.0.1', 0)}", app


async def _pieces() -> AsyncIterator[bytes]:
    for _ in range(LARGE // 2**16):
        yield b"x" * 2**16


async def _story() -> None:
    right = hashlib.sha256(b"x" * LARGE).hexdigest()
    async with _front() as (front, url, target), aiohttp.ClientSession() as session:
        for data in (io.BytesIO(b"x" * LARGE), _pieces()):
            async with session.post(f"{url}/digest", data=data, expect100=True) as answer:
                assert await answer.text() == right
        async with session.get(f"{url}/large") as answer:
            assert await answer.content.readexactly(10) == b"y" * 10
            assert len(await answer.read()) == LARGE - 10
        async with session.post(f"{url}/digest", data=io.BytesIO(b"x" * (LARGE + 1))) as answer:
            assert (answer.status, await answer.text()) == (413, "too large")
        async with session.head(f"{url}/large") as answer:
            assert answer.status == 200
        async with session.ws_connect(f"{url}/ws") as ws:
            await ws.send_str("me")
            assert await ws.receive_str(timeout=PATIENCE_SECONDS) == "heard me"
        late = asyncio.create_task(_text(session, f"{url}/slow"))
        await target[CAME].wait()
        closing = asyncio.create_task(front.close(PATIENCE_SECONDS))
        await asyncio.sleep(0)
        target[GO].set()
        assert await late == "at last"
        await closing
        with pytest.raises(aiohttp.ClientConnectorError):
            await _text(session, f"{url}/slow")


async def _text(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as answer:
        return await answer.text()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, new_loop], ids=["asyncio", "best"])
def test_bodies_websockets_and_a_farewell(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(_story(), 2 * PATIENCE_SECONDS))
