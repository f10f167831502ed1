"""A server of the tests: objects with versions, watches that are cut as the test wants."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from carrel_scheduler.kube.client import Listing
from carrel_scheduler.kube.errors import Gone, KubeError
from carrel_scheduler.kube.metadata import Metadata, PartialObject
from carrel_scheduler.kube.resources import Resource


def thing(name: str, version: int) -> PartialObject:
    return PartialObject(Metadata(name=name, uid=name, resource_version=str(version)))


class ScriptedServer:
    """Keeps a log of events as an API server does; ``compact`` forgets its beginning."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, PartialObject] = {}
        self.log: list[tuple[int, bytes]] = []
        self.known_from = 0
        self.lists = 0
        self.watches: list[str] = []
        self.refusals: list[KubeError] = []
        self._open: list[asyncio.Queue[bytes | Exception | None]] = []

    def put(self, name: str) -> None:
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = thing(name, self.version)
        self._say(kind, self.objects[name])

    def delete(self, name: str) -> None:
        self.version += 1
        del self.objects[name]
        self._say("DELETED", thing(name, self.version))

    def bookmark(self) -> None:
        self._send(_line("BOOKMARK", PartialObject(Metadata(resource_version=str(self.version)))))

    def compact(self) -> None:
        self.known_from = self.version

    def say_error(self, code: int = 410) -> None:
        self._send(_line("ERROR", {"code": code, "reason": "Expired", "message": "too old"}))

    def cut(self, part: bytes = b"", error: Exception | None = None) -> None:
        """End every watch: after a part of an event, with an error or as a server does."""
        for queue in self._open:
            if part:
                queue.put_nowait(part)
            queue.put_nowait(error)
        self._open.clear()

    def _say(self, kind: str, found: PartialObject) -> None:
        line = _line(kind, found)
        self.log.append((self.version, line))
        self._send(line)

    def _send(self, line: bytes) -> None:
        for queue in self._open:
            queue.put_nowait(line)

    async def list(self, resource: Resource, type: Any, *_: str) -> Listing[Any]:  # noqa: A002
        self.lists += 1
        if self.refusals:
            raise self.refusals.pop(0)
        return Listing(list(self.objects.values()), str(self.version))

    async def watch(self, resource: Resource, version: str, *_: str | int) -> AsyncGenerator[bytes]:
        self.watches.append(version)
        if self.refusals:
            raise self.refusals.pop(0)
        if int(version) < self.known_from:
            raise Gone(410, "Expired", "too old")
        queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._open.append(queue)
        for at, line in self.log:
            if at > int(version):
                queue.put_nowait(line)
        while (chunk := await queue.get()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def _line(kind: str, obj: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"
