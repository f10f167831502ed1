"""One connection to a target: a request at a time, its answer handed on as it is read."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from typing_extensions import override

from carrel_hub.proxy.headers import HOP, Pairs, named_by_connection
from carrel_hub.proxy.wire.asked import LONGEST_HEAD, MOST_HEADERS, pairs
from carrel_hub.proxy.wire.heads import bodiless, now

LATE: Final = "it did not begin to answer in time"


class TargetError(Exception):
    """A target did not answer.

    Attributes:
        sent: it may have seen the request.
        late: it took longer than it may.
    """

    def __init__(self, why: str, *, sent: bool, late: bool = False) -> None:
        super().__init__(why)
        self.sent, self.late = sent, late


class BrokenOffError(Exception):
    """A target began to answer and did not come to an end."""


@dataclass(slots=True)
class Head:
    """How an answer begins.

    Attributes:
        headers: those that are for the caller, without what frames the body.
        length: of the body; ``None`` is unknown.
        empty: there is no body.
    """

    status: int
    reason: str
    headers: Pairs
    length: int | None
    empty: bool


class Sink(Protocol):
    """Who gets an answer."""

    def begin(self, head: Head) -> None:
        """The head is known; raises ``ValueError`` if it cannot be passed on."""
        ...

    def piece(self, data: bytes) -> None:
        """Some of the body."""
        ...

    def end(self) -> None:
        """The answer is whole."""
        ...

    def flush(self) -> None:
        """All that came in one go was told."""
        ...

    def hold_body(self) -> None:
        """The target takes no more of the request now."""
        ...

    def release_body(self) -> None:
        """It does again."""
        ...


class Line(asyncio.Protocol):
    """See the module. ``idle`` and ``lost`` are told when it can be used again, or never."""

    transport: asyncio.Transport

    def __init__(
        self, key: Hashable, idle: Callable[["Line"], None], lost: Callable[["Line"], None]
    ) -> None:
        self.key, self.since = key, 0.0
        self._idle, self._lost = idle, lost
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()
        self._parser = HttpResponseParser(self)
        self._sink: Sink | None = None
        self._done: asyncio.Future[None] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._begun = self._ended = self._until_closed = self._keep = self._failed = False
        self._unread = 0

    def ask(self, sink: Sink, method: str, head: bytes, seconds: float) -> asyncio.Future[None]:
        """Send a request's head; its body may be sent with ``transport``.

        Returns:
            Done when the answer was handed on as a whole. ``TargetError`` before it began,
            ``BrokenOffError`` after that.
        """
        self._sink, self._method = sink, method
        self._begun = self._ended = self._until_closed = self._interim = False
        self._unread = 0
        self._done = self._loop.create_future()
        self._late = self._loop.call_later(seconds, self._too_late)
        self.transport.write(head)
        return self._done

    def break_off(self, why: str) -> None:
        """Whoever waits for the answer is told that there is none."""
        self._fail(why)

    def hang_up(self) -> None:
        """Nobody waits for the answer any more."""
        self._let_go()
        self.transport.abort()

    def release(self, *, whole: bool) -> None:
        """The answer was taken; ``whole``: the request was sent to its end too."""
        self._let_go()
        if whole and self._ended and self._keep and not self.transport.is_closing():
            self.transport.resume_reading()  # a slow caller may have paused it to the end
            self._idle(self)
        else:
            self.transport.abort()

    def pause(self) -> None:
        """The caller takes no more now."""
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def resume(self) -> None:
        """It does again."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        sink = self._sink
        if sink is None or self._ended:
            self._keep = False
            if sink is None:
                self.transport.abort()
            return
        self._unread += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("it changed to another protocol unasked")
        except HttpParserError as error:
            self._keep = False
            if not self._ended:
                self._fail(f"{error.__context__ or error}")
        self._read(sink)

    def _read(self, sink: Sink) -> None:
        """All of one go was looked at."""
        if self._failed:
            return
        if self._ended:
            self._succeed(sink)
            return
        sink.flush()
        if self._unread > 2 * LONGEST_HEAD:
            self._fail("its head is too long")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)
        self.closed.set_result(None)
        sink = self._sink
        if sink is None or self._ended:
            return
        if self._until_closed and exc is None:
            self._ended = True
            self._succeed(sink)
        else:
            self._fail("it hung up" if exc is None else f"{type(exc).__name__}: {exc}")

    @override
    def pause_writing(self) -> None:
        if self._sink is not None:
            self._sink.hold_body()

    @override
    def resume_writing(self) -> None:
        if self._sink is not None:
            self._sink.release_body()

    def on_message_begin(self) -> None:
        """Of the parser."""
        self._reason = b""
        self._raw: list[tuple[bytes, bytes]] = []
        self._interim = False

    def on_status(self, phrase: bytes) -> None:
        """Of the parser."""
        self._reason += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the parser; what comes behind a body is left out."""
        if not self._begun:
            self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        """Of the parser."""
        sink = self._sink
        if self._ended or sink is None:
            return
        status = self._parser.get_status_code()
        if status < 200 and status != 101:
            self._interim, self._unread = True, 0
            return
        if status == 101 or len(self._raw) > MOST_HEADERS:
            raise ValueError("its answer cannot be passed on")
        self._begin(sink, status)

    def _begin(self, sink: Sink, status: int) -> None:
        length, encoding, said = None, None, []
        headers: Pairs = []
        dated = False
        for name, value in pairs(self._raw):
            key = name.lower()
            if key == "content-length":
                length = int(value)
            elif key == "transfer-encoding":
                encoding = value.strip().lower()
            elif key == "connection":
                said.append(value)
            elif key not in HOP:
                headers.append((name, value))
                dated = dated or key == "date"
        if encoding not in (None, "chunked"):
            raise ValueError(f"its Transfer-Encoding is {encoding!r}")
        named = named_by_connection(said) if said else frozenset()
        if named:
            headers = [one for one in headers if one[0].lower() not in named]
        if not dated:
            headers.append(("Date", now()))
        empty = bodiless(self._method, status)
        modern = self._parser.get_http_version() == "1.1"
        self._keep = (modern and "close" not in named) or "keep-alive" in named
        self._until_closed = not empty and length is None and encoding is None
        reason = self._reason.decode("utf-8", "surrogateescape")
        sink.begin(Head(status, reason, headers, length, empty))
        self._begun, self._unread = True, 0
        if self._late is not None:
            self._late.cancel()
        if self._method == "HEAD":
            # The parser may wait for a body that will not come.
            self._ended, self._parser = True, HttpResponseParser(self)

    def on_body(self, piece: bytes) -> None:
        """Of the parser."""
        self._unread = 0
        if self._sink is not None and not self._ended:
            self._sink.piece(piece)
        else:
            self._keep = False

    def on_message_complete(self) -> None:
        """Of the parser."""
        if self._begun and not self._interim:
            self._ended = True

    def _too_late(self) -> None:
        if not self._begun:
            self._fail(LATE, late=True)

    def _succeed(self, sink: Sink) -> None:
        sink.end()
        sink.flush()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _fail(self, why: str, *, late: bool = False) -> None:
        done, begun = self._done, self._begun
        self._failed = True
        self._let_go()
        self.transport.abort()
        if done is not None and not done.done():
            done.set_exception(
                BrokenOffError(why) if begun else TargetError(why, sent=True, late=late)
            )

    def _let_go(self) -> None:
        self._sink = self._done = None
        if self._late is not None:
            self._late.cancel()
            self._late = None
