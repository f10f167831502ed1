"""What a caller sends, read into requests; heads and what follows bodies are bounded."""

from collections.abc import Callable

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from carrel_hub.proxy.wire.asked import LONGEST_HEAD, Asked, RefusedError, read
from carrel_hub.proxy.wire.exchange import Exchange


class Hearing:
    """See the module.

    Args:
        remote: address of the caller.
        open_exchange: told of each request as soon as its head is known.

    Attributes:
        incoming: the request whose body is being read.
        refused: why nothing more can be read.
    """

    def __init__(self, remote: str | None, open_exchange: Callable[[Asked], Exchange]) -> None:
        self._remote, self._open = remote, open_exchange
        self._parser = HttpRequestParser(self)
        self.incoming: Exchange | None = None
        self.refused: RefusedError | None = None
        self._upgrade: Asked | None = None
        self._reads_head = False
        self._unread = 0

    def feed(self, data: bytes) -> tuple[Asked, bytes] | None:
        """Read some more.

        Returns:
            A request whose caller would like to speak another protocol from here on, and what
            follows its head; then nothing more can be fed, but ``afresh``.
        """
        self._unread += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            asked, self._upgrade = self._upgrade, None
            if self.refused is None and asked is not None:
                return asked, data[upgrade.args[0] :]
        except HttpParserError as error:
            if self.refused is None:
                self.refused = RefusedError(400, "malformed", f"This is no HTTP/1.1: {error}.")
        if self._unread > 2 * LONGEST_HEAD and self.refused is None:
            self.refused = RefusedError(
                431, "head_too_large", f"A request's head may have {LONGEST_HEAD:,} bytes."
            )
        return None

    def afresh(self) -> None:
        """What is fed next begins with a head."""
        self._parser = HttpRequestParser(self)

    def on_message_begin(self) -> None:
        """Of the parser."""
        self._url, self._raw = b"", list[tuple[bytes, bytes]]()
        self._reads_head, self._unread = True, 0

    def on_url(self, part: bytes) -> None:
        """Of the parser."""
        self._url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the parser; what comes behind a body is left out."""
        if self._reads_head:
            self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        """Of the parser."""
        self._reads_head, self._unread = False, 0
        if self.refused is not None:
            return
        parser = self._parser
        try:
            asked = read(
                parser.get_method().decode(),
                self._url,
                self._raw,
                parser.get_http_version(),
                self._remote,
            )
        except RefusedError as refused:
            self.refused = refused
            return
        if parser.should_upgrade():
            self._upgrade = asked
            return
        self.incoming = self._open(asked)

    def on_body(self, piece: bytes) -> None:
        """Of the parser."""
        self._unread = 0
        if self.incoming is not None and self.refused is None:
            self.incoming.body(piece)

    def on_message_complete(self) -> None:
        """Of the parser."""
        self._unread = 0
        if self.incoming is not None and self.refused is None:
            self.incoming.body_ends()
            self.incoming = None


def again(asked: Asked) -> bytes:
    """A head as it can be read once more."""
    lines = [f"{asked.method} {asked.raw_path} HTTP/{'1.1' if asked.modern else '1.0'}"]
    lines += [f"{name}: {value}" for name, value in asked.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")
