"""What passes between a browser and a program on a port: nothing that proves who somebody is.

The program gets neither the cookies of this server nor the token of a request, so it cannot act as
whoever opens it. It sets cookies below its own path only. Where all users share one origin its
pages run in a sandbox without that origin.
"""

from typing import Final
from urllib.parse import urlsplit

from tornado.httputil import HTTPHeaders, HTTPServerRequest

from carrel.web_isolation import BEYOND_PATH, SANDBOX, confined_cookie

_NOT_FOR_PROGRAMS: Final = (
    *("Authorization", "Proxy-Authorization", "Cookie", "X-Xsrftoken", "X-Csrftoken"),
    *("X-Forwarded-User", "Remote-User"),
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
    for name in (*BEYOND_PATH, "Set-Cookie"):
        kept.pop(name, None)
    for line in headers.get_list("Set-Cookie"):
        if cookie := confined_cookie(line, path.rstrip("/")):
            kept.add("Set-Cookie", cookie)
    if sandboxed:
        kept.add("Content-Security-Policy", SANDBOX)
    return kept
