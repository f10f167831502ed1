"""``jupyter-server-proxy`` as workspaces have it: its handlers, guarded, instead of its extension.

* A request that another site's page caused is refused before anybody is signed in by it.
* Only programs of the workspace's own account are reached, on loopback, by the number of a port.
* Headers are cut in both directions, see ``headers``. VS Code is as much of a workspace as
  JupyterLab itself: its pages are not sandboxed.
"""

import os
from collections.abc import Callable
from html import escape
from typing import Any, Final

from jupyter_server.utils import url_path_join
from jupyter_server_proxy.api import IconHandler, ServersInfoHandler
from jupyter_server_proxy.config import (
    ServerProxy,
    get_entrypoint_server_processes,
    make_handlers,
)
from jupyter_server_proxy.handlers import LocalProxyHandler, ProxyHandler
from tornado import web
from tornado.httputil import HTTPHeaders
from typing_extensions import override

from carrel.web_isolation import SEPARATE_ORIGINS
from carrel.workspace.ports import headers
from carrel.workspace.ports.listeners import foreign_listener

Rule = tuple[Any, ...]

_CAME_FROM_ELSEWHERE: Final = """<!doctype html><title>Carrel</title>
<p>Another site led you here. This opens a program of your workspace, with your sign-in:
<a href="{path}">{path}</a></p>
"""


class Guard(ProxyHandler):
    """What a handler of ``jupyter-server-proxy`` is derived from first."""

    sandboxed = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        base: Any = super()
        base.__init__(*args, **kwargs)
        # Every answer passes ``flush``, which the class above sets on the instance.
        this: Any = self
        flush: Callable[..., Any] = this.flush

        def bounded(include_footers: bool = False) -> Any:
            if not self._headers_written:
                self._headers = headers.for_browser(
                    self._headers, self._own_path(), sandboxed=self.sandboxed
                )
            return flush(include_footers)

        this.flush = bounded

    @override
    async def prepare(self, **kwargs: Any) -> None:
        """Refuse what other sites ask for; then as ever."""
        if headers.came_from_here(self.request):
            base: Any = super()
            await base.prepare(**kwargs)
            return
        self.set_status(403)
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        self.finish(_CAME_FROM_ELSEWHERE.format(path=escape(self.request.path)))

    @override
    def get_client_uri(self, protocol: str, host: str, port: int | str, proxied_path: str) -> str:
        """Where a request or a websocket goes: to nobody else's program."""
        if self.unix_socket is None and foreign_listener(int(port)):
            raise web.HTTPError(
                403, f"Port {port} is a program of another account; choose another port."
            )
        base: Any = super()
        return str(base.get_client_uri(protocol, host, port, proxied_path))

    @override
    def proxy_request_headers(self) -> HTTPHeaders:
        """What the program is told of a request."""
        base: Any = super()
        return headers.for_program(base.proxy_request_headers())

    def _own_path(self) -> str:
        """The path of the program, with a slash at its end."""
        behind = self.path_args[-1] if self.path_args else ""
        own = self.request.path.removesuffix(behind or "")
        return f"{own.rstrip('/')}/"


class Port(Guard, LocalProxyHandler):
    """``{workspace}/proxy/{port}/``: a program on a port of the workspace's account."""

    sandboxed = os.environ.get(SEPARATE_ORIGINS) != "1"


def rules(serverapp: Any) -> list[Rule]:
    """Handlers for ports, and for tools that are started when somebody opens them."""
    base = serverapp.base_url
    config = ServerProxy(parent=serverapp)
    entry_points: Callable[[], list[Any]] = get_entrypoint_server_processes
    tools = [*config.servers.values(), *entry_points()]
    found: list[Rule] = [_guarded(rule) for rule in make_handlers(base, tools)]
    given = {"rewrite_response": config.non_service_rewrite_response}
    for path, absolute in ((r"proxy/(\d+)(/.*|)", False), (r"proxy/absolute/(\d+)(/.*|)", True)):
        found.append((url_path_join(base, path), Port, {"absolute_url": absolute, **given}))
    icons = {
        one.name: one.launcher_entry.icon_path
        for one in tools
        if one.launcher_entry.enabled and one.launcher_entry.icon_path
    }
    shown = url_path_join(base, "server-proxy")
    found.append((f"{shown}/servers-info", ServersInfoHandler, {"server_processes": tools}))
    found.append((f"{shown}/icon/(.*)", IconHandler, {"icons": icons}))
    return found


def _guarded(rule: Rule) -> Rule:
    """The same rule with a guarded handler, where it is one that passes requests on."""
    pattern, handler, *more = rule
    if issubclass(handler, ProxyHandler):
        handler = type(handler.__name__, (Guard, handler), {})
    return (pattern, handler, *more)
