"""A proxy between a scheduler and its API server that cuts, delays and resets as it is told.

Without a certificate of the server it passes bytes on as they are. With one it speaks TLS to the
server and plain HTTP to the scheduler, so it knows the watches and can end one within an event.
"""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

WATCH = b"watch=true"
CHUNK_BYTES = 1 << 14


class Proxy:
    """Passes TCP connections on to a port of loopback, until told otherwise.

    Attributes:
        refusing: new connections are closed at once.
        frozen: nothing passes any more on those that are there; they stay open.
        cut_after: bytes from the server until all its connections are cut; then it is ``None``.
        cut_watch: the next chunk of a watch is passed on up to this part of it, and the watch cut.
        delay: seconds that each chunk from the server takes longer.
        cuts: how often something was cut.
    """

    def __init__(self, to: int, authority: Path | None = None) -> None:
        self._to = to
        self._tls = None if authority is None else ssl.create_default_context(cafile=str(authority))
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.refusing = False
        self.frozen = asyncio.Event()
        self.cut_after: int | None = None
        self.cut_watch: float | None = None
        self.delay = 0.0
        self.cuts = 0

    async def start(self) -> int:
        """The port that it listens on."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.refusing = True
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection off."""
        self.cuts += 1
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it never began

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_writer = None
        connection = _Connection(self)
        try:
            to_reader, to_writer = await asyncio.open_connection(
                "127.0.0.1", self._to, ssl=self._tls
            )
            async with asyncio.TaskGroup() as both:
                both.create_task(connection.ask(reader, to_writer))
                both.create_task(connection.answer(to_reader, writer))
        except* OSError:
            pass  # the server is away, or one side hung up: the other one's end follows
        finally:
            if to_writer is not None:
                to_writer.transport.abort()


class _Connection:
    """A connection, in both directions; ends with ``ConnectionResetError``."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._watches = False

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward what the scheduler sends."""
        while chunk := await reader.read(CHUNK_BYTES):
            await self._while_frozen()
            self._watches = WATCH in chunk
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward what the server sends."""
        proxy = self._proxy
        while chunk := await reader.read(CHUNK_BYTES):
            await self._while_frozen()
            if proxy.delay:
                await asyncio.sleep(proxy.delay)
            if self._watches and proxy.cut_watch is not None:
                part, proxy.cut_watch = proxy.cut_watch, None
                await self._last(writer, chunk[: int(len(chunk) * part)])
                proxy.cuts += 1
                break
            if proxy.cut_after is not None:
                left = proxy.cut_after - len(chunk)
                proxy.cut_after = left if left > 0 else None
                if left <= 0:
                    await self._last(writer, chunk[: len(chunk) + left])
                    proxy.cut()
                    continue
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError

    async def _while_frozen(self) -> None:
        if self._proxy.frozen.is_set():
            await asyncio.Event().wait()

    async def _last(self, writer: asyncio.StreamWriter, chunk: bytes) -> None:
        writer.write(chunk)
        with suppress(OSError):
            await writer.drain()
