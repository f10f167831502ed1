"""The two ends of ``route``: a target and callers that cost as little as Python can."""

import asyncio
import time
from typing import Self

from typing_extensions import override

ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 1024\r\n\r\n"
    + b"y" * 1024
)
TIMEOUT_SECONDS = 60.0


class _Target(asyncio.Protocol):
    """Answers each request once it is whole."""

    def __init__(self) -> None:
        self._got = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._got += data
        while (end := self._got.find(b"\r\n\r\n")) >= 0:
            whole = end + 4 + _length(self._got[:end])
            if len(self._got) < whole:
                return
            self._got = self._got[whole:]
            if isinstance(self._transport, asyncio.WriteTransport):
                self._transport.write(ANSWER)


def _length(head: bytes) -> int:
    """The size of the body that a head announces; a chunked one is not understood."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def serve_target(port: int) -> None:
    """Listen until killed."""
    server = await asyncio.get_running_loop().create_server(_Target, "127.0.0.1", port)
    await server.serve_forever()


class Caller:
    """Sends the same request again and again over one connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
    ) -> None:
        self._reader, self._writer, self._request = reader, writer, request

    @classmethod
    async def connect(cls, port: int, request: bytes) -> Self:
        """A caller on a new connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(reader, writer, request)

    async def ask(self) -> None:
        """Send a request; raises ``RuntimeError`` for anything but success."""
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(head.decode("latin-1"))
        size = _length(head[:-4])
        if size:
            await self._reader.readexactly(size)
        else:
            await self._chunks()

    async def ask_until(self, end: float) -> int:
        """Ask until a time of ``perf_counter``; how often that was."""
        count = 0
        async with asyncio.timeout(end - time.perf_counter() + TIMEOUT_SECONDS):
            while time.perf_counter() < end:
                await self.ask()
                count += 1
        return count

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def _chunks(self) -> None:
        while True:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            await self._reader.readexactly(size + 2)
            if size == 0:
                return
