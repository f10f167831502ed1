"""Headers on their way through the gateway: what is passed on, added and removed.

* Headers of one connection are not passed on (RFC 9110, 7.6.1).
* What proves who somebody is stays here: tokens and the Hub's cookies never reach a target.
* A cookie signs in only what the same origin asks for; other sites can at most follow a link, and
  visitors' own servers show a TensorBoard in a frame.
* On the Hub's origin every answer of a program, whoever's it is, runs in a sandbox without that
  origin, so it cannot act as whoever looks at it. On its own origin it runs as it is.
* A target sets cookies below its own path only, and none of the Hub's names.
"""

from typing import Final
from urllib.parse import urlsplit

from aiohttp.web import BaseRequest
from multidict import CIMultiDict, CIMultiDictProxy

from carrel.web_isolation import BEYOND_PATH, SANDBOX, confined_cookie

Headers = CIMultiDict[str] | CIMultiDictProxy[str]

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
# Beginnings of names by which the Hub and its services know people.
_IDENTITY_COOKIES: Final = ("jupyterhub-", "service-", "carrel-gateway")
_COOKIES_KEPT_FROM_TARGETS: Final = (*_IDENTITY_COOKIES, "_xsrf", "__host-")
_COOKIES_TARGETS_MAY_NOT_SET: Final = (*_IDENTITY_COOKIES, "__host-", "__secure-")

# Headers of one connection, and headers that only old clients send.
_HOP: Final = frozenset(
    [
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("proxy-authenticate", "proxy-authorization", "upgrade"),
    ]
)
_FRAMING: Final = frozenset(["content-length"])
_HANDSHAKE: Final = frozenset(
    [
        *("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions"),
        *("sec-websocket-accept", "sec-websocket-protocol"),
    ]
)
_SET_HERE: Final = frozenset(
    [
        *("x-forwarded-for", "x-forwarded-port", "x-forwarded-proto", "x-forwarded-host"),
        *("authorization", "cookie", "x-forwarded-user", "x-forwarded-prefix", "remote-user"),
    ]
)
# The client's "Expect: 100-continue" is answered by aiohttp.
_HTTP_REQUEST: Final = _HOP | _SET_HERE | {"expect"}
_WEBSOCKET_REQUEST: Final = _HOP | _SET_HERE | _HANDSHAKE | _FRAMING
_REFUSED_WEBSOCKET: Final = _HOP | _HANDSHAKE | _FRAMING | {"content-encoding", "content-type"}
_REWRITTEN: Final = BEYOND_PATH | {"location", "set-cookie"}


def wants_websocket(request: BaseRequest) -> bool:
    """Whether this request asks for a websocket."""
    names = ",".join(request.headers.getall("Connection", ())).lower().split(",")
    upgrade = request.headers.get("Upgrade", "").strip().lower()
    return request.method == "GET" and upgrade == "websocket" and "upgrade" in map(str.strip, names)


def announces_body(headers: Headers) -> bool:
    """Whether a body is to follow the head."""
    return "Transfer-Encoding" in headers or headers.get("Content-Length", "0").strip() != "0"


def from_same_origin(request: BaseRequest, *, websocket: bool) -> bool:
    """Whether a page of this origin sent a request with a cookie, or it changes nothing."""
    reads = request.method in SAFE_METHODS and not websocket
    fetch_site = request.headers.get("Sec-Fetch-Site")
    if reads and fetch_site in ("cross-site", "same-site"):
        whole_page = request.headers.get("Sec-Fetch-Dest", "document") == "document"
        return whole_page and request.headers.get("Sec-Fetch-Mode") == "navigate"
    if reads:
        return True
    if fetch_site is not None:
        return fetch_site == "same-origin"
    origin = request.headers.get("Origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("Host", "")


def is_framed(request: BaseRequest) -> bool:
    """Whether a page of another host of the same site asks for this as the content of a frame."""
    headers = request.headers
    return (
        request.method in ("GET", "HEAD")
        and headers.get("Sec-Fetch-Site") == "same-site"
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and headers.get("Sec-Fetch-Dest") == "iframe"
    )


def for_target(
    request: BaseRequest, user: str, prefix: str, *, websocket: bool = False
) -> CIMultiDict[str]:
    """The request's headers for the target.

    Args:
        request: Of the visitor.
        user: Who asks.
        prefix: Path of the route, without a slash at its end; empty: it is reached at the root.
        websocket: The gateway itself makes the websocket's handshake.
    """
    headers = request.headers
    found = _without(headers, _WEBSOCKET_REQUEST if websocket else _HTTP_REQUEST)
    found.extend(_forwarded(headers, request.remote, request.scheme))
    found.add("X-Forwarded-User", user)
    if prefix:
        found.add("X-Forwarded-Prefix", prefix)
    if "Cookie" in headers:
        pairs = (pair.strip() for line in headers.getall("Cookie") for pair in line.split(";"))
        cookies = [
            pair
            for pair in pairs
            if pair and not pair.lower().startswith(_COOKIES_KEPT_FROM_TARGETS)
        ]
        if cookies:
            found.add("Cookie", "; ".join(cookies))
    return found


def for_browser(
    headers: Headers,
    *,
    prefix: str,
    base: str,
    keep_prefix: bool,
    sandboxed: bool,
    framed_by: str = "",
    refused_websocket: bool = False,
) -> CIMultiDict[str]:
    """The response's headers for the browser; cookies and redirects stay within the route's path.

    Args:
        headers: Of the answer.
        prefix: As for ``for_target``.
        base: The target's own address.
        keep_prefix: The target knows the path it is reached by.
        sandboxed: The program shares its origin with others.
        framed_by: The only other origin whose pages may show it in a frame; empty: nothing is said.
        refused_websocket: The gateway answers with a body of its own.
    """
    found: CIMultiDict[str] = CIMultiDict()
    for name, value in _without(headers, _REFUSED_WEBSOCKET if refused_websocket else _HOP).items():
        key = name.lower()
        if key not in _REWRITTEN:
            found.add(name, value)
        elif key == "location":
            found.add(name, _location(value, prefix, base, keep_prefix=keep_prefix))
        elif key == "set-cookie" and (
            cookie := confined_cookie(value, prefix, _COOKIES_TARGETS_MAY_NOT_SET)
        ):
            found.add(name, cookie)
    if sandboxed:
        found.add("Content-Security-Policy", SANDBOX)
    if framed_by:
        found.add("Content-Security-Policy", f"frame-ancestors 'self' {framed_by}")
    return found


def _without(headers: Headers, dropped: frozenset[str]) -> CIMultiDict[str]:
    """Headers but for some, in small letters, and those that ``Connection`` names."""
    if "Connection" in headers:
        named = ",".join(headers.getall("Connection")).lower().split(",")
        dropped |= frozenset(map(str.strip, named)) - _FRAMING
    return CIMultiDict([pair for pair in headers.items() if pair[0].lower() not in dropped])


def _forwarded(headers: Headers, remote: str | None, scheme: str) -> list[tuple[str, str]]:
    """``X-Forwarded-*``: the client and its address, after the headers of trusted proxies."""
    host = headers.get("Host", "")
    _, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        port = "443" if scheme == "https" else "80"
    found = [
        ("X-Forwarded-For", remote or ""),
        ("X-Forwarded-Port", port),
        ("X-Forwarded-Proto", scheme),
    ]
    if any(name in headers for name, _ in found):
        found = [(name, ",".join([*headers.getall(name, ()), own])) for name, own in found]
    found.append(("X-Forwarded-Host", headers.get("X-Forwarded-Host", host)))
    return found


def _location(location: str, prefix: str, base: str, *, keep_prefix: bool) -> str:
    inner = (
        location.removeprefix(base) if location.startswith((f"{base}/", f"{base}?")) else location
    )
    if keep_prefix or not inner.startswith("/") or inner.startswith("//"):
        return inner
    return prefix + inner
