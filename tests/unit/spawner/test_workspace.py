"""A workspace at the scheduler: asked for, queued, claimed, stopped; and the waits of a start."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel.models import Workload
from carrel.testing import FakeScheduler
from carrel_spawner import watch
from carrel_spawner.options import WorkspaceChoice
from carrel_spawner.start import ProgressLog, StartFailed, until_placed
from carrel_spawner.watch import close_watch
from carrel_spawner.workspace import Launch, Workspace

CHOICE = WorkspaceChoice("vision", 1, 0.5, 1.0)
LAUNCH = Launch(["run"], {"A": "1"}, {"TOKEN": "secret"}, 4711)


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    people = {"ada": ["vision", "speech"], "linus": ["vision"]}
    with FakeScheduler(people, admins=["spawner"]) as running:
        yield running


@pytest.fixture
async def client(fake: FakeScheduler) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(fake.url, fake.token("spawner")) as one:
        yield one
        await close_watch(one)


@pytest.fixture
def place(client: AsyncClient) -> Workspace:
    return Workspace(client, "ada")


async def placed(
    place: Workspace, made: Workload, progress_log: ProgressLog, settle: float
) -> None:
    await until_placed(place.client, made, progress_log, projects=["vision"], settle_seconds=settle)


async def test_a_request_is_a_workspace_of_the_user(fake: FakeScheduler, place: Workspace) -> None:
    made = await place.request(CHOICE, LAUNCH)
    assert (made.name, made.spec.kind, made.spec.user) == ("workspace-ada", "workspace", "ada")
    assert (made.spec.gpus, made.spec.cpu_millicores, made.spec.port) == (1, 500, 4711)
    assert made.spec.restart_policy == "never"
    assert not made.spec.hold_for_claim
    assert fake.secrets("vision", "workspace-ada") == {"TOKEN": "secret"}
    assert "secret" not in str(fake.workload("vision", "workspace-ada"))


async def test_an_earlier_workspace_makes_room(fake: FakeScheduler, place: Workspace) -> None:
    first = await place.request(CHOICE, LAUNCH)
    fake.run("vision", "workspace-ada")
    second = await place.request(CHOICE, LAUNCH)
    assert first.uid != second.uid
    moved = await place.request(WorkspaceChoice("speech", 0, 1.0, 1.0), LAUNCH)
    assert [one.uid for one in await place.all()] == [moved.uid]


async def test_what_is_at_rest_elsewhere_stays_as_a_record(
    fake: FakeScheduler, place: Workspace
) -> None:
    await place.request(CHOICE, LAUNCH)
    fake.stop("vision", "workspace-ada", "Idle", "Idle for too long.")
    await place.request(WorkspaceChoice("speech", 0, 1.0, 1.0), LAUNCH)
    assert {one.project for one in await place.all()} == {"vision", "speech"}


async def test_workspaces_of_others_and_other_servers_are_left_alone(
    client: AsyncClient, place: Workspace
) -> None:
    await Workspace(client, "linus").request(CHOICE, LAUNCH)
    await Workspace(client, "ada", "lab").request(CHOICE, LAUNCH)
    await place.request(CHOICE, LAUNCH)
    await place.withdraw(await client.get_workload("vision", "workspace-ada"))
    names = {one.name for one in await client.list_workloads()}
    assert names == {"workspace-linus", "workspace-ada--lab"}


async def test_the_queue_and_the_claim(fake: FakeScheduler, place: Workspace) -> None:
    assert await place.waiting() is None
    queued = await place.enqueue(CHOICE)
    assert queued.spec.hold_for_claim
    found = await place.waiting()
    assert found is not None
    assert found.uid == queued.uid
    claim = WorkspaceChoice("vision", 1, 0.5, 1.0, claim="workspace-ada")
    assert await place.held_place(claim) is None  # not its turn yet
    fake.status("vision", "workspace-ada", phase="starting")
    held = await place.held_place(claim)
    assert held is not None
    claimed = await place.claim(held, LAUNCH)
    assert claimed.spec.command == ["run"]
    assert await place.waiting() is None


async def test_somebody_elses_place_cannot_be_claimed(
    fake: FakeScheduler, client: AsyncClient, place: Workspace
) -> None:
    await Workspace(client, "linus").enqueue(CHOICE)
    fake.status("vision", "workspace-linus", phase="starting")
    assert (
        await place.held_place(WorkspaceChoice("vision", 1, 1, 1, claim="workspace-linus")) is None
    )
    assert await place.held_place(WorkspaceChoice("vision", 1, 1, 1, claim="nothing")) is None


async def test_stopping_keeps_the_record(fake: FakeScheduler, place: Workspace) -> None:
    await place.request(CHOICE, LAUNCH)
    fake.run("vision", "workspace-ada")
    await place.stop("vision")
    assert fake.workload("vision", "workspace-ada")["status"]["phase"] == "stopped"
    await Workspace(place.client, "nobody").stop("vision")  # nothing there is no error


async def test_a_wait_ends_when_it_runs(fake: FakeScheduler, place: Workspace) -> None:
    made = await place.request(CHOICE, LAUNCH)
    progress_log = ProgressLog()
    waiting = asyncio.create_task(placed(place, made, progress_log, 0.01))
    await asyncio.sleep(0)
    why = {"token": "WaitsForRoom", "cls": "not-now", "sentence": "Taking back 1 GPU.",
           "data": {"nominated": True}}  # fmt: skip
    fake.status("vision", "workspace-ada", reason=why)
    async for event in progress_log.follow():
        if event["message"] == "Taking back 1 GPU.":
            break
    assert not waiting.done()
    fake.run("vision", "workspace-ada")
    await asyncio.wait_for(waiting, 60)


async def test_a_wait_ends_with_a_refusal(fake: FakeScheduler, place: Workspace) -> None:
    made = await place.request(CHOICE, LAUNCH)
    fake.wait("vision", "workspace-ada", "Full.", why="QuotaUsed")
    with pytest.raises(StartFailed) as caught:
        await placed(place, made, ProgressLog(), 0.01)
    assert caught.value.status.because == "quota"


async def test_a_passing_refusal_is_not_believed(
    fake: FakeScheduler, place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await place.request(CHOICE, LAUNCH)
    fake.wait("vision", "workspace-ada", "Full.", why="QuotaUsed")
    sleep, settle, refused = asyncio.sleep, 4711.0, []

    async def meanwhile(seconds: float) -> None:
        if seconds != settle:
            await sleep(seconds)
            return
        refused.append(seconds)
        fake.run("vision", "workspace-ada")

    monkeypatch.setattr(asyncio, "sleep", meanwhile)
    await asyncio.wait_for(placed(place, made, ProgressLog(), settle), 60)
    assert refused == [settle]


async def test_changes_go_on_over_a_broken_stream(fake: FakeScheduler, place: Workspace) -> None:
    await place.request(CHOICE, LAUNCH)
    seen = watch.changes(place.client, "vision", "workspace-ada", tick_seconds=0.05)
    assert (await anext(seen)).status.phase == "pending"
    fake.end_streams()
    fake.run("vision", "workspace-ada")
    async with asyncio.timeout(60):
        while (await anext(seen)).status.phase != "running":
            pass
    await place.withdraw(await place.client.get_workload("vision", "workspace-ada"))

    async def rest() -> None:
        async for _ in seen:
            pass

    with pytest.raises(ApiError):
        await asyncio.wait_for(rest(), 60)


async def test_waiting_for_the_end_is_bounded(place: Workspace) -> None:
    await place.request(CHOICE, LAUNCH)
    with pytest.raises(TimeoutError):
        await watch.wait_gone(place.client, "vision", "workspace-ada", 0.2)
    with pytest.raises(TimeoutError):
        await watch.wait_at_rest(place.client, "vision", "workspace-ada", 0.2)
