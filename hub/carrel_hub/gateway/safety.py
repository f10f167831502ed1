"""What keeps people apart who share one origin: the Hub's.

* What proves who somebody is stays with us: tokens and the Hub's cookies never reach a target.
* A cookie signs in only what the same origin asks for; other sites can at most follow a link.
* A page of somebody else's program runs in a sandbox without the Hub's origin, so it cannot act as
  whoever looks at it. Pages of one's own programs, and of the platform's, run as they are.
* A target sets cookies below its own path only, and none of the Hub's names.
"""

from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from multidict import CIMultiDict

SANDBOX: Final = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Names by which the Hub and its services know people.
OURS: Final = ("jupyterhub-", "service-", "carrel-gateway", "_xsrf")
_NOT_FOR_TARGETS: Final = ("Authorization", "X-Forwarded-User", "X-Forwarded-Prefix", "Remote-User")
# They would reach beyond the path of the target.
_NOT_FOR_BROWSERS: Final = (
    "Clear-Site-Data",
    "Service-Worker-Allowed",
    "Strict-Transport-Security",
    "Set-Cookie2",
)


def came_from_us(request: web.BaseRequest, *, websocket: bool) -> bool:
    """Whether what a cookie signs in was asked for by a page of this origin, or changes nothing."""
    if request.method in SAFE_METHODS and not websocket:
        return True
    fetch_site = request.headers.get("Sec-Fetch-Site")
    if fetch_site is not None:
        return fetch_site == "same-origin"
    origin = request.headers.get("Origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("Host", "")


def for_target(headers: CIMultiDict[str], user: str, prefix: str) -> None:
    """Take out what proves who asks, and say who does."""
    for name in _NOT_FOR_TARGETS:
        headers.popall(name, None)
    cookies = headers.popall("Cookie", [])
    kept = [
        pair.strip()
        for line in cookies
        for pair in line.split(";")
        if pair.strip() and not pair.strip().lower().startswith(OURS)
    ]
    if kept:
        headers["Cookie"] = "; ".join(kept)
    headers["X-Forwarded-User"] = user
    headers["X-Forwarded-Prefix"] = prefix


def for_browser(
    headers: CIMultiDict[str], *, prefix: str, base: str, keep_prefix: bool, sandboxed: bool
) -> None:
    """Keep a target's answer within its path.

    Args:
        headers: Of the answer.
        prefix: Path of the route, without a slash at its end.
        base: The target's own address.
        keep_prefix: The target knows the path it is reached by.
        sandboxed: The program is another person's.
    """
    for name in _NOT_FOR_BROWSERS:
        headers.popall(name, None)
    for line in headers.popall("Set-Cookie", []):
        cookie = _own_cookie(line, prefix)
        if cookie:
            headers.add("Set-Cookie", cookie)
    if "Location" in headers:
        headers["Location"] = _location(headers["Location"], prefix, base, keep_prefix=keep_prefix)
    if sandboxed:
        headers.add("Content-Security-Policy", SANDBOX)


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
