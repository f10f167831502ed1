"""What passes through the gateway, byte by byte: callers and servers are plain sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from benchmarks.ports import free_port
from benchmarks.route import StandInScheduler
from benchmarks.standin_hub import Account, StandInHub
from carrel_hub.gateway.app import IDLE_SECONDS, running
from carrel_hub.gateway.settings import GatewaySettings

TIMEOUT_SECONDS = 120.0
PATH = "/services/gateway/vision/target"
COME = "access:services!service=gateway"
Answers = Callable[["Heard", asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Heard:
    """One request as a server got it."""

    connection: int
    head: str
    body: bytes


@dataclass
class Target:
    """A server of somebody's: reads whole requests and answers as the test wants.

    Attributes:
        early: it answers before it reads a body.
    """

    answer: Answers
    heard: list[Heard] = field(default_factory=list)
    connections: int = 0
    early: bool = False
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                request = Heard(number, head, b"" if self.early else await _body(head, reader))
                self.heard.append(request)
                await self.answer(request, writer)
                if self.early:
                    await reader.read()
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.hung_up.set()
            writer.close()


async def _body(head: str, reader: asyncio.StreamReader) -> bytes:
    for line in head.lower().split("\r\n"):
        if line.startswith("content-length:"):
            return await reader.readexactly(int(line.partition(":")[2]))
        if line == "transfer-encoding: chunked":
            return await _chunks(reader)
    return b""


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        size = int(await reader.readline(), 16)
        body += (await reader.readexactly(size + 2))[:-2]
        if not size:
            return body


async def say_ok(_: Heard, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class Caller:
    """A plain connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def ask(self, *lines: str, body: bytes = b"", who: str = "ada", path: str = "/") -> None:
        first, *more = lines or ("GET",)
        head = [
            f"{first} {PATH}{path} HTTP/1.1",
            "Host: carrel.test",
            f"Authorization: Bearer {who}",
            *more,
        ]
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    async def answer(self) -> tuple[int, str, bytes]:
        """Status, head, body."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            return int(head.split()[1]), head, await _body(head, self.reader)

    async def rest(self) -> bytes:
        """All until the gateway hangs up."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@dataclass
class ForwardingGateway:
    """A gateway, one server behind it, and callers."""

    port: int
    target: Target
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def caller(self) -> Caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return Caller(reader, writer)


@pytest.fixture
async def gateway() -> AsyncIterator[ForwardingGateway]:
    async with forwarding_gateway() as made:
        yield made


@asynccontextmanager
async def forwarding_gateway(
    idle_seconds: float = IDLE_SECONDS,
) -> AsyncIterator[ForwardingGateway]:
    target = Target(say_ok)
    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(target.serve, "127.0.0.1", 0)
        stack.callback(server.close)
        people = {
            name: Account(name, (COME,), {"project-vision"}) for name in ("ada", "bea", "gate")
        }
        hub = await stack.enter_async_context(StandInHub(people))
        scheduler = StandInScheduler(server.sockets[0].getsockname()[1])
        app = web.Application()
        app.router.add_get("/services/carrel/api/v1/events", scheduler.events)
        app.router.add_post("/services/carrel/api/v1/gateway/loads", scheduler.loads)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        settings = GatewaySettings(
            prefix="/services/gateway/",
            hub_prefix="/hub/",
            hub_api_url=hub.url,
            host="127.0.0.1",
            port=free_port(),
            api_url=f"http://127.0.0.1:{runner.addresses[0][1]}/services/carrel",
            client_id="service-gateway",
            token="gate",
        )
        made = ForwardingGateway(
            await stack.enter_async_context(running(settings, idle_seconds)), target
        )
        await _until_told(made)
        target.heard.clear()
        yield made
        for writer in made.writers:
            writer.close()


async def _until_told(made: ForwardingGateway) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            caller = await made.caller()
            caller.ask()
            if (await caller.answer())[0] == 200:
                return
            await asyncio.sleep(0.05)


async def test_bodies_pass_whole_in_both_framings_and_connections_are_kept(
    gateway: ForwardingGateway,
) -> None:
    caller = await gateway.caller()
    for _ in range(2):
        caller.ask("POST", "Content-Length: 5", body=b"12345")
        assert (await caller.answer())[0::2] == (200, b"ok")
        caller.ask("POST", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert (await caller.answer())[0::2] == (200, b"ok")
    assert [one.body for one in gateway.target.heard] == [b"12345", b"abcde"] * 2
    assert len({one.connection for one in gateway.target.heard}) == 1


async def test_what_is_of_one_connection_stays_there(gateway: ForwardingGateway) -> None:
    caller = await gateway.caller()
    caller.ask(
        "GET", "Connection: X-Own, keep-alive", "X-Own: 1", "Proxy-Authorization: x", "TE: trailers"
    )
    assert (await caller.answer())[0] == 200
    head = gateway.target.heard[0].head.lower()
    assert not [one for one in ("x-own", "proxy-authorization", "\r\nte:", "bearer") if one in head]
    assert "x-forwarded-user: ada" in head


async def test_a_body_cannot_hide_behind_connection(gateway: ForwardingGateway) -> None:
    caller = await gateway.caller()
    caller.ask("POST", "Connection: Content-Length", "Content-Length: 5", body=b"12345")
    assert (await caller.answer())[0] == 200
    assert gateway.target.heard[0].body == b"12345"


@pytest.mark.parametrize(
    "lines",
    [
        ("POST", "Content-Length: 5", "Transfer-Encoding: chunked"),
        ("POST", "Content-Length: 5", "Content-Length: 6"),
        ("POST", "Content-Length: +5"),
        ("POST", "Transfer-Encoding: gzip, chunked, identity"),
        ("GET", "X-Folded: a\r\n b"),
        ("GET", "X-Name : a"),
        ("GET", "X-Zero: \x00"),
    ],
)
async def test_what_may_be_read_in_two_ways_reaches_no_server(
    gateway: ForwardingGateway, lines: tuple[str, ...]
) -> None:
    caller = await gateway.caller()
    caller.ask(*lines, body=b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
    text = await caller.rest() if lines[0] == "POST" else (await caller.answer())[1].encode()
    assert text.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert not [one for one in gateway.target.heard if "smuggled" in one.head]


@pytest.mark.parametrize(
    ("length", "body"),
    [("Content-Length: 1000", b"\r\n" * 500), ("Transfer-Encoding: chunked", b"0\r\n\r\n")],
)
async def test_an_upgrade_with_a_body_is_refused_and_its_connection_closed(
    gateway: ForwardingGateway, length: str, body: bytes
) -> None:
    caller = await gateway.caller()
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    caller.ask("GET", *upgrade, key, length, body=body)
    text = await caller.rest()
    assert text.startswith(b"HTTP/1.1 400")
    assert text.count(b"HTTP/1.1") == 1
    assert gateway.target.heard == []


async def test_nobody_gets_the_answer_to_what_another_smuggled(gateway: ForwardingGateway) -> None:
    """A server that answers a handshake with 200 leaves no connection with a queue of answers."""

    async def tell(request: Heard, writer: asyncio.StreamWriter) -> None:
        user = request.head.lower().partition("x-forwarded-user: ")[2].split()[0]
        text = f"for {user}".encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))

    gateway.target.answer = tell
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    smuggled = f"GET {PATH}/evil HTTP/1.1\r\nHost: x\r\nX-Forwarded-User: evil\r\n\r\n".encode()
    for lines in (("GET", *upgrade, key), ("GET", *upgrade, key, "Content-Length: 1000")):
        attacker = await gateway.caller()
        attacker.ask(*lines, body=b"\r\n" * 700 + smuggled * 2)
        poster = await gateway.caller()
        poster.ask("POST", "Content-Length: 1400", body=b"\r\n" * 700 + smuggled * 2)
        assert (await poster.answer())[2] == b"for ada"
        await attacker.rest()
        for _ in range(3):
            victim = await gateway.caller()
            victim.ask("GET", who="ada")
            assert (await victim.answer())[0::2] == (200, b"for ada")
    assert not [one for one in gateway.target.heard if "/evil" in one.head and one.connection == 0]


async def test_a_connection_answered_early_is_not_used_again(gateway: ForwardingGateway) -> None:
    gateway.target.hung_up.clear()
    first = await gateway.caller()
    first.ask("POST", "Content-Length: 3", body=b"abc")
    assert (await first.answer())[0] == 200
    gateway.target.early = True
    second = await gateway.caller()
    second.ask("POST", "Content-Length: 1000000", body=b"x" * 1000)
    assert (await second.answer())[0] == 200
    second.writer.close()
    await asyncio.wait_for(gateway.target.hung_up.wait(), TIMEOUT_SECONDS)
    gateway.target.early = False
    third = await gateway.caller()
    third.ask("GET")
    assert (await third.answer())[0] == 200
    _, early, later = gateway.target.heard
    assert early.connection != later.connection


async def test_who_leaves_is_not_worked_for_any_longer(gateway: ForwardingGateway) -> None:
    asked = asyncio.Event()

    async def never(_: Heard, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await writer.drain()

    gateway.target.hung_up.clear()
    gateway.target.answer = never
    caller = await gateway.caller()
    caller.ask()
    await asyncio.wait_for(asked.wait(), TIMEOUT_SECONDS)
    caller.writer.close()
    await asyncio.wait_for(gateway.target.hung_up.wait(), TIMEOUT_SECONDS)


async def test_an_answer_that_breaks_off_does_not_look_whole(gateway: ForwardingGateway) -> None:
    async def half(_: Heard, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        writer.transport.abort()

    gateway.target.answer = half
    caller = await gateway.caller()
    caller.ask()
    assert not (await caller.rest()).endswith(b"0\r\n\r\n")


async def test_answers_without_a_body_are_passed_as_they_are(gateway: ForwardingGateway) -> None:
    async def bare(request: Heard, writer: asyncio.StreamWriter) -> None:
        if request.head.startswith("HEAD"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")

    gateway.target.answer = bare
    caller = await gateway.caller()
    caller.ask("GET")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        head = await caller.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 304")
    caller.ask("HEAD")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        head = await caller.reader.readuntil(b"\r\n\r\n")
    assert b"Content-Length: 7" in head
    gateway.target.answer = say_ok
    caller.ask("GET")
    assert (await caller.answer())[2] == b"ok"


async def test_events_arrive_one_by_one(gateway: ForwardingGateway) -> None:
    sent = asyncio.Event()

    async def events(_: Heard, writer: asyncio.StreamWriter) -> None:
        kind = b"Content-Type: text/event-stream"
        writer.write(b"HTTP/1.1 200 OK\r\n" + kind + b"\r\nConnection: close\r\n\r\ndata: 1\n\n")
        await sent.wait()
        writer.write(b"data: 2\n\n")
        writer.close()

    gateway.target.answer = events
    caller = await gateway.caller()
    caller.ask()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await caller.reader.readuntil(b"data: 1\n\n")
        sent.set()
        await caller.reader.readuntil(b"data: 2\n\n")


async def test_an_uploader_that_asks_is_told_to_continue(gateway: ForwardingGateway) -> None:
    caller = await gateway.caller()
    caller.ask("POST", "Expect: 100-continue", "Content-Length: 3")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert (await caller.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
    caller.writer.write(b"abc")
    assert (await caller.answer())[0] == 200
    assert gateway.target.heard[0].body == b"abc"
    assert "expect" not in gateway.target.heard[0].head.lower()
