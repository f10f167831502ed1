"""The relay: says that something visible changed, at most twice a second, and stops when left."""

import asyncio
import time

import aiohttp
import pytest

from carrel_hub.console.handlers.events import SHORTEST_PAUSE_SECONDS
from contract.console.site import Site, Visitor

TIMEOUT_SECONDS = 60.0


class Listener:
    """Reads the relay and counts its messages."""

    def __init__(self, visitor: Visitor, query: str = "") -> None:
        self.visitor, self.query = visitor, query
        self.changes: list[float] = []
        self.told = asyncio.Event()
        self.connected = asyncio.Event()

    async def run(self) -> None:
        url = self.visitor.site.url(f"events{self.query}").replace("http", "ws", 1)
        headers = {"Sec-Fetch-Mode": "websocket", "Origin": self.visitor.site.origin}
        async with self.visitor.session.ws_connect(url, headers=headers) as stream:
            self.connected.set()
            async for message in stream:
                if message.data == "alive":  # that the scheduler answers
                    continue
                assert message.data == "change"
                self.changes.append(time.monotonic())
                self.told.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(self.changes) < count:
                self.told.clear()
                await self.told.wait()


async def listening(visitor: Visitor, query: str = "") -> tuple[Listener, asyncio.Task[None]]:
    await visitor.get()
    listener = Listener(visitor, query)
    task = asyncio.create_task(listener.run())
    await asyncio.wait_for(listener.connected.wait(), TIMEOUT_SECONDS)
    return listener, task


async def stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_many_changes_are_few_messages(site: Site) -> None:
    began = time.monotonic()
    async with Visitor(site, "ada") as visitor:
        listener, task = await listening(visitor)
        await listener.until(1)  # what is there at the beginning
        seen = len(listener.changes)
        for step in range(40):
            site.scheduler.report("vision", "train-8", step=step, metrics={"loss": 1.0})
        await listener.until(seen + 1)
        await asyncio.sleep(3 * SHORTEST_PAUSE_SECONDS)
        # However late it is heard: between two that are told there is a pause.
        most = 1 + (time.monotonic() - began) / SHORTEST_PAUSE_SECONDS
        assert len(listener.changes) <= most
        await stopped(task)


async def test_foreign_work_is_not_told(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        listener, task = await listening(visitor, "?project=vision&name=big-2")
        await listener.until(1)  # what is there at the beginning
        site.scheduler.status("speech", "align-9", queue_position=1)
        site.scheduler.status("vision", "train-8", borrowed=False)
        await asyncio.sleep(0.8)
        assert len(listener.changes) == 1
        site.scheduler.status("vision", "big-2", queue_position=1)
        await listener.until(2)
        await stopped(task)


async def test_a_browser_that_leaves_takes_its_stream_with_it(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        listener, task = await listening(visitor)
        streams = site.scheduler._state.listeners
        await listener.until(1)
        assert streams
        await stopped(task)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while streams:
                site.scheduler.status("vision", "train-8", borrowed=False)
                await asyncio.sleep(0.05)


async def test_a_refused_stream_ends(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        listener, task = await listening(visitor, "?project=speech&name=align-9")
        await asyncio.wait_for(task, TIMEOUT_SECONDS)
        assert listener.changes == []


async def test_strangers_and_pages_from_elsewhere_get_no_stream(site: Site) -> None:
    async with Visitor(site, "ada") as visitor:
        listener = Listener(visitor)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await listener.run()
        await visitor.get()
        url = site.url("events").replace("http", "ws", 1)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await visitor.session.ws_connect(url, headers={"Origin": "http://elsewhere.example"})
