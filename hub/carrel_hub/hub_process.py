"""JupyterHub with limits for requests; same arguments.

Below `carrel up` it listens on the socket that is held for it, and its database has a write-ahead
log: a commit, of which a start of a workspace makes half a dozen, waits for the disk once instead
of three times, and is as durable. Elsewhere the database may lie on a file system that cannot do
that.
"""

import socket
import sqlite3
from typing import Any, Final

from sqlalchemy import Engine, event
from tornado.httpserver import HTTPServer
from typing_extensions import override

from carrel_process import listening
from carrel_process.late_imports import put_off_iri_checks

HEAD_SECONDS: Final = 120.0
"""The timeout of a request's head; more than the 90 s for which Traefik keeps connections."""
BODY_SECONDS: Final = 120.0
LARGEST_HEAD_BYTES: Final = 64 * 1024


class InheritingServer(HTTPServer):
    """Listens on ``listener``, and at no other address."""

    listener: socket.socket

    @override
    def listen(self, port: int, address: str | None = None, *_: Any, **__: Any) -> None:
        listening.check(self.listener, address or "", port)
        self.add_socket(self.listener)


def write_ahead(connection: Any, _: Any) -> None:
    """Have a new connection to SQLite use the write-ahead log; others are left alone."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")


def configure(listener: socket.socket | None, head_seconds: float = HEAD_SECONDS) -> None:
    """Say of every ``HTTPServer`` that is made later where it listens and how long it waits."""
    if listener is not None:
        InheritingServer.listener = listener
    HTTPServer.configure(
        HTTPServer if listener is None else InheritingServer,
        idle_connection_timeout=head_seconds,
        body_timeout=BODY_SECONDS,
        max_header_size=LARGEST_HEAD_BYTES,
    )


def main() -> None:
    """Run the Hub."""
    put_off_iri_checks()
    from jupyterhub.app import JupyterHub

    listener = listening.inherited()
    if listener is not None:
        event.listen(Engine, "connect", write_ahead)
    configure(listener)
    JupyterHub.launch_instance()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
