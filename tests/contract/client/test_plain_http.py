"""Requests by the standard library, against servers that behave in every way."""

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from carrel.client import AsyncClient
from carrel.client.plain_http import PlainHttp, RequestFailed
from carrel.client.transport import JitteredBackoff
from carrel.errors import NotSignedIn, Unreachable

HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CUT = HELLO[:-1]


async def _at_once(_: float) -> None:
    """No pause."""


PAUSES = JitteredBackoff(_at_once)


class Server:
    """Answers each connection with what its turn says, for every request that it reads on it."""

    def __init__(self, listening: socket.socket, answers: list[list[bytes]]) -> None:
        self.requests: list[list[bytes]] = []
        self._listening, self._answers = listening, answers
        self.port = int(listening.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/services/carrel"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for answers in self._answers:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed by the test
                return
            seen: list[bytes] = []
            self.requests.append(seen)
            with connection, connection.makefile("rb") as lines:
                for answer in answers:
                    head = b"".join(iter(lines.readline, b"\r\n"))
                    if not head:
                        break
                    seen.append(head)
                    connection.sendall(answer)

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes who waits for a connection
        self._thread.join()
        self._listening.close()


@pytest.fixture
def serve() -> Iterator[Callable[[list[list[bytes]]], Server]]:
    servers: list[Server] = []

    def start(answers: list[list[bytes]]) -> Server:
        servers.append(Server(socket.create_server(("127.0.0.1", 0)), answers))
        return servers[-1]

    yield start
    for one in servers:
        one.stop()


Serve = Callable[[list[list[bytes]]], Server]


def client_of(url: str) -> AsyncClient:
    return AsyncClient(url, "secret", pauses=PAUSES, few_requests=True)


async def test_reads_share_a_connection_and_changes_get_their_own(serve: Serve) -> None:
    server = serve([[HELLO, HELLO], [HELLO]])
    http = PlainHttp(server.url, None)
    for method in ("GET", "GET", "POST"):
        answer = await http.request(method, server.url, [("a", "b c")], {}, None, 5.0)
        assert (answer.status, answer.content_type, await answer.read()) == (
            *(200, "application/json", b"{}"),
        )
    http.close()
    assert [len(seen) for seen in server.requests] == [2, 1]
    assert server.requests[0][0].startswith(b"GET /services/carrel?a=b+c HTTP/1.1\r\n")


async def test_an_answer_that_breaks_off_is_asked_for_again_where_that_is_safe(
    serve: Serve,
) -> None:
    server = serve([[CUT], [HELLO]])
    async with client_of(server.url) as client:
        assert await client.openapi() == b"{}"
    assert b"Authorization: token secret\r\n" in server.requests[1][0]


async def test_what_must_not_be_sent_twice_is_not(serve: Serve) -> None:
    server = serve([[CUT], [HELLO]])
    async with client_of(server.url) as client:
        with pytest.raises(Unreachable):
            await client.change_password("old", "new")
    assert len(server.requests) == 1


async def test_a_kept_connection_that_the_server_closed_is_no_failure(serve: Serve) -> None:
    server = serve([[HELLO], [HELLO]])
    async with client_of(server.url) as client:
        await client.openapi()
        await client.openapi()
    assert [len(seen) for seen in server.requests] == [1, 1]


async def test_redirects_are_not_followed(serve: Serve) -> None:
    server = serve([[b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"]])
    async with client_of(server.url) as client:
        with pytest.raises(Unreachable, match="status 302"):
            await client.whoami()
    assert len(server.requests) == 1


async def test_a_token_that_is_not_accepted(serve: Serve) -> None:
    server = serve([[b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"]])
    async with client_of(server.url) as client:
        with pytest.raises(NotSignedIn):
            await client.whoami()


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with client_of(f"http://127.0.0.1:{port}/services/carrel") as client:
        with pytest.raises(Unreachable, match="connection refused"):
            await client.whoami()


async def test_giving_up_closes_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        asked = asyncio.create_task(PlainHttp(url, None).request("GET", url, [], {}, None, 60.0))
        silent.settimeout(60)
        connection, _ = await asyncio.to_thread(silent.accept)
        with connection:
            connection.settimeout(60)
            assert (await asyncio.to_thread(connection.recv, 4096)).startswith(b"GET / ")
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            assert await asyncio.to_thread(connection.recv, 4096) == b""


@contextmanager
def unknown_certificate(folder: Path) -> Iterator[int]:
    """A TLS server with a certificate that nobody vouches for."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, pytest.raises(ssl.SSLError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        yield int(listening.getsockname()[1])
        thread.join()


async def test_an_unknown_certificate_is_refused_for_good(tmp_path: Path) -> None:
    with unknown_certificate(tmp_path) as port:
        url = f"https://localhost:{port}/"
        with pytest.raises(RequestFailed, match="its certificate is not trusted") as raised:
            await PlainHttp(url, None).request("GET", url, [], {}, None, 20.0)
    assert (raised.value.sent, raised.value.final) == (False, True)
