"""Which headers pass on, and what targets are told about who asks."""

from collections.abc import Collection
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

Headers = CIMultiDict[str] | CIMultiDictProxy[str]
Pairs = list[tuple[str, str]]

# Of one connection, not of the message: RFC 9110, 7.6.1, and what old clients still send.
HOP: Final = frozenset(
    [
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("proxy-authenticate", "proxy-authorization", "upgrade"),
    ]
)
HANDSHAKE: Final = frozenset(
    [
        *("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions"),
        *("sec-websocket-accept", "sec-websocket-protocol"),
    ]
)
FORWARDED: Final = frozenset(
    ["x-forwarded-for", "x-forwarded-port", "x-forwarded-proto", "x-forwarded-host"]
)


def named_by_connection(said: Collection[str]) -> frozenset[str]:
    """The headers, in small letters, that these values of ``Connection`` keep to one connection."""
    return frozenset(one.strip().lower() for value in said for one in value.split(","))


def end_to_end(headers: Headers, also: frozenset[str] = HOP) -> CIMultiDict[str]:
    """All that is meant for the other end, each as often and in the order as it came."""
    return CIMultiDict(kept(headers, HOP | also))


def kept(headers: Headers, dropped: frozenset[str]) -> Pairs:
    """Headers but for some, in small letters, and those that ``Connection`` names."""
    if "Connection" in headers:
        dropped |= named_by_connection(headers.getall("Connection"))
    return [pair for pair in headers.items() if pair[0].lower() not in dropped]


def request_headers(headers: Headers) -> CIMultiDict[str]:
    """For a target. Whoever wants to be told to continue is told so by us."""
    return end_to_end(headers, frozenset({"expect"}))


def handshake_headers(headers: Headers) -> CIMultiDict[str]:
    """For the target of a websocket; the handshake itself is between neighbours."""
    return end_to_end(headers, HANDSHAKE)


def refusal_headers(headers: Headers) -> CIMultiDict[str]:
    """Of a handshake that a target refused, without what described its body."""
    body = frozenset({"content-length", "content-encoding", "content-type"})
    return end_to_end(headers, HANDSHAKE | body)


def add_forwarded(headers: CIMultiDict[str], remote: str | None, scheme: str) -> None:
    """Say who asked and how they named us, after what proxies before us said."""
    for name, value in forwarded(headers, remote, scheme):
        headers[name] = value


def forwarded(headers: Headers, remote: str | None, scheme: str) -> Pairs:
    """Who asked and how they named us, after what proxies before us said in ``headers``."""
    host = headers.get("Host", "")
    port = _port(host, scheme)
    ours = [
        ("X-Forwarded-For", remote or ""),
        ("X-Forwarded-Port", port),
        ("X-Forwarded-Proto", scheme),
    ]
    if any(name in headers for name, _ in ours):
        ours = [(name, ",".join([*headers.getall(name, ()), one])) for name, one in ours]
    ours.append(("X-Forwarded-Host", headers.get("X-Forwarded-Host", host)))
    return ours


def _port(host: str, scheme: str) -> str:
    _, colon, port = host.rpartition(":")
    if colon and port.isdecimal():
        return port
    return "443" if scheme == "https" else "80"
