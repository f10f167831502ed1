"""Endpoints: calling one through the gateway, changing it as it serves.

The gateway is a sibling of the scheduler's service at the Hub's public address; a workspace, which
reaches both past the proxy, has its address in ``CARREL_GATEWAY_URL``.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from carrel.client.resources.workloads import workload_path
from carrel.client.transport import Transport, problem, segment
from carrel.errors import ApiError, NotSignedIn, UnexpectedAnswer, Unreachable
from carrel.models import Workload

if TYPE_CHECKING:
    import aiohttp

USUAL_SECONDS: Final = 300.0
EVENTS: Final = "text/event-stream"


def gateway_url(service: str, environ: Mapping[str, str] | None = None) -> str:
    """The address of the gateway of a service, without a final slash."""
    env = os.environ if environ is None else environ
    address = env.get("CARREL_GATEWAY_URL", "")
    if address and env.get("CARREL_URL", "").rstrip("/") == service.rstrip("/"):
        return address.rstrip("/")
    return f"{service.rstrip('/').rpartition('/')[0]}/gateway"


def prefix_of(service: str) -> str:
    """The gateway's path at the Hub, from the service's address: they are services of one Hub."""
    return f"{urlsplit(service).path.rstrip('/').rpartition('/')[0]}/gateway"


def path_of(prefix: str, project: str, name: str) -> str:
    """The path of a workload's first route, with a slash at its end."""
    return f"{prefix}/{segment(project)}/{segment(name)}/"


class AsyncEndpoint:
    """An endpoint, or a route of any other work. Methods raise ``CarrelError``."""

    def __init__(self, transport: Transport, project: str, name: str, route: str = "") -> None:
        self._transport = transport
        base = gateway_url(transport.settings.url)
        self.url = path_of(base, project, name) + (f"~{route}/" if route else "")

    async def get(self, path: str = "", *, seconds: float = USUAL_SECONDS) -> Any:
        """Get a path; JSON is returned decoded, text as text, all else as bytes."""
        return await self.request("GET", path, seconds=seconds)

    async def post(
        self, value: Any = None, path: str = "", *, seconds: float = USUAL_SECONDS
    ) -> Any:
        """Send a value as JSON and return the answer like ``get``; arrays become lists."""
        return await self.request("POST", path, value=value, seconds=seconds)

    async def request(
        self,
        method: str,
        path: str = "",
        *,
        value: Any = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = USUAL_SECONDS,
    ) -> Any:
        """Send a request: ``data`` goes as it is, ``value`` as JSON. ``seconds``: for all of it."""
        import aiohttp

        body, more = _body(method, value, data)
        limit = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._ask(method, path, body, {**more, **(headers or {})}, limit) as answer:
                content = await answer.read()
                _check(answer, content)
                return _read(answer, content)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(self.url, error) from error

    async def stream(
        self, value: Any = None, path: str = "", *, seconds: float = USUAL_SECONDS
    ) -> AsyncGenerator[Any, None]:
        """Post a value and yield the pieces of the answer as they come.

        Lines of JSON and server-sent events come decoded, all else as bytes. ``seconds`` is the
        longest silence. An answer that breaks off raises ``Unreachable``.
        """
        import aiohttp

        body, more = _body("POST", value, None)
        limit = aiohttp.ClientTimeout(total=None, sock_connect=30.0, sock_read=seconds)
        headers = {"Accept": f"application/x-ndjson, {EVENTS};q=0.9, */*;q=0.5", **more}
        try:
            async with self._ask("POST", path, body, headers, limit) as answer:
                if answer.status >= 400:
                    _check(answer, await answer.read())
                async with aclosing(_pieces(answer)) as pieces:
                    async for piece in pieces:
                        yield piece
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _unreachable(self.url, error) from error

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout: "aiohttp.ClientTimeout",
    ) -> Any:
        token = {"Authorization": f"Bearer {self._transport.settings.token}"}
        return self._transport.session.request(
            method,
            self.url + path.lstrip("/"),
            data=body,
            headers={**headers, **token},
            timeout=timeout,
            allow_redirects=False,
        )


class EndpointMethods:
    """Call endpoints, and change them."""

    _transport: Transport

    def endpoint(self, project: str, name: str, route: str = "") -> AsyncEndpoint:
        """The endpoint of that name; no request is sent yet."""
        return AsyncEndpoint(self._transport, project, name, route)

    async def share(self, project: str, name: str, access: str, route: str = "") -> Workload:
        """Set who may use a route: ``user``, ``project`` or ``everyone``."""
        body = {"access": access, "route": route}
        path = f"{workload_path(project, name)}/share"
        return await self._transport.ask("POST", path, Workload, body=body)


def _body(method: str, value: Any, data: bytes | None) -> tuple[bytes | None, dict[str, str]]:
    if data is not None:
        return data, {"Content-Type": "application/octet-stream"}
    if value is None and method != "POST":
        return None, {}
    return msgspec.json.encode(value, enc_hook=_plain), {"Content-Type": "application/json"}


def _plain(value: Any) -> Any:
    """Arrays and tensors as lists."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not JSON")


def _check(answer: "aiohttp.ClientResponse", content: bytes) -> None:
    if answer.status < 400:
        return
    if answer.status == 401:
        raise NotSignedIn(f"{answer.url} does not accept the token; sign in with `carrel login`.")
    if "json" in answer.content_type:
        raise problem(answer.status, content)
    raise ApiError(answer.status, detail=content[:1000].decode("utf-8", "replace").strip())


def _read(answer: "aiohttp.ClientResponse", content: bytes) -> Any:
    if not content or "json" not in answer.content_type:
        return content.decode() if answer.content_type.startswith("text/") else content
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError as error:
        raise UnexpectedAnswer(
            f"{answer.url} answered with JSON that is none ({error})."
        ) from error


async def _pieces(answer: "aiohttp.ClientResponse") -> AsyncGenerator[Any, None]:
    as_lines = "ndjson" in answer.content_type or answer.content_type == EVENTS
    if not as_lines:
        async for piece in answer.content.iter_any():
            yield piece
        return
    async for line in answer.content:
        text = line.strip()
        if answer.content_type == EVENTS:
            name, _, text = text.partition(b":")
            text = text.strip() if name == b"data" else b""
        if not text:
            continue
        try:
            yield msgspec.json.decode(text)
        except msgspec.MsgspecError:
            yield text.decode("utf-8", "replace")


def _unreachable(url: str, error: Exception) -> Unreachable:
    why = "it took too long" if isinstance(error, TimeoutError) else str(error).rstrip(".")
    return Unreachable(f"No whole answer from {url}: {why}.")
