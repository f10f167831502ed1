"""One request to the scheduler and its answer, at next to no cost.

A trial of a few milliseconds must not spend five times as long on importing an HTTP library. What
the scheduler speaks to its tasks is plain HTTP on loopback or inside a cluster; of HTTP this needs
one request on a connection of its own. Addresses with TLS take the standard library's way.
"""

import json
import socket
from typing import Any, Final

TIMEOUT_SECONDS: Final = 10.0
PIECE_BYTES: Final = 65_536


def post(url: str, token: str, content: bytes) -> tuple[int, Any]:
    """Send JSON; returns the status and the answer's JSON (``None`` when it has none).

    Raises ``OSError`` when there is no whole answer.
    """
    scheme, _, rest = url.partition("://")
    place, _, path = rest.partition("/")
    if scheme != "http":
        return _with_tls(place, f"/{path}", token, content)
    host, _, port = place.rpartition(":")
    if not port.isdecimal():
        host, port = place, "80"
    head = (
        f"POST /{path} HTTP/1.0\r\nHost: {place}\r\nAuthorization: token {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    address = (host.strip("[]"), int(port))
    with socket.create_connection(address, TIMEOUT_SECONDS) as connection:
        connection.sendall(head.encode() + content)
        answer = b"".join(iter(lambda: connection.recv(PIECE_BYTES), b""))
    return read(answer)


def read(answer: bytes) -> tuple[int, Any]:
    """Status and JSON of a whole answer; raises ``ConnectionError`` for one that is cut off."""
    head, end, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if not end or len(words) < 2 or not words[1].isdigit():
        raise ConnectionError("the answer was cut off")
    return int(words[1]), _content(body)


def _content(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError as error:
        raise ConnectionError("the answer was cut off") from error


def _with_tls(place: str, path: str, token: str, content: bytes) -> tuple[int, Any]:
    from http.client import HTTPException, HTTPSConnection  # heavy; needed with TLS only

    connection = HTTPSConnection(place, timeout=TIMEOUT_SECONDS)
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", path, body=content, headers=headers)
        answer = connection.getresponse()
        return answer.status, _content(answer.read())
    except HTTPException as error:
        raise ConnectionError(f"the answer was not understood: {error}") from error
    finally:
        connection.close()
