"""What is answered before there is a service, while somebody has to mend our credentials.

A scheduler that waits for the lease listens nowhere, which is how the right one is found. One that
cannot ask who has it says why at its own address: 503 with the reason, whatever is asked.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tornado import web
from tornado.httpserver import HTTPServer
from typing_extensions import override

from carrel_scheduler.api.health import not_ready
from carrel_scheduler.service.http import http_server

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
