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

from carrel.client.config import Settings as ClientSettings
from carrel.client.transport import Transport
from carrel_hub.gateway.answers import refusal
from carrel_hub.gateway.balancing import Balance
from carrel_hub.gateway.counts import MEDIA, Counts
from carrel_hub.gateway.door import Door
from carrel_hub.gateway.feed import Feed
from carrel_hub.gateway.headers import announces_body, wants_websocket
from carrel_hub.gateway.malformed import server_log
from carrel_hub.gateway.passing import Passing
from carrel_hub.gateway.people import HubUnavailable, People
from carrel_hub.gateway.plain_way import PlainWay
from carrel_hub.gateway.reporting import Reporter
from carrel_hub.gateway.settings import Settings, SettingsError
from carrel_hub.gateway.signin import ENTER, SignIn
from carrel_hub.gateway.socket_way import SocketWay
from carrel_hub.gateway.table import Table
from carrel_hub.gateway.upstream import LONGEST_LINE, Upstreams
from carrel_hub.listening import check, inherited

try:
    import uvloop
except ImportError:  # no wheel for this machine
    new_loop = asyncio.new_event_loop
else:
    new_loop = uvloop.new_event_loop

log = logging.getLogger("carrel_hub.gateway")

FAREWELL_SECONDS: Final = 5.0
# Until a head is complete too, from the end of the request before it. Traefik keeps idle
# connections for 90 s.
IDLE_SECONDS: Final = 120.0
WAITING_CONNECTIONS: Final = 1024
AWAY: Final = "What you asked for does not answer now. This is tried again."
METRIC_SCOPES: Final = frozenset({"custom:carrel:admin", "custom:carrel:metrics"})


class Gateway:
    """Everything of one process. Made inside the event loop."""

    def __init__(self, settings: Settings, own: aiohttp.ClientSession) -> None:
        self.settings = settings
        self.table = Table()
        self.counts = Counts()
        self.transport = Transport(
            ClientSettings(url=settings.api_url, token=settings.token), session=own
        )
        balance = Balance(freed=self.table.tell)
        self.upstreams = Upstreams(self.table, balance)
        self.reporter = Reporter(self.transport, self.table, balance, time.time)
        balance.changed = self.reporter.changed
        self.balance = balance
        self.feed = Feed(
            self.transport,
            self.table,
            settings.node_host,
            changed=self.reporter.changed,
            told=self.reporter.tell_everything,
        )
        people = People(settings, own, time.monotonic, self.transport)
        self.sign_in = SignIn(settings, own, _cookie_secret(settings.token))
        self.door = Door(settings, people, self.sign_in, self.table)
        self.passing = Passing(self.table, balance, self.counts, self.reporter)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        websocket = wants_websocket(request)
        if "Upgrade" in request.headers and announces_body(request.headers):
            return _closing(
                refusal(request, 400, "upgrade_with_body", "An upgrade comes without a body.")
            )
        own = await self._own(request)
        visit = await self.door.visit(request) if own is None else own
        if isinstance(visit, web.Response):
            return _closing(visit) if websocket else visit
        way = SocketWay if websocket else PlainWay
        return await self.passing.pass_on(way(request, self.upstreams), visit)

    async def _own(self, request: web.Request) -> web.Response | None:
        """What the gateway itself answers."""
        path = request.raw_path.partition("?")[0]
        if self.sign_in.origins.label_in(request.headers.get("Host", "")):
            return self.sign_in.enter(request) if path == ENTER else None
        own = path.removeprefix(self.settings.prefix)
        try:
            if own == "oauth_callback":
                return await self.sign_in.finish(request)
            if own == "enter":
                return await self.door.hand_over(request)
            if own == "metrics":
                return await self._metrics(request)
        except HubUnavailable as error:
            return refusal(request, 503, "hub_unavailable", f"{error}; try again.", again=5)
        if own == "away":  # asked by the proxy, for a part that does not answer
            return refusal(request, 503, "away", AWAY, again=2)
        if own == "health":
            return web.json_response({"ready": self.feed.ready})
        return None

    async def _metrics(self, request: web.Request) -> web.Response:
        person = await self.door.person(request)
        if isinstance(person, web.Response):
            return person
        if not person.scopes & METRIC_SCOPES:
            return refusal(
                request, 403, "missing_scope", "Metrics need the scope custom:carrel:metrics."
            )
        self.counts.keep_only({(place.project, place.name) for place in self.table})
        for place in self.table:
            ready = {one.uid for targets in place.targets.values() for one in targets}
            in_flight = self.balance.at_place[place.uid]
            self.counts.now(place.project, place.name, in_flight, len(ready))
        return web.Response(body=self.counts.text(), headers={"Content-Type": MEDIA})


@asynccontextmanager
async def running(
    settings: Settings,
    idle_seconds: float = IDLE_SECONDS,
    listener: socket.socket | None = None,
) -> AsyncIterator[int]:
    """A gateway that listens, at ``listener`` or at a socket of its own; gives its port."""
    async with aiohttp.ClientSession() as own, AsyncExitStack() as stack:
        gateway = Gateway(settings, own)
        stack.push_async_callback(gateway.upstreams.close)
        runner = _runner(gateway, idle_seconds)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        for one in (gateway.feed.run(), gateway.reporter.run()):
            stack.push_async_callback(_end, asyncio.create_task(one))
        await _site(runner, settings, listener).start()
        yield int(runner.addresses[0][1])


def _site(
    runner: web.AppRunner, settings: Settings, listener: socket.socket | None
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
        shutdown_timeout=FAREWELL_SECONDS,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )


async def _hide_server(_: web.Request, response: web.StreamResponse) -> None:
    """Nobody has to know which version of what passes things on."""
    if response.headers.get("Server") == SERVER_SOFTWARE:
        del response.headers["Server"]


def _closing(response: web.Response) -> web.Response:
    """Its connection serves nothing else: what follows on it may be another protocol's."""
    response.force_close()
    return response


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def serve(settings: Settings, listener: socket.socket | None = None) -> None:
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
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(f"carrel-gateway: {error}.")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(settings, listener))


if __name__ == "__main__":
    main()
