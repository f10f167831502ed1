"""Following one's own work, against the fake scheduler (a Unix socket)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from carrel.client import AsyncClient
from carrel.testing import FakeScheduler
from carrel.workspace.notifications import WorkFollower


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler(people={"ada": ["vision"]}) as fake:
        yield fake


@pytest.fixture
async def watch(scheduler: FakeScheduler) -> AsyncIterator[WorkFollower]:
    async with AsyncClient(scheduler.url, scheduler.token("ada")) as client:
        made = WorkFollower(client, "", lambda: 1000.0)
        yield made
        await made.stop()


async def changed(watch: WorkFollower, seen: str) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            found = await watch.view(seen)
            if "jobs" in found:
                return found
            await asyncio.sleep(0.01)


async def test_first_answer_has_work_and_no_news(
    scheduler: FakeScheduler, watch: WorkFollower
) -> None:
    scheduler.submit("vision", "a")
    first = await watch.view()
    assert [job["name"] for job in first["jobs"]] == ["a"]
    assert first["news"] == []
    assert await watch.view(first["seen"]) == {"seen": first["seen"]}


async def test_later_answers_have_what_is_new(
    scheduler: FakeScheduler, watch: WorkFollower
) -> None:
    scheduler.submit("vision", "a")
    first = await watch.view()
    scheduler.run("vision", "a")
    scheduler.status("vision", "a", first_started_at=1000.0)
    second = await changed(watch, first["seen"])
    assert [one["text"] for one in second["news"]] == ["a started on node-1."]
    third = await watch.view(second["seen"])
    assert "news" not in third or third["news"] == []


async def test_it_tells_whose_use_has_changed(scheduler: FakeScheduler) -> None:
    told = asyncio.Queue[str]()
    async with AsyncClient(scheduler.url, scheduler.token("ada")) as client:
        watch = WorkFollower(client, "", lambda: 1000.0, told.put_nowait)
        await watch.view()
        scheduler.submit("vision", "a")
        assert await asyncio.wait_for(told.get(), 30) == "vision"
        await watch.stop()


async def test_nobody_asked_nothing_was_asked(
    scheduler: FakeScheduler, watch: WorkFollower
) -> None:
    await asyncio.sleep(0)
    assert scheduler.requests == []


async def test_refusal_is_said(scheduler: FakeScheduler) -> None:
    async with AsyncClient(scheduler.url, "nobody's") as client:
        watch = WorkFollower(client, "ada", lambda: 1000.0)
        assert "token" in (await watch.view())["trouble"]
        await watch.stop()
