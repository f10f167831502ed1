"""What the server knows of its workspace, against the fake scheduler (a Unix socket)."""

from collections.abc import AsyncIterator, Iterator

import pytest

from carrel.client import AsyncClient
from carrel.errors import ApiError, CarrelError
from carrel.testing import FakeScheduler
from carrel.workspace.activity import Activity
from carrel.workspace.desk import PROJECT_AGE, Desk, Surroundings

LIMITS = {"stops_at": 2000.0, "stops_because": "TimeLimit", "warn_at": 1400.0, "may_extend": True}
ALIVE = Activity(at=1000.0, busy_since=None, last_input_at=990.0, kernels=1, terminals=0)


@pytest.fixture
def scheduler() -> Iterator[FakeScheduler]:
    with FakeScheduler(people={"ada": ["vision"]}, now=lambda: 1000.0) as fake:
        yield fake


@pytest.fixture
async def desk(scheduler: FakeScheduler) -> AsyncIterator[Desk]:
    async with AsyncClient(scheduler.url, scheduler.token("ada")) as client:
        yield Desk(client, Surroundings("ada", "", "/console/"), lambda: 1000.0)


def start(scheduler: FakeScheduler, server_name: str = "") -> None:
    scheduler.submit("vision", "desk", kind="workspace", server_name=server_name)
    scheduler.run("vision", "desk")
    scheduler.status("vision", "desk", limits=LIMITS)


async def test_sign_of_life_brings_limits(scheduler: FakeScheduler, desk: Desk) -> None:
    start(scheduler)
    await desk.tell(ALIVE)
    view = await desk.view()
    assert view["limits"]["stops_at"] == 2000.0
    assert (view["name"], view["project"]["name"], view["now"]) == ("desk", "vision", 1000.0)
    assert (view["trouble"], view["console_url"]) == ("", "/console/")


async def test_extension(scheduler: FakeScheduler, desk: Desk) -> None:
    start(scheduler)
    await desk.tell(ALIVE)
    await desk.extend()
    assert (await desk.view())["limits"]["stops_at"] == 5600.0


async def test_another_server_of_the_same_person_is_not_this_one(
    scheduler: FakeScheduler, desk: Desk
) -> None:
    start(scheduler, server_name="second")
    with pytest.raises(ApiError):
        await desk.tell(ALIVE)
    view = await desk.view()
    assert view["limits"] is None
    assert "no such workspace" in view["trouble"]


async def test_last_known_limits_stay_while_the_scheduler_is_away(
    scheduler: FakeScheduler, desk: Desk
) -> None:
    start(scheduler)
    await desk.tell(ALIVE)
    scheduler.fail_next(404)
    with pytest.raises(CarrelError):
        await desk.tell(ALIVE)
    view = await desk.view()
    assert view["limits"]["stops_at"] == 2000.0
    assert view["trouble"]
    await desk.tell(ALIVE)
    assert (await desk.view())["trouble"] == ""


async def test_a_warning_says_whose_limit_it_is_while_the_scheduler_is_away(
    scheduler: FakeScheduler,
) -> None:
    start(scheduler)
    clock = [1000.0]
    async with AsyncClient(scheduler.url, scheduler.token("ada")) as client:
        desk = Desk(client, Surroundings("ada", "", "/console/"), lambda: clock[0])
        await desk.view()
        clock[0] += PROJECT_AGE + 1.0
        scheduler.fail_next(404)
        view = await desk.view()
    assert view["project"]["name"] == "vision"
    assert view["trouble"]


async def test_project_is_asked_for_rarely(scheduler: FakeScheduler, desk: Desk) -> None:
    start(scheduler)
    for _ in range(3):
        await desk.view()
    assert scheduler.requests.count(("GET", "/projects/vision")) == 1
