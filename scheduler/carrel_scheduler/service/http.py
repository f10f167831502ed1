"""The HTTP server of the scheduler: how long a request may take to arrive, and how large it is.

Only reading is limited. An answer, an event stream, a log that is followed and a terminal last as
long as their handlers let them: Tornado counts from the first byte that it waits for to the end of
a head or of a body, and not while a handler is at work.
"""

from dataclasses import dataclass

from tornado.httpserver import HTTPServer
from tornado.web import Application

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
