"""The responses to requests that are not passed on: a sentence, and a code."""

import html
from typing import Final, NoReturn

import msgspec
from aiohttp.web import BaseRequest, Response

from carrel_hub.gateway.routing import RoutedWorkload

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
_PHASES: Final = {
    "pending": "pending",
    "starting": "starting",
    "running": "running, but no server of it is ready yet",
    "preempting": "being preempted by other work",
    "stopping": "stopping",
    "stopped": "stopped",
    "failed": "failed",
    "succeeded": "succeeded",
}


class EarlyResponse(Exception):  # noqa: N818 - an outcome to handle
    """A response that ends the request here, without a target."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


def refusal(
    request: BaseRequest, status: int, code: str, detail: str, *, retry_after: int | None = None
) -> Response:
    """An error: a page for browsers, a problem document for programs.

    ``retry_after``: seconds after which trying again makes sense.
    """
    title = _TITLES.get(status, "Refused")
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    if wants_page(request):
        refresh = f'<meta http-equiv="refresh" content="{retry_after}">' if retry_after else ""
        text = _PAGE.format(title=title, detail=html.escape(detail), refresh=refresh)
        headers["Content-Security-Policy"] = POLICY
        return Response(status=status, text=text, content_type="text/html", headers=headers)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}
    return Response(
        status=status,
        body=msgspec.json.encode(body),
        content_type="application/problem+json",
        headers=headers,
    )


def refuse(request: BaseRequest, status: int, code: str, detail: str) -> NoReturn:
    """Raise ``EarlyResponse`` with a ``refusal``."""
    raise EarlyResponse(refusal(request, status, code, detail))


def redirect(to: str) -> NoReturn:
    """Raise an ``EarlyResponse`` that redirects the browser."""
    raise EarlyResponse(Response(status=302, headers={"Location": to}))


def wants_page(request: BaseRequest) -> bool:
    """Whether the response is shown in a browser's window."""
    if request.method not in ("GET", "HEAD"):
        return False
    mode = request.headers.get("Sec-Fetch-Mode")
    if mode is not None:
        return mode == "navigate"
    return "text/html" in request.headers.get("Accept", "")


def not_ready(request: BaseRequest, workload: RoutedWorkload) -> Response:
    """The response while no server takes requests, with the reason."""
    reason, phase = workload.reason, workload.phase
    why = f" {reason.sentence}" if reason and reason.sentence else ""
    detail = f"{workload.project}/{workload.name} is {_PHASES.get(phase, phase)}.{why}"
    return refusal(request, 503, "not_ready", detail, retry_after=RETRY_SECONDS)
