"""Reading server-sent events in tests."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from contract.api.service import ROOT, TIMEOUT_SECONDS, ApiHarness


@dataclass(slots=True)
class Message:
    event: str
    id: int
    data: Any


class Listener:
    """An open stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.comments = 0
        self._rest = b""

    async def next(self) -> Message | None:
        """The next message, or ``None`` at the end; comments are counted."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                block, found, rest = self._rest.partition(b"\n\n")
                if not found:
                    piece = await self.response.content.readany()
                    if not piece:
                        return None
                    self._rest += piece
                    continue
                self._rest = rest
                if block.startswith(b":"):
                    self.comments += 1
                    continue
                fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
                return Message(
                    fields[b"event"].decode(), int(fields[b"id"]), json.loads(fields[b"data"])
                )

    async def names(self, count: int) -> list[str]:
        """The workloads of the next messages."""
        found = [await self.next() for _ in range(count)]
        return [f"{one.data['project']}/{one.data['name']}" for one in found if one]


@asynccontextmanager
async def listening(
    harness: ApiHarness, path: str, who: str, headers: dict[str, str] | None = None
) -> AsyncIterator[Listener]:
    """An open stream of somebody."""
    everything = {"Authorization": f"Bearer {who}-token", **(headers or {})}
    async with harness.session.get(harness.url + ROOT + path, headers=everything) as response:
        assert response.status == 200, await response.text()
        yield Listener(response)
