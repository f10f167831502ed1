"""Requests from a task to the scheduler, without the cost of an HTTP library.

A trial of a few milliseconds must not spend five times as long on importing one. The scheduler
serves its tasks plain HTTP on loopback or inside a cluster; each request has a connection of its
own. Addresses with TLS use the standard library.
"""

import json
import socket
from typing import Any, Final

JSON: Final = "application/json"
TIMEOUT_SECONDS: Final = 10.0
PIECE_BYTES: Final = 65_536


def post_json(url: str, token: str, content: bytes) -> tuple[int, Any]:
    """Post JSON; returns the status and the answer's JSON (``None`` when it is empty).

    Raises ``OSError`` when there is no complete answer.
    """
    status, body = request("POST", url, token, content)
    return status, parse_json(body)


def request(
    method: str,
    url: str,
    token: str,
    content: bytes,
    *,
    media_type: str = JSON,
    timeout: float = TIMEOUT_SECONDS,
) -> tuple[int, bytes]:
    """Send a request; returns the status and the body of its answer.

    Raises ``OSError`` when there is no complete answer.
    """
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    headers = {"Authorization": f"token {token}", "Content-Type": media_type}
    if scheme != "http":
        return _request_tls(method, authority, f"/{path}", headers, content, timeout)
    host, _, port = authority.rpartition(":")
    if not port.isdecimal():
        host, port = authority, "80"
    lines = [f"{method} /{path} HTTP/1.0", f"Host: {authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, f"Content-Length: {len(content)}", "", ""])
    address = (host.strip("[]"), int(port))
    with socket.create_connection(address, timeout) as connection:
        connection.sendall(head.encode() + content)
        answer = b"".join(iter(lambda: connection.recv(PIECE_BYTES), b""))
    return parse_answer(answer)


def parse_answer(answer: bytes) -> tuple[int, bytes]:
    """Status and body of an answer; raises ``ConnectionError`` when its head is cut off."""
    head, end, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if not end or len(words) < 2 or not words[1].isdigit():
        raise ConnectionError("the answer was cut off")
    return int(words[1]), body


def parse_json(body: bytes) -> Any:
    """The JSON of a body; raises ``ConnectionError`` when it is cut off."""
    try:
        return json.loads(body) if body else None
    except ValueError as error:
        raise ConnectionError("the answer was cut off") from error


def _request_tls(
    method: str,
    authority: str,
    path: str,
    headers: dict[str, str],
    content: bytes,
    timeout: float,
) -> tuple[int, bytes]:
    from http.client import HTTPException, HTTPSConnection  # heavy; needed with TLS only

    connection = HTTPSConnection(authority, timeout=timeout)
    try:
        connection.request(method, path, body=content, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except HTTPException as error:
        raise ConnectionError(f"the answer was not understood: {error}") from error
    finally:
        connection.close()
