"""What is looked at of a request before it is passed on, whichever way it came in."""

from collections.abc import Mapping
from typing import Protocol

from multidict import CIMultiDict, CIMultiDictProxy


class Request(Protocol):
    """What is asked about a request before it is passed on; aiohttp's requests fit too."""

    @property
    def method(self) -> str:
        """In capitals."""
        ...

    @property
    def raw_path(self) -> str:
        """Path and query as sent."""
        ...

    @property
    def headers(self) -> CIMultiDict[str] | CIMultiDictProxy[str]:
        """As sent."""
        ...

    @property
    def cookies(self) -> Mapping[str, str]:
        """By name."""
        ...

    @property
    def query(self) -> Mapping[str, str]:
        """By name, without escapes."""
        ...

    @property
    def content_length(self) -> int | None:
        """Bytes of the body, where they were announced."""
        ...

    @property
    def body_exists(self) -> bool:
        """Whether there is a body, maybe an empty one."""
        ...


def wants_websocket(request: Request) -> bool:
    """Whether this request asks for a websocket."""
    names = ",".join(request.headers.getall("Connection", ())).lower().split(",")
    asked = request.headers.get("Upgrade", "").strip().lower()
    return request.method == "GET" and asked == "websocket" and "upgrade" in map(str.strip, names)
