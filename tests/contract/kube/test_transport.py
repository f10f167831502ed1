"""Connections of the API client over real TLS: what is closed is closed."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from carrel_scheduler.kube.credentials import ServerAccess
from carrel_scheduler.kube.transport import ApiServerUnreachable, HttpRequest, KubeTransport
from k8s.cluster import authority

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
TIMEOUT_SECONDS = 60.0
pytestmark = [pytest.mark.enable_socket]


class Watched:
    """Credentials of a server that begins every answer and ends none."""

    def __init__(self, port: int) -> None:
        anybody = ssl.create_default_context()
        anybody.check_hostname = False
        anybody.verify_mode = ssl.CERT_NONE
        self.port = port
        self._access = ServerAccess(f"https://127.0.0.1:{port}", tls=anybody)

    async def access(self) -> ServerAccess:
        """Always the same."""
        return self._access

    async def renewed(self, refused: ServerAccess) -> ServerAccess:
        """There is nothing newer."""
        return refused

    def connections(self) -> int:
        """To the server, of this process."""
        mine = psutil.Process().net_connections("tcp")
        return sum(bool(one.raddr) and one.raddr.port == self.port for one in mine)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Watched]:
    made = authority.make(tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(made.client, made.client_key)

    talks: set[asyncio.Task[None]] = set()

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.create_task(talk(reader, writer)))

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):  # given up before it had asked
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD)
            await reader.read()
        await asyncio.sleep(0.05)  # its goodbye takes a moment
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=own)
    async with listening:
        yield Watched(listening.sockets[0].getsockname()[1])
        await asyncio.gather(*talks)


async def test_a_stream_that_was_cut_is_gone_when_its_client_is_closed(server: Watched) -> None:
    transport = KubeTransport(server)
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        transport.stream(HttpRequest("GET", "/pods?watch=1")) as answer,
    ):
        assert await answer.content.readany() == b"first"
    await transport.close()
    assert server.connections() == 0


async def test_a_request_that_was_given_up_is_gone_too(server: Watched) -> None:
    transport = KubeTransport(server)
    with pytest.raises(ApiServerUnreachable):
        await transport.send(HttpRequest("GET", "/pods"), 0.5)
    await transport.close()
    assert server.connections() == 0
