"""The gateway as a service of the Hub, in a process of its own."""

import asyncio
import hashlib
import hmac
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import aiohttp
from aiohttp import web

from carrel.client.config import Settings as ClientSettings
from carrel.client.transport import Transport
from carrel_hub.gateway.answers import problem, refusal
from carrel_hub.gateway.balancing import Balance
from carrel_hub.gateway.counts import MEDIA, Counts
from carrel_hub.gateway.door import Door
from carrel_hub.gateway.feed import Feed
from carrel_hub.gateway.passing import Passing
from carrel_hub.gateway.people import HubUnavailable, People
from carrel_hub.gateway.plain_way import PlainWay
from carrel_hub.gateway.reporting import Reporter
from carrel_hub.gateway.settings import Settings, SettingsError
from carrel_hub.gateway.signin import SignIn
from carrel_hub.gateway.socket_way import SocketWay, keep_within, noting_what_was_sent
from carrel_hub.gateway.table import Table
from carrel_hub.proxy.options import Options
from carrel_hub.proxy.server import LONGEST_LINE, hide_server, target_session
from carrel_hub.proxy.wire.asked import Asked
from carrel_hub.proxy.wire.exchange import Exchange
from carrel_hub.proxy.wire.front import Front
from carrel_hub.proxy.wire.lines import Lines
from carrel_hub.proxy.wire.loops import new_loop

log = logging.getLogger("carrel_hub.gateway")

FAREWELL_SECONDS: Final = 5.0
AWAY: Final = "What you asked for does not answer now. This is tried again."
METRIC_SCOPES: Final = frozenset({"custom:carrel:admin", "custom:carrel:metrics"})


class Gateway:
    """Everything of one process. Made inside the event loop."""

    def __init__(
        self, settings: Settings, targets: aiohttp.ClientSession, own: aiohttp.ClientSession
    ) -> None:
        self.settings, self._targets = settings, targets
        self.lines = Lines()
        self.table = Table()
        self.counts = Counts()
        self.transport = Transport(
            ClientSettings(url=settings.api_url, token=settings.token), session=own
        )
        balance = Balance()
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

    async def serve(self, exchange: Exchange) -> None:
        """Any request but one for a websocket."""
        request = exchange.asked
        own = await self._own(request)
        if own is not None:
            exchange.answer(own)
            return
        visit = await self.door.visit(request)
        if isinstance(visit, web.Response):
            exchange.answer(visit)
            return
        way = PlainWay(exchange, self.lines, visit.route.max_request_bytes)
        await self.passing.pass_on(way, visit)

    async def websocket(self, request: web.Request) -> web.StreamResponse:
        """A request for a websocket. Its connection serves nothing else."""
        visit = await self.door.visit(request)
        if isinstance(visit, web.Response):
            visit.force_close()
            return visit
        way = SocketWay(request, self._targets)
        await self.passing.pass_on(way, visit)
        way.response.force_close()
        return way.response

    async def _own(self, request: Asked) -> web.Response | None:
        """What the gateway itself answers."""
        own = request.raw_path.partition("?")[0].removeprefix(self.settings.prefix)
        try:
            if own == "oauth_callback":
                return await self.sign_in.finish(request)
            if own == "metrics":
                return await self._metrics(request)
        except HubUnavailable as error:
            return refusal(request, 503, "hub_unavailable", f"{error}; try again.", again=5)
        if own == "away":  # asked by the proxy, for a part that does not answer
            return refusal(request, 503, "away", AWAY, again=2)
        if own == "health":
            return web.json_response({"ready": self.feed.ready})
        return None

    async def _metrics(self, request: Asked) -> web.Response:
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
async def running(settings: Settings) -> AsyncIterator[int]:
    """A gateway that listens; gives its port."""
    async with (
        target_session(Options(), noting_what_was_sent()) as targets,
        aiohttp.ClientSession() as own,
        AsyncExitStack() as stack,
    ):
        gateway = Gateway(settings, targets, own)
        stack.push_async_callback(gateway.lines.close)
        websockets = await _websockets(gateway)
        stack.push_async_callback(websockets.cleanup)
        front = Front(gateway.serve, _refuse, partial(_protocol, websockets))
        stack.push_async_callback(front.close, FAREWELL_SECONDS)
        for one in (gateway.feed.run(), gateway.reporter.run()):
            stack.push_async_callback(_end, asyncio.create_task(one))
        yield await front.start(settings.host, settings.port)


async def _websockets(gateway: Gateway) -> web.AppRunner:
    """What takes over connections for websockets; it listens nowhere."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", gateway.websocket)
    app.on_response_prepare.append(keep_within)
    app.on_response_prepare.append(hide_server)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=FAREWELL_SECONDS,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )
    await runner.setup()
    return runner


def _protocol(runner: web.AppRunner) -> asyncio.Protocol:
    if runner.server is None:
        raise RuntimeError("the server of websockets has ended")
    return runner.server()


def _refuse(status: int, code: str, detail: str) -> web.Response:
    """To a request that could not be read, so nobody knows what would read the answer."""
    return problem(status, code, detail)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings) as port:
        log.info("The gateway listens at http://%s:%d", settings.host, port)
        await stop.wait()


def _cookie_secret(token: str) -> bytes:
    """Derived from the service's token: people stay signed in when the gateway restarts."""
    return hmac.new(token.encode(), b"carrel gateway cookies", hashlib.sha256).digest()


def main() -> None:
    """Run the gateway as a JupyterHub service."""
    # After the imports: the compiled modules that they leave behind are for everybody.
    os.umask(0o077)
    logging.basicConfig(
        level=os.environ.get("CARREL_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(f"carrel-gateway: {error}.")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve(settings))


if __name__ == "__main__":
    main()
