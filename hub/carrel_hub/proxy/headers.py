"""Which headers pass on, and what targets are told about who asks."""

from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

Headers = CIMultiDict[str] | CIMultiDictProxy[str]

# Of one connection, not of the message: RFC 9110, 7.6.1, and what old clients still send.
_HOP: Final = frozenset(
    [
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("proxy-authenticate", "proxy-authorization", "upgrade"),
    ]
)
_HANDSHAKE: Final = frozenset(
    [
        *("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions"),
        *("sec-websocket-accept", "sec-websocket-protocol"),
    ]
)


def end_to_end(headers: Headers, also: frozenset[str] = _HOP) -> CIMultiDict[str]:
    """All that is meant for the other end, each as often and in the order as it came."""
    named = (one for value in headers.getall("Connection", ()) for one in value.split(","))
    dropped = _HOP | also | {one.strip().lower() for one in named}
    return CIMultiDict((name, one) for name, one in headers.items() if name.lower() not in dropped)


def request_headers(headers: Headers) -> CIMultiDict[str]:
    """For a target. Whoever wants to be told to continue is told so by us."""
    return end_to_end(headers, frozenset({"expect"}))


def handshake_headers(headers: Headers) -> CIMultiDict[str]:
    """For the target of a websocket; the handshake itself is between neighbours."""
    return end_to_end(headers, _HANDSHAKE)


def refusal_headers(headers: Headers) -> CIMultiDict[str]:
    """Of a handshake that a target refused, without what described its body."""
    body = frozenset({"content-length", "content-encoding", "content-type"})
    return end_to_end(headers, _HANDSHAKE | body)


def add_forwarded(headers: CIMultiDict[str], remote: str | None, scheme: str) -> None:
    """Say who asked and how they named us, after what proxies before us said."""
    host = headers.get("Host", "")
    ours = {"For": remote or "", "Port": _port(host, scheme), "Proto": scheme}
    for name, value in ours.items():
        before = headers.popall(f"X-Forwarded-{name}", [])
        headers[f"X-Forwarded-{name}"] = ",".join([*before, value])
    headers.setdefault("X-Forwarded-Host", host)


def _port(host: str, scheme: str) -> str:
    _, colon, port = host.rpartition(":")
    if colon and port.isdecimal():
        return port
    return "443" if scheme == "https" else "80"
