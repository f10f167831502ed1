"""What people and programs read when a request is not passed on: a sentence, and a code."""

import html
from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import web

from carrel_hub.gateway.headers import Request
from carrel_hub.gateway.table import Place

RETRY_SECONDS: Final = 5
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">{refresh}
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 15vh auto; }}
main {{ padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; }}
</style></head><body><main><h1>{title}</h1><p>{detail}</p></main></body></html>
"""
_TITLES: Final = {
    400: "This cannot be passed on",
    401: "Sign in first",
    403: "Not for you",
    404: "Nothing is at this address",
    413: "Too large",
    429: "Too many are waiting",
    502: "It broke off",
    503: "Not there now",
    504: "No answer in time",
}


def refusal(
    request: Request, status: int, code: str, detail: str, *, again: int | None = None
) -> web.Response:
    """An answer of ours: a page for browsers, a problem document for programs.

    ``again``: seconds after which trying again makes sense.
    """
    title = _TITLES.get(status, "Refused")
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if again is not None:
        headers["Retry-After"] = str(again)
    if wants_page(request):
        refresh = f'<meta http-equiv="refresh" content="{again}">' if again is not None else ""
        text = _PAGE.format(title=title, detail=html.escape(detail), refresh=refresh)
        headers["Content-Security-Policy"] = POLICY
        return web.Response(status=status, text=text, content_type="text/html", headers=headers)
    return problem(status, code, detail, headers)


def problem(
    status: int, code: str, detail: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A problem document, as programs read it."""
    told = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} | dict(headers or {})
    if status == 401:
        told["WWW-Authenticate"] = "Bearer"
    body = {
        "type": "about:blank",
        "title": _TITLES.get(status, "Refused"),
        "status": status,
        "code": code,
        "detail": detail,
    }
    return web.Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/problem+json",
        headers=told,
    )


def wants_page(request: Request) -> bool:
    """Whether somebody looks at the answer in a browser's window."""
    if request.method not in ("GET", "HEAD"):
        return False
    mode = request.headers.get("Sec-Fetch-Mode")
    if mode is not None:
        return mode == "navigate"
    return "text/html" in request.headers.get("Accept", "")


def not_there(request: Request, place: Place) -> web.Response:
    """No server takes requests now, and why."""
    why = f" {place.reason.sentence}" if place.reason and place.reason.sentence else ""
    detail = f"{place.project}/{place.name} is {_PHASES.get(place.phase, place.phase)}.{why}"
    return refusal(request, 503, "not_ready", detail, again=RETRY_SECONDS)


_PHASES: Final = {
    "pending": "waiting to start",
    "starting": "starting",
    "running": "running, but no server of it is ready yet",
    "preempting": "giving way to other work",
    "stopping": "stopping",
    "stopped": "stopped",
    "failed": "at an end: it failed",
    "succeeded": "at an end",
}
