"""Where the scheduler listens: its socket, the limits of requests, and 503 while it cannot lead.

* The parent may hand over a listening socket as systemd does it: ``LISTEN_FDS`` sockets begin at
  descriptor 3 and are meant for the process ``LISTEN_PID`` only. The parent keeps them open: the
  port stays taken and connections wait while the service is away.
* Only reading a request is limited in time. Answers, event streams, logs that are followed and
  terminals last as long as their handlers let them: Tornado counts from the first byte that it
  waits for to the end of a head or of a body.
* A scheduler that waits for the lease listens nowhere, which is how the leader is found. One that
  cannot ask who has the lease says why at its own address: 503 with the reason for every request.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.web import Application
from typing_extensions import override

from carrel_scheduler.api.health import not_ready

FIRST_DESCRIPTOR: Final = 3


class WrongListener(Exception):  # noqa: N818
    """What was handed over is not the socket that this service is to listen on."""


def inherited(environment: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """Take the socket over, if there is one; call it before anything starts a process.

    No process started later gets it or is told of it. Raises ``WrongListener``.
    """
    ours = environment.pop("LISTEN_PID", "") == str(os.getpid())
    count = environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if not ours:
        return None
    if count != "1":
        raise WrongListener(f"LISTEN_FDS={count!r}: 1 is right")
    listener = socket.socket(fileno=FIRST_DESCRIPTOR)
    listener.set_inheritable(False)
    listener.setblocking(False)  # noqa: FBT003 - positional only
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise WrongListener(f"descriptor {FIRST_DESCRIPTOR} does not listen")
    return listener


def check(listener: socket.socket, host: str, port: int) -> None:
    """Raise ``WrongListener`` unless it listens there."""
    found = listener.getsockname()[:2]
    if found != (host, port):
        raise WrongListener(f"the socket listens on {found}, not on {(host, port)}")


def listen(server: HTTPServer, host: str, port: int, listener: socket.socket | None) -> None:
    """Serve at the socket that was handed over, or at one of our own."""
    if listener is None:
        server.listen(port, address=host)
        return
    check(listener, host, port)
    server.add_socket(listener)


MAX_BODY_BYTES = 4 * 1024 * 1024
"""Handlers that take more, such as results, say so before they read."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request may take.

    Attributes:
        head_seconds: until its head is complete, counted from the end of the request before it on
            the same connection; more than the 90 s for which Traefik keeps idle connections.
        body_seconds: from the end of the head to the end of the body.
        head_bytes: the same as the proxy's.
    """

    head_seconds: float = 120.0
    body_seconds: float = 120.0
    head_bytes: int = 64 * 1024


def http_server(application: Application, limits: RequestLimits | None = None) -> HTTPServer:
    """A server that closes connections whose requests do not arrive in time."""
    within = limits or RequestLimits()
    return HTTPServer(
        application,
        max_body_size=MAX_BODY_BYTES,
        max_header_size=within.head_bytes,
        idle_connection_timeout=within.head_seconds,
        body_timeout=within.body_seconds,
    )


log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0


class _Nothing(web.RequestHandler):
    """Nothing is served here yet."""

    @override
    def initialize(self, trouble: Callable[[], str]) -> None:
        self._trouble = trouble

    @override
    def prepare(self) -> None:
        """Every method, every path."""
        not_ready(self, self._trouble())


async def say_trouble(trouble: Callable[[], str], port: int, host: str) -> None:
    """Listen as long as there is trouble, until cancelled.

    Args:
        trouble: why there is no service; empty while all is well.
        port: where the service will listen.
        host: the address there.
    """
    server: HTTPServer | None = None
    try:
        while True:
            if trouble() and server is None:
                server = _listening(trouble, port, host)
            elif server is not None and not trouble():
                await _close(server)
                server = None
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        if server is not None:
            await _close(server)


def _listening(trouble: Callable[[], str], port: int, host: str) -> HTTPServer | None:
    """A server; ``None`` where somebody else has the port."""
    app = web.Application([(".*", _Nothing, {"trouble": trouble})], log_function=_quiet)
    server = http_server(app)
    with suppress(OSError):
        server.listen(port, host)
        log.info("saying so on %s:%d", host, port)
        return server
    return None


async def _close(server: HTTPServer) -> None:
    server.stop()
    await server.close_all_connections()


def _quiet(_handler: web.RequestHandler) -> None:
    """Probes ask every few seconds, and what is wrong is in the log already."""
