"""Requests to one server: the token, time limits, retries, and problems turned into errors.

A request is sent again only when that cannot do harm: when it never left (no connection), or when
repeating it means the same (reads, deletions, creations with an idempotency key), and not when no
answer came in time. Redirects are not followed: a login page is not an answer of the API, and the
token must not travel.
"""

import asyncio
import io
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from carrel.client.config import ClientSettings
from carrel.client.plain_http import HttpResponse, PlainHttp, RequestFailed, why
from carrel.errors import ApiError, NotSignedIn, UnexpectedAnswer, Unreachable
from carrel_schema.reading import read

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
Parameter = str | int | float | bool | None
Parameters = Mapping[str, Parameter | Sequence[str]]

ATTEMPTS: Final = 4
AWAY: Final = "away"
"""Code of the proxy's answer for a part that does not answer."""
RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})
SILENT_SECONDS: Final = 40.0
"""More than twice the interval of the comments that an idle stream carries."""
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 5.0
USER_AGENT: Final = "carrel-client"
CHANNEL: Final = "CARREL_CHANNEL"
"""Variable with what this process is to the audit log: the command line is ``cli``."""
_NOT_ACCEPTED: Final = (
    "{url} does not accept the token (unknown or expired): sign in again with `carrel login`."
)
_HANDSHAKE: Final = {
    403: "Only its owner may open a terminal in it.",
    404: "There is no such workload in your projects.",
    409: "It is not running, so there is nothing to open a terminal in.",
}


@dataclass(frozen=True, slots=True)
class JitteredBackoff:
    """Back-off with jitter; both sources are replaced in tests."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def before(self, retry: int, longest: float = LONGEST_PAUSE_SECONDS) -> None:
        """Wait before the n-th retry (from 0): doubled each time, half of it by chance."""
        full = min(FIRST_PAUSE_SECONDS * 2**retry, longest)
        await self.sleep(full * (0.5 + 0.5 * self.chance()))


class ReceivedProblem(msgspec.Struct):
    """The body of ``application/problem+json``."""

    title: str = ""
    code: str = ""
    detail: str = ""
    errors: list[dict[str, Any]] = []


def segment(text: str) -> str:
    """A path segment, quoted."""
    return quote(text, safe="")


class Answered(Protocol):
    """The head of an answer, before its body is read."""

    @property
    def status(self) -> int:
        """The status code."""

    @property
    def reason(self) -> str | None:
        """The reason phrase of the status."""

    @property
    def content_type(self) -> str:
        """The media type without parameters."""

    async def read(self) -> bytes:
        """The body."""


class Transport:
    """A session with one server. Used inside one event loop; ``close`` when done.

    With ``few_requests`` whole answers are fetched by the standard library, which a short process
    has at hand sooner than aiohttp; streams and websockets are aiohttp's in any case.
    """

    def __init__(
        self,
        settings: ClientSettings,
        *,
        timeout: float = 30.0,
        read_timeout: float | None = None,
        session: "aiohttp.ClientSession | None" = None,
        pauses: JitteredBackoff | None = None,
        origin: Mapping[str, str] | None = None,
        few_requests: bool = False,
    ) -> None:
        self.settings = settings
        self._origin = {"X-Carrel-Channel": _channel()} if origin is None else dict(origin)
        self.pauses = pauses or JitteredBackoff()
        self._timeout = timeout
        self._timeouts = {"GET": timeout if read_timeout is None else read_timeout}
        self._session = session
        self._owned = session is None
        self._base, self._socket = _address(settings.url)
        plain = few_requests and session is None
        self._plain = PlainHttp(self._base, self._socket) if plain else None
        self._heard_at = 0.0
        self._away = False

    def heard(self) -> None:
        """A stream of events said something: the server is there."""
        self._heard_at, self._away = time.time(), False

    def lost(self) -> None:
        """A stream of events broke off; it is being opened again."""
        self._away = True

    @property
    def silent_since(self) -> float:
        """Epoch seconds when streams of events last heard the server, if it is silent; else 0."""
        silent = self._away or time.time() - self._heard_at > SILENT_SECONDS
        return self._heard_at if silent else 0.0

    @property
    def session(self) -> "aiohttp.ClientSession":
        """The HTTP session, opened when first used."""
        import aiohttp

        if self._session is None:
            # The C library looks names up: a resolver of its own would take one of the few
            # inotify instances of the account for each kernel.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self._socket)
                if self._socket
                else aiohttp.TCPConnector(resolver=aiohttp.ThreadedResolver())
            )
        return self._session

    async def close(self) -> None:
        """Close the session unless it was lent by the caller."""
        if self._plain is not None:
            self._plain.close()
        if self._owned and self._session is not None:
            await self._session.close()
            self._session = None

    def url(self, path: str) -> str:
        """The full URL of an API path."""
        return f"{self._base}/api/v1{path}"

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The headers of every request."""
        own = {"Authorization": f"token {self.settings.token}", "User-Agent": USER_AGENT}
        return own | self._origin | dict(more or {})

    async def ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        parameters: Parameters | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> T:
        """Send a request and read its JSON answer as ``answer``.

        ``repeatable`` says that sending twice means the same; by default true for all but POST.
        Raises ``ApiError``, ``NotSignedIn``, ``Unreachable``, ``UnexpectedAnswer``.
        """
        content = await self.send(
            method, path, parameters=parameters, body=body, headers=headers, repeatable=repeatable
        )
        return self.read(content, answer)

    def read(self, content: bytes, answer: type[T]) -> T:
        """The typed content of an answer. Raises ``UnexpectedAnswer``."""
        try:
            return read(content, answer)
        except msgspec.MsgspecError as error:
            raise UnexpectedAnswer(
                f"An answer of {self.settings.url} was not understood ({error})."
            ) from error

    async def send(
        self,
        method: str,
        path: str,
        *,
        parameters: Parameters | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool | None = None,
    ) -> bytes:
        """Send a request, again where that is safe, and return the body of its answer."""
        again = method != "POST" if repeatable is None else repeatable
        content, more = encoded(body)
        fetch = self._by_aiohttp if self._plain is None else self._plain.request
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                answer = await fetch(
                    method,
                    self.url(path),
                    pairs(parameters),
                    self.headers(more | dict(headers or {})),
                    content,
                    self._timeouts.get(method, self._timeout),
                )
            except TimeoutError as error:  # a server that hangs: asking again would hang as long
                raise self._unreachable(error) from error
            except RequestFailed as failure:
                if last or failure.final or (failure.sent and not again):
                    raise self._unreachable(failure) from failure
            else:
                if last or not again or answer.status not in RETRIED_STATUSES:
                    await self.check(answer)
                    return answer.content
            await self.pauses.before(attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _by_aiohttp(
        self,
        method: str,
        url: str,
        parameters: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        content: bytes | None,
        seconds: float | None,
    ) -> HttpResponse:
        """Send a request and read its answer. Raises ``RequestFailed`` and ``TimeoutError``."""
        import aiohttp

        try:
            async with self.session.request(
                method,
                url,
                params=parameters,
                data=None if content is None else io.BytesIO(content),
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                content = await response.read()
                return HttpResponse(
                    response.status, response.reason, response.content_type, content
                )
        except TimeoutError:
            raise
        except aiohttp.ClientConnectorError as error:
            final = isinstance(error, aiohttp.ClientConnectorCertificateError)
            raise RequestFailed(_plain(error), sent=False, final=final) from error
        except aiohttp.ClientError as error:
            raise RequestFailed(_plain(error), sent=True) from error

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        parameters: Parameters | None = None,
        headers: Mapping[str, str] | None = None,
        quiet_seconds: float | None = None,
    ) -> AsyncIterator["aiohttp.ClientResponse"]:
        """Open a streamed answer; it is cut after ``quiet_seconds`` without a byte."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeout, sock_read=quiet_seconds
        )
        try:
            async with self.session.get(
                self.url(path),
                params=pairs(parameters),
                headers=self.headers(headers),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                await self.check(response)
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def websocket(
        self, path: str, *, parameters: Parameters | None = None
    ) -> "aiohttp.ClientWebSocketResponse":
        """Open a two-way connection."""
        import aiohttp

        try:
            return await self.session.ws_connect(
                self.url(path), params=pairs(parameters), headers=self.headers(), heartbeat=20.0
            )
        except aiohttp.WSServerHandshakeError as error:
            if error.status == 401:
                raise NotSignedIn(_NOT_ACCEPTED.format(url=self.settings.url)) from error
            raise ApiError(error.status, detail=_HANDSHAKE.get(error.status, "")) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def check(self, response: Answered) -> None:
        """Raise the error for an unsuccessful response."""
        if response.status < 300:
            return
        if response.status == 401:
            raise NotSignedIn(_NOT_ACCEPTED.format(url=self.settings.url))
        if response.status >= 400 and "json" in response.content_type:
            error = problem(response.status, await response.read())
            if error.code == AWAY:
                raise Unreachable(f"No answer from {self.settings.url}: it is not there now.")
            raise error
        raise Unreachable(
            f"Nothing that speaks Carrel's API answers at {self.settings.url} "
            f"(status {response.status})."
        )

    def _unreachable(self, error: Exception) -> Unreachable:
        cause = "it took too long" if isinstance(error, TimeoutError) else _plain(error)
        return Unreachable(f"No answer from {self.settings.url}: {cause}.")


def _channel() -> str:
    """The channel of the request for the audit log."""
    return "notebook" if "ipykernel" in sys.modules else os.environ.get(CHANNEL, "api")


def encoded(body: Any) -> tuple[bytes | None, dict[str, str]]:
    """A body and what it says of itself: bytes as they are, anything else as JSON."""
    if body is None:
        return None, {}
    if isinstance(body, bytes):
        return body, {"Content-Type": "application/octet-stream"}
    return msgspec.json.encode(body), {"Content-Type": "application/json"}


def problem(status: int, content: bytes) -> ApiError:
    """The error for a problem document."""
    try:
        found = msgspec.json.decode(content, type=ReceivedProblem)
    except msgspec.MsgspecError:
        found = ReceivedProblem(
            title=f"The server answered with status {status} and no explanation."
        )
    return ApiError(status, found.code, found.title, found.detail, found.errors)


def pairs(parameters: Parameters | None) -> list[tuple[str, str]]:
    """Query parameters as the API wants them: absent ones left out, sequences repeated."""
    found: list[tuple[str, str]] = []
    for name, value in (parameters or {}).items():
        if value is None:
            continue
        if isinstance(value, bool):
            found.append((name, "true" if value else "false"))
        elif isinstance(value, str | int | float):
            found.append((name, str(value)))
        else:
            found.extend((name, one) for one in value)
    return found


def _address(url: str) -> tuple[str, str | None]:
    """Base URL and, for ``http+unix://<quoted socket path>/prefix``, the socket."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return f"http://localhost{parts.path}", unquote(parts.netloc)
    return url, None


def _plain(error: Exception) -> str:
    cause = getattr(error, "os_error", None)  # of aiohttp's errors of connections
    if isinstance(cause, OSError):
        return why(cause)
    return (str(error) or type(error).__name__).rstrip(".")
