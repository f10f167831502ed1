"""Headers of requests and answers that pass: what is of one connection, and who asked."""

from collections.abc import Collection
from typing import Final

from aiohttp.web import BaseRequest
from multidict import CIMultiDict, CIMultiDictProxy

Request = BaseRequest
Headers = CIMultiDict[str] | CIMultiDictProxy[str]
Pairs = list[tuple[str, str]]

# Of one connection, not of the message: RFC 9110, 7.6.1, and what old clients still send.
HOP: Final = frozenset(
    [
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("proxy-authenticate", "proxy-authorization", "upgrade"),
    ]
)
# What is said once: whoever is to be told to continue is told so by us.
ANSWERED_HERE: Final = frozenset(["expect"])
FRAMING: Final = frozenset(["content-length"])
HANDSHAKE: Final = frozenset(
    [
        *("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions"),
        *("sec-websocket-accept", "sec-websocket-protocol"),
    ]
)
FORWARDED: Final = frozenset(
    ["x-forwarded-for", "x-forwarded-port", "x-forwarded-proto", "x-forwarded-host"]
)


def wants_websocket(request: Request) -> bool:
    """Whether this request asks for a websocket."""
    names = ",".join(request.headers.getall("Connection", ())).lower().split(",")
    asked = request.headers.get("Upgrade", "").strip().lower()
    return request.method == "GET" and asked == "websocket" and "upgrade" in map(str.strip, names)


def announces_body(headers: Headers) -> bool:
    """Whether a body is to follow the head."""
    return "Transfer-Encoding" in headers or headers.get("Content-Length", "0").strip() != "0"


def kept(headers: Headers, dropped: frozenset[str]) -> Pairs:
    """Headers but for some, in small letters, and those that ``Connection`` names."""
    if "Connection" in headers:
        dropped |= _named_by_connection(headers.getall("Connection")) - FRAMING
    return [pair for pair in headers.items() if pair[0].lower() not in dropped]


def forwarded(headers: Headers, remote: str | None, scheme: str) -> Pairs:
    """Who asked and how they named us, after what proxies before us said in ``headers``."""
    host = headers.get("Host", "")
    ours = [
        ("X-Forwarded-For", remote or ""),
        ("X-Forwarded-Port", _port(host, scheme)),
        ("X-Forwarded-Proto", scheme),
    ]
    if any(name in headers for name, _ in ours):
        ours = [(name, ",".join([*headers.getall(name, ()), one])) for name, one in ours]
    ours.append(("X-Forwarded-Host", headers.get("X-Forwarded-Host", host)))
    return ours


def _named_by_connection(said: Collection[str]) -> frozenset[str]:
    """The headers, in small letters, that these values of ``Connection`` keep to one connection."""
    return frozenset(one.strip().lower() for value in said for one in value.split(","))


def _port(host: str, scheme: str) -> str:
    _, colon, port = host.rpartition(":")
    if colon and port.isdecimal():
        return port
    return "443" if scheme == "https" else "80"
