"""Websockets both ways, with what they negotiate and how they end."""

import asyncio
from datetime import UTC, datetime

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from contract.proxy.running import PATIENCE_SECONDS, ProxyProcess, serving

KERNEL = "v1.kernel.websocket.jupyter.org"


async def echo(request: web.Request) -> web.WebSocketResponse:
    """Says everything back; closes with 4321 when told to leave."""
    socket = web.WebSocketResponse(protocols=[KERNEL], max_msg_size=0, autoping=False)
    await socket.prepare(request)
    async for message in socket:
        match message.type:
            case WSMsgType.TEXT if message.data == "leave":
                await socket.close(code=4321, message=b"as you wish")
            case WSMsgType.TEXT:
                await socket.send_str(message.data)
            case WSMsgType.BINARY:
                await socket.send_bytes(message.data)
            case WSMsgType.PING:
                await socket.pong(message.data + b" and back")
    return socket


async def test_messages_pass_both_ways(proxy: ProxyProcess, person: aiohttp.ClientSession) -> None:
    async with serving(web.get("/ws", echo)) as target:
        await proxy.add("/ws", target)
        async with person.ws_connect(f"{proxy.url}/ws", max_msg_size=0) as socket:
            await socket.send_str("grüße")
            assert await socket.receive_str(timeout=PATIENCE_SECONDS) == "grüße"
            large = bytes(20 * 2**20)
            await socket.send_bytes(large)
            assert await socket.receive_bytes(timeout=PATIENCE_SECONDS) == large


@pytest.mark.parametrize(
    ("offered", "picked"),
    [((), None), ((KERNEL,), KERNEL), (("other", KERNEL), KERNEL), (("other",), None)],
)
async def test_the_target_picks_the_sub_protocol(
    proxy: ProxyProcess,
    person: aiohttp.ClientSession,
    offered: tuple[str, ...],
    picked: str | None,
) -> None:
    async with serving(web.get("/sub", echo)) as target:
        await proxy.add("/sub", target)
        async with person.ws_connect(f"{proxy.url}/sub", protocols=offered) as socket:
            assert socket.protocol == picked
    assert "protocol" not in proxy.log.read_text()


async def test_the_targets_close_code_reaches_the_person(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async with serving(web.get("/close", echo)) as target:
        await proxy.add("/close", target)
        async with person.ws_connect(f"{proxy.url}/close") as socket:
            await socket.send_str("leave")
            message = await socket.receive(timeout=PATIENCE_SECONDS)
            assert (message.type, message.data, message.extra) == (
                WSMsgType.CLOSE,
                4321,
                "as you wish",
            )


@pytest.mark.parametrize(("sent", "seen"), [(4001, 4001), (1000, 1000)])
async def test_the_persons_close_code_reaches_the_target(
    proxy: ProxyProcess, person: aiohttp.ClientSession, sent: int, seen: int
) -> None:
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def listen(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        codes.put_nowait(socket.close_code)
        return socket

    async with serving(web.get("/leave", listen)) as target:
        await proxy.add("/leave", target)
        async with person.ws_connect(f"{proxy.url}/leave") as socket:
            await socket.close(code=sent)
            assert socket.close_code == sent
        assert await asyncio.wait_for(codes.get(), PATIENCE_SECONDS) == seen


async def test_a_person_who_vanishes_is_gone_for_the_target(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def listen(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        codes.put_nowait(socket.close_code)
        return socket

    async with serving(web.get("/vanish", listen)) as target:
        await proxy.add("/vanish", target)
        socket = await person.ws_connect(f"{proxy.url}/vanish")
        socket.get_extra_info("socket").shutdown(2)
        assert await asyncio.wait_for(codes.get(), PATIENCE_SECONDS) == 1001


async def test_a_target_that_vanishes_closes_the_persons_socket(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def vanish(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        assert request.transport is not None
        request.transport.abort()
        return socket

    async with serving(web.get("/gone", vanish)) as target:
        await proxy.add("/gone", target)
        async with person.ws_connect(f"{proxy.url}/gone") as socket:
            message = await socket.receive(timeout=PATIENCE_SECONDS)
            assert (message.type, message.data) == (WSMsgType.CLOSE, 1011)


async def test_pings_go_to_the_far_end_and_are_no_use(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async with serving(web.get("/ping", echo)) as target:
        await proxy.add("/ping", target)
        async with person.ws_connect(f"{proxy.url}/ping", autoping=False) as socket:
            before = await proxy.last_activity("/ping")
            await socket.ping(b"there")
            answer = await socket.receive(timeout=PATIENCE_SECONDS)
            assert (answer.type, answer.data) == (WSMsgType.PONG, b"there and back")
            assert await proxy.last_activity("/ping") == before
            await socket.send_str("work")
            await socket.receive_str(timeout=PATIENCE_SECONDS)
            assert before < await proxy.last_activity("/ping") <= datetime.now(UTC)


async def test_a_refusal_of_the_target_is_the_answer(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=403, headers={"X-Why": "not you"}, text="long text")

    async with serving(web.get("/refuse", refuse)) as target:
        await proxy.add("/refuse", target)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await person.ws_connect(f"{proxy.url}/refuse")
        assert refusal.value.status == 403
        assert refusal.value.headers is not None
        assert refusal.value.headers["X-Why"] == "not you"


async def test_a_target_sees_who_asks(proxy: ProxyProcess, person: aiohttp.ClientSession) -> None:
    async def told(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        kept = ("Origin", "Cookie", "Host", "X-Forwarded-For")
        await socket.send_json({name: request.headers.get(name) for name in kept})
        return socket

    async with serving(web.get("/who", told)) as target:
        await proxy.add("/who", target)
        async with person.ws_connect(
            f"{proxy.url}/who", origin=proxy.url, headers={"Cookie": "a=1"}
        ) as socket:
            assert await socket.receive_json(timeout=PATIENCE_SECONDS) == {
                "Origin": proxy.url,
                "Cookie": "a=1",
                "Host": f"127.0.0.1:{proxy.port}",
                "X-Forwarded-For": "127.0.0.1",
            }


@pytest.mark.parametrize(("prefix", "status"), [("/nobody-here", 404), ("/down", 503)])
async def test_no_target_no_socket(
    proxy: ProxyProcess, person: aiohttp.ClientSession, prefix: str, status: int
) -> None:
    await proxy.add("/down", "http://127.0.0.1:1")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
        await person.ws_connect(proxy.url + prefix)
    assert refusal.value.status == status


async def test_a_handshake_that_is_not_whole_is_a_mistake_of_the_person(
    proxy: ProxyProcess, person: aiohttp.ClientSession
) -> None:
    async with serving(web.get("/half", echo)) as target:
        await proxy.add("/half", target)
        headers = {"Connection": "keep-alive, Upgrade", "Upgrade": "WebSocket"}
        async with person.get(f"{proxy.url}/half", headers=headers) as answer:
            assert answer.status == 400
