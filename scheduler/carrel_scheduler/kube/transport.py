"""Bytes to and from the API server: connections and credentials, nothing of their meaning.

Requests share a bounded pool of kept connections; streams (watches, logs, exec) have connections
of their own, as each occupies one for as long as it lasts. TCP probes find dead peers.

Credentials that do not work are mended by a person, minutes or days later. The first failures are
taken for transient (a token that is just being replaced). Then ``CredentialsBreaker`` lets one try
through at a time, ever more seldom; all others fail at once with the reason.
"""

import asyncio
import logging
import socket
import time
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from yarl import URL

from carrel_scheduler.backoff import exponential
from carrel_scheduler.kube.credentials import Credentials, CredentialsUnusable, ServerAccess

log = logging.getLogger(__name__)

TRANSIENT_FAILURES: Final = 3
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
NOT_KNOWN: Final = (
    "the API server does not accept our credentials (401): their token or certificate has expired "
    "or was withdrawn, or is another cluster's"
)


class CredentialsBreaker:
    """See the module.

    Attributes:
        trouble: why nothing can be asked, in words; empty when all is well.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.trouble = ""
        self._now = now
        self._failures = 0
        self._next = 0.0
        self._why: CredentialsUnusable | None = None

    def check(self) -> None:
        """Raise ``CredentialsUnusable`` if it is too early for another attempt."""
        if self._why is None or not self.trouble:
            return
        if self._now() < self._next:
            raise CredentialsUnusable(str(self._why), refused=self._why.refused)
        self._rest()  # others wait for what becomes of this try

    def failed(self, why: CredentialsUnusable) -> None:
        """A try met this."""
        self._failures += 1
        self._why = why
        if self._failures < TRANSIENT_FAILURES:
            return
        self._rest()
        if self.trouble != str(why):
            self.trouble = str(why)
            log.error(
                "requests to the Kubernetes API fail: %s; retried every %g s",
                why,
                LONGEST_SECONDS,
            )

    def works(self) -> None:
        """Record that the server accepted the credentials."""
        if self.trouble:
            log.info("the Kubernetes API answers again")
        self.trouble, self._failures, self._why = "", 0, None

    def _rest(self) -> None:
        failures = max(0, self._failures - TRANSIENT_FAILURES)
        self._next = self._now() + exponential(failures, FIRST_SECONDS, LONGEST_SECONDS)


CONNECTIONS: Final = 64
CONNECT_SECONDS: Final = 10.0
OPEN_SECONDS: Final = 30.0
"""The timeout of the first word of a stream; afterwards it may be silent."""
KEPT_SECONDS: Final = 60.0
PROBE_IDLE_SECONDS: Final = 15
PROBE_EVERY_SECONDS: Final = 5
PROBES: Final = 3
USER_AGENT: Final = "carrel"
HEARTBEAT_SECONDS: Final = 30.0
GOODBYE_SECONDS: Final = 2.0
GOODBYE_LOOK_SECONDS: Final = 0.005
HTTP_UNAUTHORIZED: Final = 401


class ApiServerUnreachable(Exception):  # noqa: N818 - an outcome to handle
    """The API server did not answer.

    Attributes:
        sent: the request may have reached the server.
    """

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class HandshakeRefused(Exception):  # noqa: N818 - an outcome to handle
    """The server refused a websocket without a readable reason."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server refused the websocket ({status})")
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; ``path`` is quoted and includes the query."""

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"
    accept: str = "application/json"


@dataclass(frozen=True, slots=True)
class KubeResponse:
    """An answer; ``retry_after`` in seconds, 0 where the server named none."""

    status: int
    body: bytes
    retry_after: float = 0.0


class KubeTransport:
    """Connections to one API server, made when first used."""

    def __init__(
        self,
        credentials: Credentials,
        connections: int = CONNECTIONS,
        breaker: CredentialsBreaker | None = None,
    ) -> None:
        self._credentials = credentials
        self._connections = connections
        self._room = asyncio.Semaphore(connections)
        self._pool: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._sockets = weakref.WeakSet[socket.socket]()
        self.breaker = breaker or CredentialsBreaker()

    async def send(self, request: HttpRequest, seconds: float) -> KubeResponse:
        """Send and read the whole answer.

        Raises:
            ApiServerUnreachable: also after ``seconds``.
            CredentialsUnusable: there are none, or those there are were not accepted for long.
        """
        access = await self._access()
        answer = await self._send(request, access, seconds)
        if answer.status == HTTP_UNAUTHORIZED:
            access = await self._access(refused=access)
            answer = await self._send(request, access, seconds)
        self._heard(answer.status)
        return answer

    async def _access(self, refused: ServerAccess | None = None) -> ServerAccess:
        """The access, newer than a refused one. Raises ``CredentialsUnusable``."""
        if refused is None:
            self.breaker.check()
        try:
            if refused is None:
                return await self._credentials.access()
            return await self._credentials.renewed(refused)
        except CredentialsUnusable as why:
            self.breaker.failed(why)
            raise

    def _heard(self, status: int) -> None:
        """The server answered."""
        if status == HTTP_UNAUTHORIZED:
            self.breaker.failed(CredentialsUnusable(NOT_KNOWN, refused=True))
        else:
            self.breaker.works()

    def _missed(self, error: Exception) -> ApiServerUnreachable:
        """The API server did not answer."""
        failure = _unreachable(error)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            self.breaker.failed(CredentialsUnusable(f"we do not know the API server: {failure}"))
        return failure

    async def _send(
        self, request: HttpRequest, access: ServerAccess, seconds: float
    ) -> KubeResponse:
        if self._pool is None:
            self._pool = self._session(self._connections)
        try:
            async with (
                self._room,
                asyncio.timeout(seconds),  # which waiting for a connection does not count towards
                self._pool.request(
                    request.method,
                    URL(access.url + request.path, encoded=True),
                    data=request.body,
                    headers=_headers(request, access),
                    allow_redirects=False,
                    **_security(access),
                ) as response,
            ):
                body = await response.read()
                return KubeResponse(response.status, body, retry_after(response))
        except (aiohttp.ClientError, OSError) as error:
            failure = self._missed(error)
        raise failure

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield the response as it arrives. Raises ``ApiServerUnreachable``."""
        access = await self._access()
        response = await self._open(request, access)
        if response.status == HTTP_UNAUTHORIZED:
            response.close()
            access = await self._access(refused=access)
            response = await self._open(request, access)
        self._heard(response.status)
        failure = None
        try:
            yield response
        except (aiohttp.ClientError, OSError) as error:
            failure = self._missed(error)
        finally:
            response.close()
        if failure is not None:
            raise failure

    async def _open(self, request: HttpRequest, access: ServerAccess) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await self._of_streams().request(
                    request.method,
                    URL(access.url + request.path, encoded=True),
                    headers=_headers(request, access),
                    allow_redirects=False,
                    **_security(access),
                )
        except (aiohttp.ClientError, OSError) as error:
            failure = self._missed(error)
        raise failure

    async def websocket(self, path: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket with a sub-protocol.

        Raises ``ApiServerUnreachable`` and ``HandshakeRefused``.
        """
        access = await self._access()
        made = await self._connect(path, protocol, access)
        if made == HTTP_UNAUTHORIZED:
            access = await self._access(refused=access)
            made = await self._connect(path, protocol, access)
        if isinstance(made, int):
            raise HandshakeRefused(made)
        return made

    async def _connect(
        self, path: str, protocol: str, access: ServerAccess
    ) -> aiohttp.ClientWebSocketResponse | int:
        """The websocket, or the status of a refusal, because the exception contains the token."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                made: aiohttp.ClientWebSocketResponse = await self._of_streams().ws_connect(
                    URL(access.url + path, encoded=True),
                    protocols=[protocol],
                    headers={"Authorization": access.authorization} if access.authorization else {},
                    heartbeat=HEARTBEAT_SECONDS,
                    max_msg_size=0,
                    **_security(access),
                )
        except aiohttp.WSServerHandshakeError as error:
            return error.status
        except (aiohttp.ClientError, OSError) as error:
            failure = self._missed(error)
        else:
            return made
        raise failure

    def _of_streams(self) -> aiohttp.ClientSession:
        if self._streams is None:
            self._streams = self._session(0)
        return self._streams

    async def close(self) -> None:
        """Close all connections; streams end with them."""
        for session in (self._pool, self._streams):
            if session is not None:
                await session.close()
        self._pool = self._streams = None
        with suppress(TimeoutError):  # a silent peer is not waited for
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._closed()

    async def _closed(self) -> None:
        """Wait for TLS to end: aiohttp drops a cut connection while its closing handshake runs."""
        while any(made.fileno() >= 0 for made in self._sockets):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(GOODBYE_LOOK_SECONDS)

    def _session(self, connections: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=connections, keepalive_timeout=KEPT_SECONDS, socket_factory=self._probed_socket
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        return aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT},
            skip_auto_headers=("Accept-Encoding",),  # packing costs both sides more than the bytes
            read_bufsize=1 << 18,
        )

    def _probed_socket(self, address: Any) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_IDLE_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        self._sockets.add(made)
        return made


def _headers(request: HttpRequest, access: ServerAccess) -> Mapping[str, str]:
    headers = {"Accept": request.accept}
    if access.authorization:
        headers["Authorization"] = access.authorization
    if request.body is not None:
        headers["Content-Type"] = request.content_type
    return headers


def _security(access: ServerAccess) -> dict[str, Any]:
    """Arguments that only some clusters need."""
    more: dict[str, Any] = {"ssl": access.tls} if access.tls is not None else {}
    if access.server_name:
        more["server_hostname"] = access.server_name
    if access.proxy:
        more["proxy"] = access.proxy
    return more


def retry_after(response: aiohttp.ClientResponse) -> float:
    """Seconds to wait, from the server's header; 0 without one."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def _unreachable(error: Exception) -> ApiServerUnreachable:
    """Said in words: aiohttp's own errors may hold the request, and with it our token."""
    unsent = isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError)
    return ApiServerUnreachable(f"{type(error).__name__}: {error}", sent=not unsent)
