"""Requests of a page to work that listens on a port, through the gateway."""

from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import aiohttp

from carrel.client.resources.endpoints import gateway_url, path_of
from carrel.errors import BadSetting, Unreachable

MOST_ANSWER_BYTES: Final = 64 * 1024
MOST_REQUEST_BYTES: Final = 1024 * 1024
TIMEOUT_SECONDS: Final = 60.0
METHODS: Final = ("GET", "POST", "PUT", "DELETE")


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """A test request to an endpoint.

    Attributes:
        path: below the endpoint's own, query included.
        body: sent as JSON; ``None``: none.
    """

    method: str
    path: str
    body: str | None

    @classmethod
    def of(cls, asked: Any) -> "EndpointRequest":
        """Read a request from a page's JSON. Raises ``BadSetting``."""
        given = asked if isinstance(asked, dict) else {}
        method, path, body = given.get("method"), given.get("path", "/"), given.get("body")
        if method not in METHODS:
            known = ", ".join(METHODS)
            raise BadSetting(f"The method is {method!r}; it should be one of {known}.")
        if (
            not isinstance(path, str)
            or "://" in path.partition("?")[0]
            or ".." in path.lower().replace("%2e", ".")
        ):
            raise BadSetting(f"The path is {path!r}; it should be one like /predict.")
        if body is not None and not isinstance(body, str):
            raise BadSetting("The body should be a text.")
        if body is not None and len(body.encode()) > MOST_REQUEST_BYTES:
            raise BadSetting("The body is larger than 1 MiB; send it from a program.")
        return cls(method, path.lstrip("/"), body)


async def send(
    api: str, token: str, project: str, name: str, request: EndpointRequest
) -> dict[str, Any]:
    """Send a request through the gateway and return its answer.

    Args:
        api: address of the service.
        token: of the person.
        project: the endpoint's.
        name: the endpoint's.
        request: what to send.

    Returns:
        ``status``, ``seconds`` to the whole answer, ``body`` (at most 64 KiB of it) and ``cut``.

    Raises ``Unreachable``.
    """
    base = path_of(gateway_url(api), project, name)
    headers = {"Authorization": f"token {token}"}
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    began = perf_counter()
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                request.method,
                base + request.path,
                headers=headers,
                data=None if request.body is None else request.body.encode(),
                allow_redirects=False,
            ) as answer,
        ):
            content = await _beginning(answer)
    except (TimeoutError, aiohttp.ClientError) as error:
        why = "it took too long" if isinstance(error, TimeoutError) else str(error)
        raise Unreachable(f"No answer from the endpoint: {why}.") from error
    return {
        "status": answer.status,
        "seconds": perf_counter() - began,
        "body": content[:MOST_ANSWER_BYTES].decode("utf-8", "replace"),
        "cut": len(content) > MOST_ANSWER_BYTES,
    }


async def _beginning(answer: aiohttp.ClientResponse) -> bytes:
    content = b""
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > MOST_ANSWER_BYTES:
            break
    return content
