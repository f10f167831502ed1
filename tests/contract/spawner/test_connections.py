"""Waiting for a workspace's server: not there, there but not ready, there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from carrel_spawner.connections import held_port, wait_for_answer

TIMEOUT_SECONDS = 60.0


class Server:
    """Answers 503 until it is told to be ready."""

    def __init__(self) -> None:
        self.ready = False
        self.asked = asyncio.Event()

    async def answer(self, _: web.Request) -> web.Response:
        self.asked.set()
        return web.Response(status=200 if self.ready else 503)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


async def test_the_first_answer_is_waited_for(session: aiohttp.ClientSession) -> None:
    server = Server()
    application = web.Application()
    application.router.add_get("/user/ada/api", server.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    with held_port() as port:
        url = f"http://127.0.0.1:{port}/user/ada/api"
        waiting = asyncio.create_task(wait_for_answer(session, url))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.wait_for(server.asked.wait(), TIMEOUT_SECONDS)
        assert not waiting.done()
        server.ready = True
        await asyncio.wait_for(waiting, TIMEOUT_SECONDS)
    await runner.cleanup()


async def test_a_server_that_hangs_up_is_asked_again(session: aiohttp.ClientSession) -> None:
    asked = asyncio.Event()
    requests: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.read(4))
        if requests.count(b"GET ") == 2:
            asked.set()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    waiting = asyncio.create_task(wait_for_answer(session, f"http://127.0.0.1:{port}/"))
    await asyncio.wait_for(asked.wait(), TIMEOUT_SECONDS)
    assert not waiting.done()
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    server.close()
    await server.wait_closed()
