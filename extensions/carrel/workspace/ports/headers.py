"""What passes between a browser and a program on a port: nothing that proves who somebody is.

The program gets neither the cookies of this server nor the token of a request, so it cannot act as
whoever opens it. It sets cookies below its own path only. Where all users share one origin its
pages run in a sandbox without that origin.
"""

from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from tornado.httputil import HTTPHeaders, HTTPServerRequest

SEPARATE_ORIGINS: Final = "CARREL_SEPARATE_ORIGINS"
"""Set in the environment of workspaces whose servers have an origin for each user."""
SANDBOX: Final = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
_NOT_FOR_PROGRAMS: Final = (
    *("Authorization", "Proxy-Authorization", "Cookie", "X-Xsrftoken", "X-Csrftoken"),
    *("X-Forwarded-User", "Remote-User"),
)
_NOT_FOR_BROWSERS: Final = (
    *("Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Set-Cookie2"),
    "Set-Cookie",
)


def came_from_here(request: HTTPServerRequest) -> bool:
    """Whether a page of this origin, a person or a program with a token asks.

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
    """A request's headers without what proves who asks."""
    kept = headers.copy()
    for name in _NOT_FOR_PROGRAMS:
        kept.pop(name, None)
    return kept


def for_browser(headers: HTTPHeaders, path: str, *, sandboxed: bool) -> HTTPHeaders:
    """An answer's headers, kept within ``path`` (with a slash at its end)."""
    kept = headers.copy()
    for name in _NOT_FOR_BROWSERS:
        kept.pop(name, None)
    for cookie in _own_cookies(headers.get_list("Set-Cookie"), path):
        kept.add("Set-Cookie", cookie)
    if sandboxed:
        kept.add("Content-Security-Policy", SANDBOX)
    return kept


def _own_cookies(lines: Iterable[str], path: str) -> Iterable[str]:
    for line in lines:
        parsed: SimpleCookie = SimpleCookie()
        try:
            parsed.load(line)
        except CookieError:
            continue
        for morsel in parsed.values():
            morsel["domain"] = ""
            if not morsel["path"].startswith(path):
                morsel["path"] = path
            yield morsel.OutputString()
