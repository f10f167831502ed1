"""What the server knows of its workspace, against the fake scheduler (a Unix socket)."""

from collections.abc import AsyncIterator, Iterator

import pytest

from carrel.client import AsyncClient
from carrel.errors import ApiError, CarrelError
from carrel.testing import FakeScheduler
from carrel.workspace.activity import ActivityReading
from carrel.workspace.status import PROJECT_AGE, ServerIdentity, WorkspaceStatus

LIMITS = {"stops_at": 2000.0, "stops_because": "TimeLimit", "warn_at": 1400.0, "may_extend": True}
ALIVE = ActivityReading(at=1000.0, busy_since=None, last_input_at=990.0, kernels=1, terminals=0)


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler(people={"ada": ["vision"]}, now=lambda: 1000.0) as fake:
        yield fake


@pytest.fixture
async def status(scheduler: FakeScheduler) -> AsyncIterator[WorkspaceStatus]:
    async with AsyncClient(scheduler.url, scheduler.token("ada")) as client:
        yield WorkspaceStatus(client, ServerIdentity("ada", "", "/console/"), lambda: 1000.0)


def start(scheduler: FakeScheduler, server_name: str = "") -> None:
    scheduler.submit("vision", "desk", kind="workspace", server_name=server_name)
    scheduler.run("vision", "desk")
    scheduler.status("vision", "desk", limits=LIMITS)


async def test_sign_of_life_brings_limits(
    scheduler: FakeScheduler, status: WorkspaceStatus
) -> None:
    start(scheduler)
    await status.report(ALIVE)
    view = await status.view()
    assert view["limits"]["stops_at"] == 2000.0
    assert (view["name"], view["project"]["name"], view["now"]) == ("desk", "vision", 1000.0)
    assert (view["trouble"], view["console_url"]) == ("", "/console/")


async def test_extension(scheduler: FakeScheduler, status: WorkspaceStatus) -> None:
    start(scheduler)
    await status.report(ALIVE)
    await status.extend()
    assert (await status.view())["limits"]["stops_at"] == 5600.0


async def test_another_server_of_the_same_person_is_not_this_one(
    scheduler: FakeScheduler, status: WorkspaceStatus
) -> None:
    start(scheduler, server_name="second")
    with pytest.raises(ApiError):
        await status.report(ALIVE)
    view = await status.view()
    assert view["limits"] is None
    assert "no such workspace" in view["trouble"]


async def test_last_known_limits_stay_while_the_scheduler_is_away(
    scheduler: FakeScheduler, status: WorkspaceStatus
) -> None:
    start(scheduler)
    await status.report(ALIVE)
    scheduler.fail_next(404)
    with pytest.raises(CarrelError):
        await status.report(ALIVE)
    view = await status.view()
    assert view["limits"]["stops_at"] == 2000.0
    assert view["trouble"]
    await status.report(ALIVE)
    assert (await status.view())["trouble"] == ""


async def test_a_warning_says_whose_limit_it_is_while_the_scheduler_is_away(
    scheduler: FakeScheduler,
) -> None:
    start(scheduler)
    clock = [1000.0]
    async with AsyncClient(scheduler.url, scheduler.token("ada")) as client:
        status = WorkspaceStatus(client, ServerIdentity("ada", "", "/console/"), lambda: clock[0])
        await status.view()
        clock[0] += PROJECT_AGE + 1.0
        scheduler.fail_next(404)
        view = await status.view()
    assert view["project"]["name"] == "vision"
    assert view["trouble"]


async def test_project_is_asked_for_rarely(
    scheduler: FakeScheduler, status: WorkspaceStatus
) -> None:
    start(scheduler)
    for _ in range(3):
        await status.view()
    assert scheduler.requests.count(("GET", "/projects/vision")) == 1


async def test_project_is_asked_for_again_once_its_work_has_changed(
    scheduler: FakeScheduler, status: WorkspaceStatus
) -> None:
    start(scheduler)
    await status.view()
    asked = ("GET", "/projects/vision")
    status.changed("speech")
    await status.view()
    assert scheduler.requests.count(asked) == 1
    status.changed("vision")
    await status.view()
    assert scheduler.requests.count(asked) == 2
