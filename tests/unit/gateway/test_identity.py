"""A task is known by the scheduler's word, within its project, and for a short while."""

from collections.abc import Callable
from typing import Any, cast

import aiohttp
import pytest

from carrel.client.transport import Transport
from carrel.errors import ApiError, Unreachable
from carrel_hub.gateway.identity import (
    REMEMBER_SECONDS,
    GatewayPrincipal,
    HubUnavailable,
    TokenReviewer,
)
from carrel_hub.gateway.settings import GatewaySettings

TOKEN = "ct1.uid-1.signature"


class Scheduler:
    """Answers who comes; ``answer`` may raise."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        self.answer, self.asked = answer, list[Any]()

    async def send(self, method: str, path: str, *, body: Any, repeatable: bool) -> bytes:
        assert (method, path, repeatable) == ("POST", "/gateway/tasks", True)
        self.asked.append(body)
        return self.answer()


class World:
    def __init__(self, answer: Callable[[], bytes]) -> None:
        self.now, self.scheduler = 0.0, Scheduler(answer)
        self.tokens = TokenReviewer(
            cast("GatewaySettings", None),
            cast("aiohttp.ClientSession", None),
            lambda: self.now,
            cast("Transport", self.scheduler),
        )

    async def person(self) -> GatewayPrincipal | None:
        return await self.tokens.principal(TOKEN)


async def test_a_task_comes_in_its_users_name_and_within_its_project() -> None:
    world = World(lambda: b'{"user": "ada", "project": "vision", "name": "batch"}')
    person = await world.person()
    assert person == GatewayPrincipal(
        "ada", is_user=True, projects=frozenset({"vision"}), scopes=frozenset(), within="vision"
    )
    assert person.may_use("gateway")
    await world.person()
    assert world.scheduler.asked == [{"token": TOKEN}]
    world.now += REMEMBER_SECONDS
    await world.person()
    assert len(world.scheduler.asked) == 2


async def test_a_task_that_is_not_at_work_is_nobody() -> None:
    def gone() -> bytes:
        raise ApiError(404, "not_found")

    assert await World(gone).person() is None


@pytest.mark.parametrize("error", [ApiError(503, "starting"), Unreachable("away")])
async def test_nobody_is_taken_for_a_stranger_while_the_scheduler_is_away(error: Exception) -> None:
    def away() -> bytes:
        raise error

    with pytest.raises(HubUnavailable):
        await World(away).person()
