"""Sends an answer that comes in pieces, with back-pressure, until its end or the listener's."""

import asyncio
import logging
from typing import Final

from tornado import web
from tornado.iostream import StreamClosedError

from carrel_scheduler.api.operation import StreamedResponse

log = logging.getLogger(__name__)
LONGEST_WAIT_SECONDS: Final = 30.0
"""The timeout of the first piece of an answer that ends: a cluster's node may be slow to refuse."""


class StreamSender:
    """Sends one answer in pieces. The source is closed in the end, whichever side ended first."""

    def __init__(self, handler: web.RequestHandler, stream: StreamedResponse) -> None:
        self._handler, self._stream = handler, stream
        self._sending: asyncio.Task[None] | None = None
        self._stopped = False
        self._broken_off = False

    async def send(self, first_piece_seconds: float) -> None:
        """Send all pieces; an error within ``first_piece_seconds`` is raised as a problem."""
        first = asyncio.ensure_future(anext(self._stream.pieces, None))
        try:
            if not self._stream.eager:
                timeout = LONGEST_WAIT_SECONDS if self._stream.ends else first_piece_seconds
                await asyncio.wait({first}, timeout=timeout)
                if first.done() and first.exception() is not None:
                    first.result()
            await self._send_all(first)
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await self._stream.pieces.aclose()

    async def _send_all(self, first: "asyncio.Future[bytes | None]") -> None:
        if self._stopped:
            return
        self._handler.set_header("Content-Type", self._stream.media)
        for name, value in self._stream.headers.items():
            self._handler.set_header(name, value)
        self._handler.set_header("X-Accel-Buffering", "no")
        self._sending = asyncio.ensure_future(self._send_pieces(first))
        try:
            await asyncio.wait({self._sending})
        finally:
            self._sending.cancel()
        if self._broken_off:
            self._handler.detach().close()
        elif not self._sending.cancelled() and (error := self._sending.exception()) is not None:
            # The head is out: only a broken connection can still say that something is missing.
            log.error("a stream failed", exc_info=error)
            self._handler.detach().close()

    async def _send_pieces(self, first: "asyncio.Future[bytes | None]") -> None:
        try:
            await self._handler.flush()
            piece = await first
            while piece is not None:
                self._handler.write(piece)
                # Waiting until the piece has left is what slows a fast source down.
                await self._handler.flush()
                piece = await anext(self._stream.pieces, None)
        except StreamClosedError:
            log.debug("the client of a stream has disconnected")

    def break_off(self) -> None:
        """The listener may hear no more: close the connection, so that nothing looks complete."""
        self._broken_off = True
        self.stop()

    def stop(self) -> None:
        """Stop streaming: the client has closed the connection."""
        self._stopped = True
        if self._sending is not None:
            self._sending.cancel()
