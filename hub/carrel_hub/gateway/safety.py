"""What keeps people apart whose programs are reached through one gateway.

* What proves who somebody is stays with us: tokens and the Hub's cookies never reach a target.
* A cookie signs in only what the same origin asks for; other sites can at most follow a link.
* On the Hub's origin every answer of a program, whoever's it is, runs in a sandbox without that
  origin, so it cannot act as whoever looks at it. On its own origin it runs as it is.
* A target sets cookies below its own path only, and none of the Hub's names.
"""

from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from carrel_hub.gateway.headers import Headers, Pairs, Request

SANDBOX: Final = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Names by which the Hub and its services know people.
OURS: Final = ("jupyterhub-", "service-", "carrel-gateway", "_xsrf", "__host-")
NOT_FOR_TARGETS: Final = frozenset(
    ["authorization", "cookie", "x-forwarded-user", "x-forwarded-prefix", "remote-user"]
)
# But for the first two they would reach beyond the path of the target.
_LOOKED_AT: Final = frozenset(
    [
        *("location", "set-cookie", "set-cookie2"),
        *("clear-site-data", "service-worker-allowed", "strict-transport-security"),
    ]
)


def came_from_us(request: Request, *, websocket: bool) -> bool:
    """Whether what a cookie signs in was asked for by a page of this origin, or changes nothing."""
    reads = request.method in SAFE_METHODS and not websocket
    fetch_site = request.headers.get("Sec-Fetch-Site")
    if reads and fetch_site in ("cross-site", "same-site"):
        whole = request.headers.get("Sec-Fetch-Dest", "document") == "document"
        return whole and request.headers.get("Sec-Fetch-Mode") == "navigate"
    if reads:
        return True
    if fetch_site is not None:
        return fetch_site == "same-origin"
    origin = request.headers.get("Origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("Host", "")


def for_target(headers: Headers, user: str, prefix: str) -> Pairs:
    """What a target is told of who asks, beside what ``headers`` keep after ``NOT_FOR_TARGETS``."""
    told = [("X-Forwarded-User", user)]
    if prefix:
        told.append(("X-Forwarded-Prefix", prefix))
    if "Cookie" in headers:
        cookies = [
            pair.strip()
            for line in headers.getall("Cookie")
            for pair in line.split(";")
            if pair.strip() and not pair.strip().lower().startswith(OURS)
        ]
        if cookies:
            told.append(("Cookie", "; ".join(cookies)))
    return told


def for_browser(
    headers: Iterable[tuple[str, str]],
    *,
    prefix: str,
    base: str,
    keep_prefix: bool,
    sandboxed: bool,
) -> Pairs:
    """A target's answer, kept within its path.

    Args:
        headers: Of the answer.
        prefix: Path of the route, without a slash at its end; empty: it is reached at the root.
        base: The target's own address.
        keep_prefix: The target knows the path it is reached by.
        sandboxed: The program shares its origin with others.
    """
    kept: Pairs = []
    for name, value in headers:
        key = name.lower()
        if key not in _LOOKED_AT:
            kept.append((name, value))
        elif key == "location":
            kept.append((name, _location(value, prefix, base, keep_prefix=keep_prefix)))
        elif key == "set-cookie" and (cookie := _own_cookie(value, prefix)):
            kept.append((name, cookie))
    if sandboxed:
        kept.append(("Content-Security-Policy", SANDBOX))
    return kept


def _location(location: str, prefix: str, base: str, *, keep_prefix: bool) -> str:
    inner = (
        location.removeprefix(base) if location.startswith((f"{base}/", f"{base}?")) else location
    )
    if keep_prefix or not inner.startswith("/") or inner.startswith("//"):
        return inner
    return prefix + inner


def _own_cookie(line: str, prefix: str) -> str:
    """The cookie, bound to the path; empty for one that is not the target's to set."""
    name = line.partition("=")[0].strip()
    if name.lower().startswith((*OURS[:3], "__host-", "__secure-")):
        return ""
    parsed: SimpleCookie = SimpleCookie()
    try:
        parsed.load(line)
    except CookieError:
        return ""
    if name not in parsed:
        return ""
    morsel = parsed[name]
    morsel["domain"] = ""
    if not (morsel["path"] == prefix or morsel["path"].startswith(f"{prefix}/")):
        morsel["path"] = f"{prefix}/"
    return morsel.OutputString()
