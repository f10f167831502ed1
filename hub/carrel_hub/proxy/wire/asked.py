"""The head of a request: what was asked, and how long its body is, said in one way only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from multidict import CIMultiDict
from tornado.httputil import parse_cookie

LONGEST_HEAD: Final = 64 * 1024
MOST_HEADERS: Final = 256


class RefusedError(Exception):
    """A head that nothing is done with: the status of the answer, a stable code and a sentence."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


@dataclass(slots=True)
class Asked:
    """See ``carrel_hub.proxy.request.Request``.

    Attributes:
        remote: Address of the caller.
        chunked: The body comes in pieces of announced size, its whole size unknown.
        keep_alive: The caller will ask more over this connection.
        modern: It understands HTTP/1.1.
    """

    method: str
    raw_path: str
    headers: CIMultiDict[str]
    remote: str | None
    content_length: int | None
    chunked: bool
    keep_alive: bool
    modern: bool
    scheme: str = "http"

    @property
    def body_exists(self) -> bool:
        """Whether there is a body, maybe an empty one."""
        return self.chunked or bool(self.content_length)

    @property
    def expects(self) -> bool:
        """Whether the caller waits to be told that its body is wanted."""
        return self.modern and self.headers.get("Expect", "").lower() == "100-continue"

    @property
    def cookies(self) -> Mapping[str, str]:
        """By name; of several of one name the first, which is the most specific one."""
        found: dict[str, str] = {}
        for line in self.headers.getall("Cookie", ()):
            found = parse_cookie(line) | found
        return found

    @property
    def query(self) -> Mapping[str, str]:
        """By name, without escapes."""
        return dict(parse_qsl(self.raw_path.partition("?")[2], keep_blank_values=True))


def pairs(raw: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Headers as text; bytes beyond UTF-8 come out again as they came."""
    return [(name.decode("ascii"), one.decode("utf-8", "surrogateescape")) for name, one in raw]


def read(
    method: str, target: bytes, raw: Sequence[tuple[bytes, bytes]], version: str, remote: str | None
) -> Asked:
    """A head that the parser found well formed. Raises ``RefusedError``."""
    size = len(target) + sum([len(name) + len(value) + 4 for name, value in raw])
    if size > LONGEST_HEAD or len(raw) > MOST_HEADERS:
        raise RefusedError(
            431,
            "head_too_large",
            f"A request's head may have {LONGEST_HEAD:,} bytes and {MOST_HEADERS} headers.",
        )
    if version not in ("1.1", "1.0"):
        raise RefusedError(505, "http_version", f"HTTP/{version} is not spoken here, HTTP/1.1 is.")
    if method == "CONNECT":
        raise RefusedError(405, "no_tunnels", "Nothing is connected to other hosts from here.")
    headers, modern = CIMultiDict(pairs(raw)), version == "1.1"
    hosts = headers.getall("Host", ())
    if len(hosts) > 1 or (modern and not hosts):
        raise RefusedError(400, "host", "A request names one Host, once.")
    length, chunked = _framing(headers, modern=modern)
    said = headers.get("Connection", "").lower()
    return Asked(
        method=method,
        raw_path=target.decode("ascii"),
        headers=headers,
        remote=remote,
        content_length=length,
        chunked=chunked,
        keep_alive=(modern and "close" not in said) or (not modern and "keep-alive" in said),
        modern=modern,
    )


def _framing(headers: CIMultiDict[str], *, modern: bool) -> tuple[int | None, bool]:
    """Length, or whether it is chunked. The parser refuses both at once and numbers that are none.

    What it lets pass: other encodings before ``chunked``, which we could not pass on as they are,
    and chunks of an old client, which a proxy before us may not have seen.
    """
    encoding = headers.get("Transfer-Encoding")
    if encoding is not None:
        if encoding.strip().lower() != "chunked" or not modern:
            raise RefusedError(
                400, "ambiguous_body", "The only Transfer-Encoding is chunked, with HTTP/1.1."
            )
        return None, True
    length = headers.get("Content-Length")
    return (None if length is None else int(length)), False
