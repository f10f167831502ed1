"""The API's verbs: objects go in as msgspec Structs or dicts and come out as the type asked for.

What a lost answer means is decided in ``retrying``; callers meet only the errors of ``errors``.
"""

# ruff: noqa: A002 - ``type`` is the word for what an argument of this name is everywhere

import asyncio
import builtins
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, cast
from urllib.parse import urlencode

import aiohttp
import msgspec
from typing_extensions import TypeVar

from carrel_scheduler.backoff import Jitter
from carrel_scheduler.kube.credentials import Credentials
from carrel_scheduler.kube.decoding import decode, decode_page
from carrel_scheduler.kube.errors import Gone
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.kube.sending import RequestSender, Resend
from carrel_scheduler.kube.transport import HttpRequest, KubeTransport

T = TypeVar("T", default=dict[str, Any])
PAGE: Final = 1000
LIST_SECONDS: Final = 60.0
GIVEN_UP_SECONDS: Final = 2
"""Seconds after sending in which the server may still do what was posted to a sub-resource."""
_DICT: Final = cast("Any", dict)
_encode: Final = msgspec.json.Encoder().encode


class PatchKind(Enum):
    """The type of a patch; the value is its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"
    STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The objects of a list, as of one version; a watch may go on from there."""

    items: list[T]
    version: str


class KubeClient:
    """A client of one API server.

    Args:
        credentials: see ``credentials``.
        transport: what sends; made of the credentials by default.
        chance: jitter of the pauses between tries, in [0, 1).
        pause: waits so many seconds.
    """

    def __init__(
        self,
        credentials: Credentials,
        transport: KubeTransport | None = None,
        chance: Jitter = random.random,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport or KubeTransport(credentials)
        self._sender = RequestSender(self._transport, chance, pause)

    @property
    def trouble(self) -> str:
        """The reason why no request is sent until the credentials are mended; empty: none."""
        return self._transport.breaker.trouble

    async def get(
        self, resource: Resource, name: str, namespace: str = "", type: builtins.type[T] = _DICT
    ) -> T:
        """Read an object. Raises ``NotFound``."""
        return decode(await self._send("GET", resource.path(namespace, name)), type)

    async def list(
        self,
        resource: Resource,
        type: builtins.type[T] = _DICT,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
    ) -> Listing[T]:
        """List all objects, in pages of ``limit`` that together are one consistent state."""
        query = _given(labelSelector=label_selector, fieldSelector=field_selector)
        path = resource.path(namespace)
        try:
            return await self._pages(path, type, {**query, "limit": str(limit)})
        except Gone:
            # The pages outlived the version that they show; one page is always consistent.
            return await self._pages(path, type, query)

    async def _pages(
        self, path: str, type: builtins.type[T], query: Mapping[str, str]
    ) -> Listing[T]:
        items: builtins.list[T] = []
        more: dict[str, str] = {}
        while True:
            request = HttpRequest("GET", _with(path, {**query, **more}))
            page = decode_page(await self._sender.send(request, seconds=LIST_SECONDS), type)
            items += page.items or ()
            if not page.metadata.continue_token:
                return Listing(items, page.metadata.resource_version)
            more = {"continue": page.metadata.continue_token}

    async def create(
        self, resource: Resource, obj: Any, namespace: str = "", type: builtins.type[T] = _DICT
    ) -> T:
        """Create an object. Raises ``AlreadyExists``, ``Invalid``, ``Forbidden``.

        Sent again when the answer is lost, if the object has a name: ``AlreadyExists`` with
        ``retried`` may then be about the very object, as its uid or labels show.
        """
        sent = obj if isinstance(obj, bytes) else _encode(obj)
        repeat = Resend.SAFE if _is_named(obj) else Resend.UNSENT_ONLY
        return decode(await self._send("POST", resource.path(namespace), sent, repeat), type)

    async def replace(
        self,
        resource: Resource,
        name: str,
        obj: Any,
        namespace: str = "",
        sub: str = "",
        type: builtins.type[T] = _DICT,
    ) -> T:
        """Put ``obj`` in the place of what is there, if it has the version that ``obj`` names.

        Raises ``Conflict``; ``Unavailable`` when the answer is lost: read, then decide.
        """
        path = resource.path(namespace, name, sub)
        return decode(await self._send("PUT", path, _encode(obj), Resend.UNSENT_ONLY), type)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        namespace: str = "",
        sub: str = "",
        how: PatchKind = PatchKind.MERGE,
        field_manager: str = "",
        force: bool = False,
        type: builtins.type[T] = _DICT,
    ) -> T:
        """Change an object; ``field_manager`` and ``force`` are for ``APPLY``.

        All but ``JSON`` are sent again when the answer is lost: they say what is to be, so a
        second time changes nothing, unless the body names a version (then ``Conflict.retried``).
        """
        query = _given(fieldManager=field_manager, force="true" if force else "")
        path = _with(resource.path(namespace, name, sub), query)
        repeat = Resend.UNSENT_ONLY if how is PatchKind.JSON else Resend.SAFE
        sent = body if isinstance(body, bytes) else _encode(body)
        return decode(await self._send("PATCH", path, sent, repeat, content_type=how.value), type)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> None:
        """Delete an object, with preconditions where given.

        Sent again when the answer is lost, if ``uid`` is given, as it can then hit no other object.

        Args:
            resource: its kind.
            name: of the object.
            namespace: where the kind has one.
            uid: delete this very object. Raises ``Conflict`` if another has its name.
            resource_version: delete it only in this version. Raises ``Conflict``.
            grace_seconds: for a pod to end in; by default the pod's own.
            propagation: ``Background``, ``Foreground`` or ``Orphan``.
        """
        conditions = _given(uid=uid, resourceVersion=resource_version)
        options: dict[str, Any] = {"preconditions": conditions} if conditions else {}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        body = _encode({"apiVersion": "v1", "kind": "DeleteOptions", **options})
        repeat = Resend.SAFE if uid else Resend.UNSENT_ONLY
        await self._send("DELETE", resource.path(namespace, name), body, repeat)

    async def post_sub(
        self, resource: Resource, name: str, sub: str, body: Any, namespace: str = ""
    ) -> bytes:
        """Post to a sub-resource, as ``binding`` or ``eviction``; gives the answer undecoded.

        Sent again when the answer is lost. A binding done by the earlier try is then a ``Conflict``
        with ``retried``; a PodDisruptionBudget's no is ``TooManyRequests``. The server gives each
        try up after ``GIVEN_UP_SECONDS`` (``Unavailable``), so that it can not come much later.
        """
        path = _with(resource.path(namespace, name, sub), {"timeout": f"{GIVEN_UP_SECONDS}s"})
        sent = body if isinstance(body, bytes) else _encode(body)
        return await self._send("POST", path, sent, Resend.SAFE)

    async def stream_text(
        self,
        resource: Resource,
        name: str,
        sub: str,
        namespace: str = "",
        query: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[bytes]:
        """The body of a sub-resource, as it arrives; ``log`` with ``{"follow": "true"}``.

        Close the generator to end it early. Raises ``NotFound``, and ``Unavailable`` when the
        connection breaks.
        """
        path = _with(resource.path(namespace, name, sub), query or {})
        async with aclosing(self._sender.stream(HttpRequest("GET", path, accept="*/*"))) as chunks:
            async for chunk in chunks:
                yield chunk

    async def open_websocket(
        self,
        resource: Resource,
        name: str,
        sub: str,
        namespace: str = "",
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        protocol: str = "v5.channel.k8s.io",
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket to a sub-resource such as ``exec``; see ``execution``."""
        path = f"{resource.path(namespace, name, sub)}?{urlencode(query)}"
        return await self._sender.websocket(path, protocol)

    async def watch(
        self,
        resource: Resource,
        version: str,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        seconds: int = 300,
    ) -> AsyncGenerator[bytes]:
        """The bytes of a watch from a version on, as they come; ``feed`` makes changes of them.

        Raises ``Gone`` when the version is too old, and ``Unavailable`` when the connection breaks.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
            **_given(labelSelector=label_selector, fieldSelector=field_selector),
        }
        request = HttpRequest("GET", _with(resource.path(namespace), query))
        async with aclosing(self._sender.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def raw(self, method: str, path: str, body: Any = None) -> bytes:
        """A request to a path of its own, as ``/version``; sent again only if it is a GET."""
        sent = None if body is None else _encode(body)
        repeat = Resend.SAFE if method == "GET" else Resend.UNSENT_ONLY
        return await self._send(method, path, sent, repeat)

    async def close(self) -> None:
        """Close all connections."""
        await self._sender.close()

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        repeat: Resend = Resend.SAFE,
        content_type: str = "application/json",
    ) -> bytes:
        return await self._sender.send(HttpRequest(method, path, body, content_type), repeat)


def _given(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _with(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _is_named(obj: Any) -> bool:
    if isinstance(obj, bytes):
        return False
    metadata = obj.get("metadata", {}) if isinstance(obj, Mapping) else obj.metadata
    name = metadata.get("name") if isinstance(metadata, Mapping) else metadata.name
    return bool(name)
