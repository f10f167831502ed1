"""Requests by Python's own ``http.client``, for a process that sends few and ends.

The command line starts for each command anew, and importing aiohttp takes longer than most of its
requests. Each request runs in a thread of its own, so that it can be given up: who gives it up
closes its connection, and the thread keeps no process from ending. Connections are kept for reads
and deletions; what must not be sent twice gets a new one, as a kept one may have been closed.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from typing import Final
from urllib.parse import urlencode, urlsplit

from typing_extensions import override

ONCE: Final = frozenset({"POST", "PATCH"})


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole answer."""

    status: int
    reason: str | None
    content_type: str
    content: bytes

    async def read(self) -> bytes:
        """The body; asynchronous like that of an answer that still arrives."""
        return self.content


class RequestFailed(Exception):  # noqa: N818 - an outcome of one attempt; the caller decides what it means
    """A request got no answer.

    Attributes:
        sent: whether it may have reached the server.
        final: whether trying again is of no use.
    """

    def __init__(self, why: str, *, sent: bool, final: bool = False) -> None:
        super().__init__(why)
        self.sent, self.final = sent, final


def why(error: OSError) -> str:
    """The reason why there is no connection, in words."""
    if isinstance(error, ssl.SSLError):
        return "its certificate is not trusted"
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    return (error.strerror or str(error)).rstrip(".").lower()


class _Unix(http.client.HTTPConnection):
    """A connection to a socket in the file system."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class PlainHttp:
    """Requests to one server.

    Args:
        base: its URL.
        unix_socket: the socket where it listens, if it is no port.
    """

    def __init__(self, base: str, unix_socket: str | None) -> None:
        parts = urlsplit(base)
        self._secure, self._unix_socket = parts.scheme == "https", unix_socket
        self._host, self._port = parts.hostname or "", parts.port
        self._kept: list[http.client.HTTPConnection] = []

    async def request(
        self,
        method: str,
        url: str,
        parameters: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        content: bytes | None,
        seconds: float | None,
    ) -> HttpResponse:
        """Send a request and read its answer. Raises ``RequestFailed`` and ``TimeoutError``."""
        path = urlsplit(url).path or "/"
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        connection = self._taken(method, seconds)
        try:
            async with asyncio.timeout(seconds):
                answer = await _in_thread(connection, method, target, headers, content)
        except BaseException:
            _abort(connection)
            raise
        if connection.sock is not None:
            self._kept.append(connection)
        return answer

    def close(self) -> None:
        """Close connections."""
        while self._kept:
            self._kept.pop().close()

    def _taken(self, method: str, seconds: float | None) -> http.client.HTTPConnection:
        if self._kept and method not in ONCE:
            connection = self._kept.pop()
            connection.sock.settimeout(seconds)
            return connection
        if self._unix_socket is not None:
            return _Unix(self._unix_socket, seconds)
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=seconds)


async def _in_thread(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    content: bytes | None,
) -> HttpResponse:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[HttpResponse] = loop.create_future()

    def tell(answer: HttpResponse | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if answer is not None:
            done.set_result(answer)
        elif error is not None:
            done.set_exception(error)

    def work() -> None:
        answer, error = None, None
        try:
            answer = _exchange(connection, method, target, headers, content)
        except Exception as raised:  # noqa: BLE001 - whoever waits gets it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits
            loop.call_soon_threadsafe(tell, answer, error)

    threading.Thread(target=work, name="carrel-request", daemon=True).start()
    return await done


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    content: bytes | None,
) -> HttpResponse:
    """Send a request, in its thread. Raises ``RequestFailed`` and ``TimeoutError``."""
    try:
        if connection.sock is None:
            connection.connect()
    except TimeoutError:
        raise
    except OSError as error:
        final = isinstance(error, ssl.SSLCertVerificationError)
        raise RequestFailed(why(error), sent=False, final=final) from error
    try:
        connection.request(method, target, body=content, headers=dict(headers))
        response = connection.getresponse()
        body = response.read()
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        words = why(error) if isinstance(error, OSError) else str(error).rstrip(".")
        raise RequestFailed(words or type(error).__name__, sent=True) from error
    described: Message = response.headers
    return HttpResponse(response.status, response.reason, described.get_content_type(), body)


def _abort(connection: http.client.HTTPConnection) -> None:
    """Abort the operation for which a thread may be waiting."""
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        connection.close()
