"""Bodies pass as they come, in both directions, and nobody waits for somebody else."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from contract.proxy.running import PATIENCE_SECONDS, ProxyProcess, serving

MEBIBYTE = bytes(2**20)


async def test_events_arrive_one_by_one(proxy: ProxyProcess, person: aiohttp.ClientSession) -> None:
    go_on = asyncio.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await go_on.wait()
        await response.write(b"data: 2\n\n")
        return response

    async with serving(web.get("/sse/events", events)) as target:
        await proxy.add("/sse", target)
        async with person.get(f"{proxy.url}/sse/events") as answer:
            assert answer.content_type == "text/event-stream"
            assert await answer.content.readany() == b"data: 1\n\n"
            go_on.set()
            assert await answer.content.read() == b"data: 2\n\n"


async def test_headers_arrive_before_the_first_byte_of_a_body(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    go_on = asyncio.Event()

    async def quiet(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await go_on.wait()
        return response

    async with serving(web.get("/quiet", quiet)) as target:
        await proxy.add("/quiet", target)
        async with asyncio.timeout(PATIENCE_SECONDS), person.get(f"{proxy.url}/quiet") as answer:
            assert answer.status == 200
            go_on.set()
            assert await answer.read() == b""


@pytest.mark.parametrize("length", [None, 10])
async def test_a_request_body_arrives_piece_by_piece(
    proxy: ProxyProcess, person: aiohttp.ClientSession, length: int | None
) -> None:
    seen: asyncio.Queue[bytes] = asyncio.Queue()

    async def upload(request: web.Request) -> web.Response:
        assert request.content_length == length
        while piece := await request.content.readany():
            seen.put_nowait(piece)
        return web.Response(text="stored", status=201)

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        # Nothing more is sent before the target has the first piece.
        assert await asyncio.wait_for(seen.get(), PATIENCE_SECONDS) == b"first"
        yield b"later"

    headers = {} if length is None else {"Content-Length": str(length)}
    async with serving(web.put("/up/{name}", upload)) as target:
        await proxy.add("/up", target)
        async with person.put(f"{proxy.url}/up/a", data=body(), headers=headers) as answer:
            assert (answer.status, await answer.text()) == (201, "stored")
        assert seen.get_nowait() == b"later"


async def test_an_uploader_that_asks_is_told_to_continue(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def upload(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    async with serving(web.post("/ask", upload)) as target:
        await proxy.add("/ask", target)
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            person.post(f"{proxy.url}/ask", data=MEBIBYTE, expect100=True) as answer,
        ):
            assert await answer.text() == str(2**20)


async def test_a_large_body_is_not_held(proxy: ProxyProcess, person: aiohttp.ClientSession) -> None:
    async def large(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 50 * 2**20
        await response.prepare(request)
        for _ in range(50):
            await response.write(MEBIBYTE)
        return response

    async with serving(web.get("/large", large)) as target:
        await proxy.add("/large", target)
        before = proxy.resident_mib()
        async with person.get(f"{proxy.url}/large") as answer:
            assert answer.content_length == 50 * 2**20
            got = 0
            async for piece in answer.content.iter_any():
                got += len(piece)
                assert proxy.resident_mib() < before + 10
        assert got == 50 * 2**20


async def test_a_target_is_not_read_faster_than_the_person_reads(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(MEBIBYTE)
            sent += 1

    async with serving(web.get("/endless", endless)) as target:
        await proxy.add("/endless", target)
        before = proxy.resident_mib()
        async with person.get(f"{proxy.url}/endless"):
            held = -1
            while sent != held:  # until the target has to wait
                held = sent
                await asyncio.sleep(0.5)
        assert sent < 100
        assert proxy.resident_mib() < before + 10


async def test_slow_requests_do_not_block_each_other(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    everybody = asyncio.Barrier(30)

    async def slow(request: web.Request) -> web.Response:
        async with everybody:  # opens only when all thirty are here at once
            return web.Response(text="done")

    async def one() -> str:
        async with person.get(f"{proxy.url}/slow") as answer:
            return await answer.text()

    async with serving(web.get("/slow", slow)) as target:
        await proxy.add("/slow", target)
        assert await asyncio.gather(*(one() for _ in range(30))) == ["done"] * 30


async def test_whoever_leaves_ends_the_request_at_the_target(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def forever(request: web.Request) -> web.Response:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return web.Response()

    async with serving(web.get("/forever", forever)) as target:
        await proxy.add("/forever", target)
        request = asyncio.create_task(person.get(f"{proxy.url}/forever"))
        await asyncio.wait_for(began.wait(), PATIENCE_SECONDS)
        assert not ended.is_set()
        request.cancel()
        await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)


async def test_whoever_leaves_in_the_midst_of_an_answer_ends_it(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    ended = asyncio.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"1")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return response

    async with serving(web.get("/midst", events)) as target:
        await proxy.add("/midst", target)
        answer = await person.get(f"{proxy.url}/midst")
        assert await answer.content.readany() == b"1"
        answer.close()
        await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)


async def test_an_answer_that_breaks_off_does_not_look_whole(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    async with serving(web.get("/broken", broken)) as target:
        await proxy.add("/broken", target)
        with pytest.raises(aiohttp.ClientError):
            async with person.get(f"{proxy.url}/broken") as answer:
                await answer.read()
