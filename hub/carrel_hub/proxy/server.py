"""Wiring: the public port, the port of the REST API, and the end of both.

The public side is aiohttp; the package's REST API stays on Tornado. Both run on one loop.
"""

import asyncio
import os
import signal
from functools import partial
from typing import Final

import aiohttp
from aiohttp import web
from aiohttp.http import SERVER_SOFTWARE

# The package has no types.
from configurable_http_proxy import log  # type: ignore[import-untyped]
from multidict import CIMultiDict
from tornado.httpserver import HTTPServer

from carrel_hub.proxy import plain, sockets
from carrel_hub.proxy.addresses import address
from carrel_hub.proxy.headers import (
    add_forwarded,
    handshake_headers,
    request_headers,
)
from carrel_hub.proxy.options import Options
from carrel_hub.proxy.pages import page
from carrel_hub.proxy.passage import Passage, UnreachableError
from carrel_hub.proxy.request import wants_websocket
from carrel_hub.proxy.routes import Routes

CONNECT_SECONDS: Final = 10.0
# Below what servers commonly grant, so that none hangs up while we send.
IDLE_CONNECTION_SECONDS: Final = 4.0
# Addresses and cookies of sign-ins get long; as much as Tornado takes.
LONGEST_LINE: Final = 64 * 1024
FAREWELL_SECONDS: Final = 1.0
WAITING_CONNECTIONS: Final = 1024
HEALTH: Final = "/_chp_healthz"


class Proxy:
    """Finds where each request goes and has it passed on."""

    def __init__(self, options: Options, routes: Routes, session: aiohttp.ClientSession) -> None:
        self._options, self._routes, self._session = options, routes, session

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Any request to the public port."""
        asked = request.raw_path if request.raw_path.startswith("/") else request.path_qs
        path = asked.partition("?")[0]
        if path == HEALTH:
            return web.json_response({"status": "OK"})
        route = self._routes.find(path, request.host.partition(":")[0])
        if route is None:
            return await self._error(404, request, path, "no route")
        way, kept = plain.pass_on, request_headers(request.headers)
        if wants_websocket(request):
            way, kept = sockets.pass_on, handshake_headers(request.headers)
        url = address(route, asked, self._options)
        try:
            return await way(
                Passage(
                    session=self._session,
                    request=request,
                    url=url,
                    headers=self._told(kept, request, url.authority),
                    seconds=self._options.answer_seconds,
                    used=partial(self._routes.update_last_activity, route.prefix),
                )
            )
        except UnreachableError as error:
            return await self._error(503, request, path, str(error))

    def _told(
        self, headers: CIMultiDict[str], request: web.BaseRequest, target: str
    ) -> CIMultiDict[str]:
        """What the target hears beside what the person sent."""
        for name, value in self._options.custom_headers:
            headers[name] = value
        if self._options.x_forward:
            add_forwarded(headers, request.remote, request.scheme)
        if self._options.change_origin:
            headers["Host"] = target
        return headers

    async def _error(
        self, code: int, request: web.BaseRequest, path: str, why: str
    ) -> web.Response:
        log.warning("%d %s %s: %s", code, request.method, path, why)
        return await page(self._session, self._options, code, path)


async def serve(options: Options) -> None:
    """Listen until SIGINT or SIGTERM. Raises ``OSError`` when a port cannot be had."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    routes = Routes(options)
    async with target_session(options) as session:
        runner = _runner(Proxy(options, routes, session))
        api = HTTPServer(routes.api_app)
        await runner.setup()
        try:
            await web.TCPSite(runner, options.ip, options.port, backlog=WAITING_CONNECTIONS).start()
            api.listen(options.api_port, options.api_ip)
            log.info("Proxy on %s port %d", options.ip or "every address", options.port)
            if options.pid_file is not None:
                options.pid_file.write_text(str(os.getpid()))
            await ended.wait()
        finally:
            api.stop()
            await runner.cleanup()
            if options.pid_file is not None:
                options.pid_file.unlink(missing_ok=True)


def target_session(options: Options, *traces: aiohttp.TraceConfig) -> aiohttp.ClientSession:
    """The way to all targets: any number of connections, no cookies, nothing unpacked or added."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=options.silence_seconds
        ),
        trace_configs=list(traces),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )


def _runner(proxy: Proxy) -> web.AppRunner:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", proxy.handle)
    app.on_response_prepare.append(hide_server)
    return web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        auto_decompress=False,
        shutdown_timeout=FAREWELL_SECONDS,
        max_line_size=LONGEST_LINE,
        max_field_size=LONGEST_LINE,
    )


async def hide_server(_: web.Request, response: web.StreamResponse) -> None:
    """Nobody has to know which version of what passes things on."""
    if response.headers.get("Server") == SERVER_SOFTWARE:
        del response.headers["Server"]
