"""The server of the scheduler: the limits of requests, and 503 while it cannot lead.

* Only reading a request is limited in time. Answers, event streams, logs that are followed and
  terminals last as long as their handlers let them: Tornado counts from the first byte that it
  waits for to the end of a head or of a body.
* A scheduler that waits for the lease listens nowhere, which is how the leader is found. One that
  cannot ask who has the lease says why at its own address: 503 with the reason for every request.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.web import Application
from typing_extensions import override

from carrel_scheduler.api.health import not_ready

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Handlers that take more, such as results, say so before they read."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of one request.

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
    """Answers that nothing is served yet."""

    @override
    def initialize(self, trouble: Callable[[], str]) -> None:
        self._trouble = trouble

    @override
    def prepare(self) -> None:
        """Answer every method and path with the reason."""
        not_ready(self, self._trouble())


async def serve_trouble(trouble: Callable[[], str], port: int, host: str) -> None:
    """Listen while there is trouble, until cancelled.

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
    """A listening server; ``None`` if the port is in use."""
    app = web.Application([(".*", _Nothing, {"trouble": trouble})], log_function=_quiet)
    server = http_server(app)
    with suppress(OSError):
        server.listen(port, host)
        log.info("answering 503 on %s:%d", host, port)
        return server
    return None


async def _close(server: HTTPServer) -> None:
    server.stop()
    await server.close_all_connections()


def _quiet(_handler: web.RequestHandler) -> None:
    """Probes ask every few seconds, and what is wrong is in the log already."""
