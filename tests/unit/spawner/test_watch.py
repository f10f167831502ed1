"""The Hub's one stream of workspaces: what it remembers, whom it tells, how it comes back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing

import pytest

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel.models import Workload
from carrel.testing import FakeScheduler
from carrel_spawner.options import WorkspaceChoice
from carrel_spawner.watch import WorkspaceWatch, close_watch, watch_of
from carrel_spawner.workspace import Launch, Workspace

CHOICE = WorkspaceChoice("vision", 0, 0.5, 1.0)
LAUNCH = Launch(["run"], {}, {}, 4711)
NAME = "workspace-ada"


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    with FakeScheduler({"ada": ["vision"], "linus": ["vision"]}, admins=["spawner"]) as running:
        yield running


@pytest.fixture
async def client(fake: FakeScheduler) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(fake.url, fake.token("spawner")) as one:
        yield one
        await close_watch(one)


@pytest.fixture
async def workspace(client: AsyncClient) -> Workload:
    return await Workspace(client, "ada").request(CHOICE, LAUNCH)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


def heard(feed: WorkspaceWatch, workspace: Workload) -> str:
    found = feed.latest(workspace.uid)
    return found.status.phase if found else ""


async def test_it_remembers_what_was_last_said(
    fake: FakeScheduler, client: AsyncClient, workspace: Workload
) -> None:
    feed = watch_of(client)
    assert feed is watch_of(client)
    await until(lambda: heard(feed, workspace) == "pending")
    fake.run("vision", NAME)
    await until(lambda: heard(feed, workspace) == "running")
    await Workspace(client, "ada").withdraw(workspace)
    await until(lambda: feed.latest(workspace.uid) is None)


async def test_a_listener_hears_of_its_own_workspace_only(
    fake: FakeScheduler, client: AsyncClient, workspace: Workload
) -> None:
    other = await Workspace(client, "linus").request(CHOICE, LAUNCH)
    async with aclosing(watch_of(client).changes(workspace, tick_seconds=600)) as mine:
        assert await anext(mine) is workspace
        fake.run("vision", other.name)
        fake.run("vision", NAME)
        async with asyncio.timeout(60):
            async for seen in mine:
                assert seen.uid == workspace.uid
                if seen.status.phase == "running":
                    break


async def test_who_comes_late_is_told_what_happened_before(
    fake: FakeScheduler, client: AsyncClient, workspace: Workload
) -> None:
    feed = watch_of(client)
    fake.run("vision", NAME)
    await until(lambda: heard(feed, workspace) == "running")
    async with aclosing(feed.changes(workspace, tick_seconds=600)) as late, asyncio.timeout(60):
        assert [(await anext(late)).status.phase, (await anext(late)).status.phase] == [
            "pending",
            "running",
        ]


async def test_a_removal_ends_a_listener_at_once(client: AsyncClient, workspace: Workload) -> None:
    feed = watch_of(client)
    await until(lambda: heard(feed, workspace) == "pending")

    async def listen() -> None:
        async with aclosing(feed.changes(workspace, tick_seconds=600)) as seen:
            async for _ in seen:
                await Workspace(client, "ada").withdraw(workspace)

    with pytest.raises(ApiError):
        await asyncio.wait_for(listen(), 60)


async def test_it_goes_on_after_a_break(
    fake: FakeScheduler, client: AsyncClient, workspace: Workload
) -> None:
    feed = watch_of(client)
    await until(lambda: heard(feed, workspace) == "pending")
    fake.end_streams()
    fake.run("vision", NAME)
    await until(lambda: heard(feed, workspace) == "running")


async def test_many_listeners_take_one_connection(
    fake: FakeScheduler, client: AsyncClient, workspace: Workload
) -> None:
    feed = watch_of(client)
    listeners = [feed.changes(workspace, tick_seconds=600) for _ in range(5)]
    for one in listeners:
        await anext(one)
    await until(lambda: heard(feed, workspace) == "pending")
    for one in listeners:
        await one.aclose()
    streams = [path for _, path in fake.requests if path.endswith("/events")]
    assert len(streams) == 1
