"""The gateway as a service of the Hub, in a process of its own."""

import asyncio
import hashlib
import hmac
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web
from aiohttp.http import SERVER_SOFTWARE
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from carrel.client.config import ClientSettings
from carrel.client.transport import Transport
from carrel_hub.gateway.access import AccessControl
from carrel_hub.gateway.balancing import LoadBalancer
from carrel_hub.gateway.exchanges import HttpExchange, WebSocketExchange
from carrel_hub.gateway.forwarding import Forwarder
from carrel_hub.gateway.headers import announces_body, wants_websocket
from carrel_hub.gateway.identity import HubUnavailable, TokenReviewer
from carrel_hub.gateway.load_reports import LoadReporter
from carrel_hub.gateway.metrics import EndpointMetrics
from carrel_hub.gateway.responses import EarlyResponse, refusal, refuse
from carrel_hub.gateway.routing import RoutingReflector, RoutingTable
from carrel_hub.gateway.settings import GatewaySettings
from carrel_hub.gateway.signin import ENTER, GatewaySignIn
from carrel_hub.gateway.upstream import LONGEST_LINE, Upstreams
from carrel_hub.service_environment import SettingsError
from carrel_process.listening import check, inherited

try:
    import uvloop
except ImportError:  # no wheel for this machine
    new_loop = asyncio.new_event_loop
else:
    new_loop = uvloop.new_event_loop

log = logging.getLogger("carrel_hub.gateway")

SHUTDOWN_SECONDS: Final = 5.0
# Until a head is complete too, from the end of the request before it. Traefik keeps idle
# connections for 90 s.
IDLE_SECONDS: Final = 120.0
WAITING_CONNECTIONS: Final = 1024
UNAVAILABLE: Final = "What you asked for does not answer now. This is tried again."
METRIC_SCOPES: Final = frozenset({"custom:carrel:admin", "custom:carrel:metrics"})


class Gateway:
    """The gateway's parts. Made inside the event loop."""

    def __init__(self, settings: GatewaySettings, session: aiohttp.ClientSession) -> None:
        self.settings = settings
        transport = Transport(
            ClientSettings(url=settings.api_url, token=settings.token), session=session
        )
        self.table = table = RoutingTable()
        self.balancer = balancer = LoadBalancer(freed=table.notify)
        self.upstreams = Upstreams(table, balancer)
        self.reporter = LoadReporter(transport, table, balancer, time.time)
        balancer.changed = self.reporter.changed
        self.reflector = RoutingReflector(
            transport,
            table,
            settings.node_host,
            changed=self.reporter.changed,
            listed=self.reporter.report_everything,
        )
        tokens = TokenReviewer(settings, session, time.monotonic, transport)
        self.sign_in = GatewaySignIn(settings, session, _cookie_secret(settings.token))
        self.access = AccessControl(settings, tokens, self.sign_in, table)
        self.metrics = EndpointMetrics()
        self.forwarder = Forwarder(table, balancer, self.metrics, self.reporter)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        websocket = wants_websocket(request)
        if "Upgrade" in request.headers and announces_body(request.headers):
            detail = "An upgrade comes without a body."
            return _closing(refusal(request, 400, "upgrade_with_body", detail))
        try:
            response = await self._own_response(request)
            if response is None:
                match = await self.access.match(request)
                exchange = WebSocketExchange if websocket else HttpExchange
                return await self.forwarder.forward(exchange(request, match, self.upstreams))
        except EarlyResponse as early:
            response = early.response
        except HubUnavailable as error:
            detail = f"{error}, so nobody can be identified; try again in a moment."
            response = refusal(request, 503, "hub_unavailable", detail, retry_after=5)
        return _closing(response) if websocket else response

    async def _own_response(self, request: web.Request) -> web.Response | None:
        """The answer at addresses of the gateway itself, ``None`` at others."""
        path = request.raw_path.partition("?")[0]
        if self.sign_in.origins.label_in(request.headers.get("Host", "")):
            return self.sign_in.enter(request) if path == ENTER else None
        match path.removeprefix(self.settings.prefix):
            case "oauth_callback":
                return await self.sign_in.finish(request)
            case "enter":
                return await self.access.issue_pass(request)
            case "metrics":
                return await self._metrics(request)
            case "unavailable":  # asked by the proxy, for a part that does not answer
                return refusal(request, 503, "unavailable", UNAVAILABLE, retry_after=2)
            case "health":
                return web.json_response({"ready": self.reflector.ready})
        return None

    async def _metrics(self, request: web.Request) -> web.Response:
        principal = await self.access.principal(request, uses_endpoints=False)
        if not principal.scopes & METRIC_SCOPES:
            needed = "Metrics need the scope custom:carrel:metrics."
            refuse(request, 403, "missing_scope", needed)
        in_flight = self.balancer.in_flight
        text = self.metrics.text(
            (one.project, one.name, in_flight[one.uid], len(one.target_uids)) for one in self.table
        )
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


@asynccontextmanager
async def running(
    settings: GatewaySettings,
    idle_seconds: float = IDLE_SECONDS,
    listener: socket.socket | None = None,
) -> AsyncIterator[int]:
    """A gateway that listens, at ``listener`` or at a socket of its own; gives its port."""
    async with aiohttp.ClientSession() as session, AsyncExitStack() as stack:
        gateway = Gateway(settings, session)
        stack.push_async_callback(gateway.upstreams.close)
        runner = _runner(gateway, idle_seconds)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        for one in (gateway.reflector.run(), gateway.reporter.run()):
            stack.push_async_callback(_end, asyncio.create_task(one))
        await _site(runner, settings, listener).start()
        yield int(runner.addresses[0][1])


def _site(
    runner: web.AppRunner, settings: GatewaySettings, listener: socket.socket | None
) -> web.BaseSite:
    if listener is None:
        return web.TCPSite(runner, settings.host, settings.port, backlog=WAITING_CONNECTIONS)
    check(listener, settings.host, settings.port)
    return web.SockSite(runner, listener, backlog=WAITING_CONNECTIONS)


def _runner(gateway: Gateway, idle_seconds: float) -> web.AppRunner:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", gateway.serve)
    app.on_response_prepare.append(_hide_server)
    return web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        auto_decompress=False,
        keepalive_timeout=idle_seconds,
        logger=server_log(),
        shutdown_timeout=SHUTDOWN_SECONDS,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )


async def _hide_server(_: web.Request, response: web.StreamResponse) -> None:
    """Remove the header with the server's version."""
    if response.headers.get("Server") == SERVER_SOFTWARE:
        del response.headers["Server"]


def server_log() -> logging.Logger:
    """The log of aiohttp's server, without an entry for each request that cannot be read.

    aiohttp answers such a request with 400 and writes an error with a traceback, so whoever reaches
    the port could fill the log. What a handler raises is written down as before.
    """
    if _readable not in server_logger.filters:
        server_logger.addFilter(_readable)
    return server_logger


def _readable(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


def _closing(response: web.Response) -> web.Response:
    """Close the connection after the response: what follows may be of another protocol."""
    response.force_close()
    return response


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def serve(settings: GatewaySettings, listener: socket.socket | None = None) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings, listener=listener) as port:
        log.info("The gateway listens at http://%s:%d", settings.host, port)
        await stop.wait()


def _cookie_secret(token: str) -> bytes:
    """Derived from the service's token: people stay signed in when the gateway restarts."""
    return hmac.new(token.encode(), b"carrel gateway cookies", hashlib.sha256).digest()


def main() -> None:
    """Run the gateway as a JupyterHub service."""
    # After the imports: the compiled modules that they leave behind are for everybody.
    os.umask(0o077)
    listener = inherited()
    logging.basicConfig(
        level=os.environ.get("CARREL_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings = GatewaySettings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(f"carrel-gateway: {error}.")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(settings, listener))


if __name__ == "__main__":
    main()
