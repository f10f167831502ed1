"""Heads as bytes, and of which kind the body behind them is. What frames a body is written anew."""

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from aiohttp import web

from carrel_hub.proxy.headers import Pairs

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
FRAMING: Final = frozenset({"content-length", "transfer-encoding", "expect"})
_PHRASES: Final = {one.value: one.phrase for one in HTTPStatus}
_date: tuple[int, str] = (0, "")


def bodiless(method: str, status: int) -> bool:
    """Whether an answer has no body whatever its head says."""
    return method == "HEAD" or status in (204, 304) or status < 200


def request_head(
    method: str, path: str, headers: Pairs, length: int | None, *, chunked: bool
) -> bytes:
    """A request to a target; ``headers`` without ``FRAMING``.

    Raises ``ValueError`` for a header that would be several lines.
    """
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    elif length is not None:
        headers.append(("Content-Length", str(length)))
    return _head(f"{method} {path} HTTP/1.1", headers)


def answer_head(
    status: int, reason: str, headers: Pairs, *, chunked: bool, keep_alive: bool, modern: bool
) -> bytes:
    """An answer to a caller; ``headers`` have its length, if it is known."""
    if chunked:
        headers.append(("Transfer-Encoding", "chunked"))
    if not keep_alive:
        headers.append(("Connection", "close"))
    elif not modern:
        headers.append(("Connection", "keep-alive"))
    return _head(f"HTTP/1.1 {status} {reason}", headers)


def own_answer(response: web.Response) -> tuple[int, str, Pairs, bytes]:
    """An answer of our own: status, reason, headers with its length, body."""
    body = response.body if isinstance(response.body, bytes) else b""
    headers = list(response.headers.items())
    headers += [("Set-Cookie", morsel.OutputString()) for morsel in response.cookies.values()]
    headers.append(("Date", now()))
    if response.status not in (204, 304):
        headers.append(("Content-Length", str(len(body))))
    return response.status, response.reason or _PHRASES.get(response.status, ""), headers, body


def chunk(piece: bytes) -> bytes:
    """A piece of a body of unknown size."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _head(first: str, headers: Pairs) -> bytes:
    lines = [first, *[f"{name}: {value}" for name, value in headers]]
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1 or "\0" in text:
        raise ValueError("a header has a line break or a null in it")
    return f"{text}\r\n\r\n".encode("utf-8", "surrogateescape")


def now() -> str:
    """The value of ``Date``."""
    global _date  # noqa: PLW0603 - one text for all answers of a second
    second = int(time.time())
    if _date[0] != second:
        _date = second, formatdate(second, usegmt=True)
    return _date[1]
