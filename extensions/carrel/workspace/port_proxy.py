"""Ports and tools of a workspace: ``jupyter-server-proxy`` with bounds.

* A request that another site's page caused is refused before anybody is signed in by it.
* Only programs of the workspace's own account are reached, on loopback, by the number of a port:
  where accounts share a machine, a port says nothing about whose it is.
* A program gets neither the cookies of this server nor the token of a request, so it cannot act as
  its visitor. It sets cookies below its own path only. Where all users share one origin its pages
  run in a sandbox without that origin. VS Code is as much of a workspace as JupyterLab itself: its
  pages are not sandboxed.
"""

import os
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from jupyter_server.utils import url_path_join
from jupyter_server_proxy.api import IconHandler, ServersInfoHandler
from jupyter_server_proxy.config import ServerProxy, get_entrypoint_server_processes, make_handlers
from jupyter_server_proxy.handlers import LocalProxyHandler, ProxyHandler
from tornado import web
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from typing_extensions import override

from carrel.web_isolation import BEYOND_PATH, SANDBOX, SEPARATE_ORIGINS, confined_cookie

TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_LISTENS: Final = "0A"


def has_foreign_listener(port: int, tables: tuple[Path, ...] = TABLES) -> bool:
    """Whether a program of another account listens on this port."""
    return any(uid != os.geteuid() for table in tables for uid in _listeners(table, port))


def _listeners(table: Path, port: int) -> Iterator[int]:
    """The accounts of sockets that listen on a port, by one of the kernel's tables."""
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:  # without IPv6 there is no such table
        return
    for line in lines:
        fields = line.split()
        if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            yield int(fields[7])


_NOT_FOR_PROGRAMS: Final = (
    *("Authorization", "Proxy-Authorization", "Cookie", "X-Xsrftoken", "X-Csrftoken"),
    *("X-Forwarded-User", "Remote-User"),
)


def came_from_here(request: HTTPServerRequest) -> bool:
    """Whether a page of this origin, a person, or a program with a token sent the request.

    Browsers say so in ``Sec-Fetch-Site`` where they trust the connection, else in ``Referer``.
    """
    headers = request.headers
    if headers.get("Authorization"):
        return True
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("same-origin", "none")
    page = headers.get("Origin") or headers.get("Referer") or ""
    return urlsplit(page).netloc == request.host


def for_program(headers: HTTPHeaders) -> HTTPHeaders:
    """The headers of a request without credentials."""
    kept = headers.copy()
    for name in _NOT_FOR_PROGRAMS:
        kept.pop(name, None)
    return kept


def for_browser(headers: HTTPHeaders, path: str, *, sandboxed: bool) -> HTTPHeaders:
    """An answer's headers, kept within ``path`` (with a slash at its end)."""
    kept = headers.copy()
    for name in (*BEYOND_PATH, "Set-Cookie"):
        kept.pop(name, None)
    for line in headers.get_list("Set-Cookie"):
        if cookie := confined_cookie(line, path.rstrip("/")):
            kept.add("Set-Cookie", cookie)
    if sandboxed:
        kept.add("Content-Security-Policy", SANDBOX)
    return kept


Rule = tuple[Any, ...]

_CAME_FROM_ELSEWHERE: Final = """<!doctype html><title>Carrel</title>
<p>Another site led you here. This opens a program of your workspace, with your sign-in:
<a href="{path}">{path}</a></p>
"""


class ProxyGuard(ProxyHandler):
    """The first base class of ``jupyter-server-proxy``'s handlers."""

    sandboxed = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        base: Any = super()
        base.__init__(*args, **kwargs)
        # Every answer passes ``flush``, which the class above sets on the instance.
        this: Any = self
        flush: Callable[..., Any] = this.flush

        def bounded(include_footers: bool = False) -> Any:
            if not self._headers_written:
                self._headers = for_browser(
                    self._headers, self._own_path(), sandboxed=self.sandboxed
                )
            return flush(include_footers)

        this.flush = bounded

    @override
    async def prepare(self, **kwargs: Any) -> None:
        """Refuse requests of other sites, then prepare as usual."""
        if came_from_here(self.request):
            base: Any = super()
            await base.prepare(**kwargs)
            return
        self.set_status(403)
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        self.finish(_CAME_FROM_ELSEWHERE.format(path=escape(self.request.path)))

    @override
    def get_client_uri(self, protocol: str, host: str, port: int | str, proxied_path: str) -> str:
        """The address of a request or a websocket; refuses programs of other accounts."""
        if self.unix_socket is None and has_foreign_listener(int(port)):
            raise web.HTTPError(
                403, f"Port {port} is a program of another account; choose another port."
            )
        base: Any = super()
        return str(base.get_client_uri(protocol, host, port, proxied_path))

    @override
    def proxy_request_headers(self) -> HTTPHeaders:
        """The headers of a request to the program."""
        base: Any = super()
        return for_program(base.proxy_request_headers())

    def _own_path(self) -> str:
        """The path of the program, with a slash at its end."""
        behind = self.path_args[-1] if self.path_args else ""
        own = self.request.path.removesuffix(behind or "")
        return f"{own.rstrip('/')}/"


class PortHandler(ProxyGuard, LocalProxyHandler):
    """``{workspace}/proxy/{port}/``: a program on a port of the workspace's account."""

    sandboxed = os.environ.get(SEPARATE_ORIGINS) != "1"


def port_rules(serverapp: Any) -> list[Rule]:
    """Handlers for ports, and for tools that are started when somebody opens them."""
    base = serverapp.base_url
    config = ServerProxy(parent=serverapp)
    entry_points: Callable[[], list[Any]] = get_entrypoint_server_processes
    tools = [*config.servers.values(), *entry_points()]
    found: list[Rule] = [_guarded(rule) for rule in make_handlers(base, tools)]
    given = {"rewrite_response": config.non_service_rewrite_response}
    for path, absolute in ((r"proxy/(\d+)(/.*|)", False), (r"proxy/absolute/(\d+)(/.*|)", True)):
        found.append((url_path_join(base, path), PortHandler, {"absolute_url": absolute, **given}))
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
        handler = type(handler.__name__, (ProxyGuard, handler), {})
    return (pattern, handler, *more)
