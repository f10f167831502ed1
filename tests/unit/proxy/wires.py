"""Both ends of the data path in memory: a caller and a target whose transports are lists."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web
from typing_extensions import override

from carrel_hub.proxy.headers import HOP, kept
from carrel_hub.proxy.wire.caller import Caller
from carrel_hub.proxy.wire.exchange import Exchange
from carrel_hub.proxy.wire.heads import FRAMING
from carrel_hub.proxy.wire.line import BrokenOffError, Line, TargetError


class Wire:
    """A transport. ``sent`` is all that was written; ``reading``: whether more would be read."""

    def __init__(self) -> None:
        self.protocol: asyncio.Protocol | None = None
        self.sent = b""
        self.closed = self.broken = self.ended = False
        self._held = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed

    def reading(self) -> bool:
        return not self._held

    def pause_reading(self) -> None:
        self._held = True

    def resume_reading(self) -> None:
        self._held = False

    def write_eof(self) -> None:
        self.ended = True

    def get_extra_info(self, _name: str) -> Any:
        return "10.0.0.9", 4000

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol

    def close(self) -> None:
        self._close(broken=False)

    def abort(self) -> None:
        self._close(broken=True)

    def _close(self, *, broken: bool) -> None:
        if not self.closed:
            self.closed, self.broken = True, broken
            assert self.protocol is not None
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


def join(protocol: asyncio.Protocol) -> Wire:
    """Connect a protocol to nothing."""
    wire = Wire()
    wire.protocol = protocol
    protocol.connection_made(cast("asyncio.Transport", wire))
    return wire


class Taken(asyncio.Protocol):
    """What takes over a connection for a websocket."""

    def __init__(self) -> None:
        self.got = b""

    @override
    def data_received(self, data: bytes) -> None:
        self.got += data


class Pass:
    """A caller whose requests all go to one target, over a new line each unless one is idle."""

    def __init__(self, serve: Callable[[Exchange], Awaitable[None]] | None = None) -> None:
        self.lines: list[Wire] = []
        self.idle: list[Line] = []
        self.failures: list[str] = []
        self.taken: list[Taken] = []
        self.most: int | None = None
        self.caller = Caller(serve or self.serve, refuse, self._take, set())
        self.wire = join(self.caller)

    def _take(self) -> Taken:
        self.taken.append(Taken())
        return self.taken[-1]

    async def serve(self, exchange: Exchange) -> None:
        asked = exchange.asked
        if self.most is not None:
            exchange.bound(self.most)
        if self.idle:
            line = self.idle.pop()
        else:
            line = Line("key", self.idle.append, lambda _: None)
            self.lines.append(join(line))
        headers = kept(asked.headers, HOP | FRAMING)
        try:
            await exchange.pass_to(line, asked.raw_path, headers, 60.0, list)
        except TargetError as error:
            self.failures.append(str(error))
            exchange.answer(refuse(502, "broke_off", str(error)))
        except BrokenOffError as error:
            self.failures.append(str(error))

    async def says(self, *pieces: bytes) -> None:
        """The caller sends; everything that follows from it has happened."""
        for piece in pieces:
            self.caller.data_received(piece)
            await settled()

    async def target_says(self, *pieces: bytes, line: int = -1) -> None:
        """The target sends, over the newest connection to it."""
        protocol = self.lines[line].protocol
        assert protocol is not None
        for piece in pieces:
            protocol.data_received(piece)
            await settled()

    async def target_hangs_up(self, error: Exception | None = None) -> None:
        """The newest connection to the target is lost."""
        self.lines[-1].closed = True
        protocol = self.lines[-1].protocol
        assert protocol is not None
        protocol.connection_lost(error)
        await settled()

    async def goes(self) -> None:
        """The caller goes away; ends every test, as connections have timers."""
        self.wire.abort()
        for line in self.lines:
            line.abort()
        await settled()


async def settled() -> None:
    """Let callbacks and tasks that are due run."""
    for _ in range(8):
        await asyncio.sleep(0)


def refuse(status: int, code: str, _detail: str) -> web.Response:
    """An answer of our own."""
    return web.Response(status=status, body=code.encode())


def plain(raw: bytes) -> bytes:
    """What was written, without the one header whose value changes."""
    lines = raw.split(b"\r\n")
    return b"\r\n".join(one for one in lines if not one.startswith(b"Date: "))
