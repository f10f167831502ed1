"""The Hub's process: how long it waits for requests, and how its database is written."""

import socket
from asyncio import open_connection, timeout
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, text
from tornado.httpserver import HTTPServer
from tornado.web import Application

from carrel_hub.hub_process import configure, write_ahead


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    saved = HTTPServer._save_configuration()
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(0)
        yield made
    HTTPServer._restore_configuration(saved)


@pytest.mark.enable_socket
async def test_a_request_that_never_ends_is_closed(listener: socket.socket) -> None:
    configure(listener, head_seconds=0.2)
    server = HTTPServer(Application(), xheaders=True)  # as JupyterHub makes it
    port = listener.getsockname()[1]
    server.listen(port, "127.0.0.1")
    stream, writer = await open_connection("127.0.0.1", port)
    writer.write(b"GET /hub/health HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    async with timeout(20):
        assert await stream.read() == b""
    writer.close()
    server.stop()


def test_the_database_has_a_write_ahead_log_that_waits_for_the_disk(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'hub.sqlite'}")
    event.listen(engine, "connect", write_ahead)
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2
    engine.dispose()
