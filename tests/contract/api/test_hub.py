"""Identity and membership over a Hub's REST API, against a small Hub on loopback."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from carrel_scheduler.api.principals import hub, identity
from carrel_scheduler.api.principals.hub import HubIdentity, HubMembership
from carrel_scheduler.api.principals.identity import IdentityUnavailable, UnknownHubUser
from carrel_scheduler.api.principals.members import REMEMBER_SECONDS

SERVICE = "service-token"


class SmallHub:
    """The parts of JupyterHub's API that Carrel uses, answering as JupyterHub 6 does."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Any]] = {
            "ada-token": {
                "name": "ada",
                "kind": "user",
                "groups": ["project-vision", "staff"],
                "scopes": [identity.USE, "self"],
            },
            "desk-token": {"name": "ada", "kind": "user", "scopes": [f"{identity.USE}!user=ada"]},
            "spawner-token": {"name": "spawner", "kind": "service", "scopes": [identity.SPAWN]},
            "sly-token": {"name": "sly", "kind": "user", "scopes": [f"{identity.ADMIN}!user=sly"]},
        }
        self.groups: dict[str, list[str]] = {"project-vision": ["bea", "ada"]}
        self.users = {"ada", "bea", "dora"}
        self.down = 0
        self.asked: list[str] = []
        self.url = ""

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._middleware])
        app.router.add_get("/hub/api/user", self._user)
        app.router.add_get("/hub/api/users/{name}", self._named)
        for method in ("GET", "POST", "DELETE"):
            app.router.add_route(method, "/hub/api/groups/{group}", self._group)
        for method in ("POST", "DELETE"):
            app.router.add_route(method, "/hub/api/groups/{group}/users", self._group_users)
        return app

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if self.down:
            return web.Response(status=self.down)
        if request.path != "/hub/api/user" and self._token(request) != SERVICE:
            return web.json_response({}, status=403)
        answer = await handler(request)
        assert isinstance(answer, web.StreamResponse)
        return answer

    @staticmethod
    def _token(request: web.Request) -> str:
        return request.headers["Authorization"].removeprefix("token ")

    async def _user(self, request: web.Request) -> web.Response:
        await asyncio.sleep(0.01)
        model = self.models.get(self._token(request))
        return web.json_response(model or {}, status=200 if model else 403)

    async def _named(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        groups = [group for group, users in self.groups.items() if name in users]
        status = 200 if name in self.users else 404
        return web.json_response({"name": name, "groups": groups}, status=status)

    async def _group(self, request: web.Request) -> web.Response:
        name = request.match_info["group"]
        if request.method == "POST":
            if name in self.groups:
                return web.json_response({}, status=409)
            self.groups[name] = []
            return web.json_response({}, status=201)
        if name not in self.groups:
            return web.json_response({}, status=404)
        if request.method == "DELETE":
            del self.groups[name]
            return web.Response(status=204)
        return web.json_response({"name": name, "users": self.groups[name]})

    async def _group_users(self, request: web.Request) -> web.Response:
        users = (await request.json())["users"]
        group = self.groups.get(request.match_info["group"])
        if group is None:
            return web.json_response({}, status=404)
        if not set(users) <= self.users:
            return web.json_response({}, status=400)
        if request.method == "POST":
            group += users
        else:
            group[:] = [user for user in group if user not in users]
        return web.json_response({})


@pytest.fixture
async def small_hub() -> AsyncIterator[SmallHub]:
    found = SmallHub()
    runner = web.AppRunner(found.application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    found.url = f"http://127.0.0.1:{port}/hub/api/"
    yield found
    await runner.cleanup()


class Ticks:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def clock() -> Ticks:
    return Ticks()


@pytest.fixture
async def who(small_hub: SmallHub, clock: Ticks) -> AsyncIterator[HubIdentity]:
    found = HubIdentity(small_hub.url, SERVICE, clock=clock)
    yield found
    await found.close()


@pytest.fixture
async def members(small_hub: SmallHub, clock: Ticks) -> AsyncIterator[HubMembership]:
    found = HubMembership(small_hub.url, SERVICE, clock=clock)
    yield found
    await found.close()


async def test_a_token_is_its_user_with_groups_and_scopes(who: HubIdentity) -> None:
    ada = await who.user_for_token("ada-token")
    assert ada is not None
    assert (ada.name, ada.kind, sorted(ada.projects)) == ("ada", "user", ["vision"])
    assert identity.USE in ada.scopes
    assert not ada.admin
    spawner = await who.user_for_token("spawner-token")
    assert spawner is not None
    assert (spawner.kind, spawner.spawner) == ("service", True)


async def test_a_workspace_token_that_may_not_read_groups_has_them_all_the_same(
    who: HubIdentity,
) -> None:
    principal = await who.user_for_token("desk-token")
    assert principal is not None
    assert principal.projects == {"vision"}
    assert identity.USE in principal.scopes


async def test_a_narrowed_scope_gives_no_rights_over_others(who: HubIdentity) -> None:
    sly = await who.user_for_token("sly-token")
    assert sly is not None
    assert not sly.admin


async def test_answers_are_remembered_for_a_while(
    small_hub: SmallHub, who: HubIdentity, clock: Ticks
) -> None:
    await asyncio.gather(*(who.user_for_token("ada-token") for _ in range(5)))
    assert len(small_hub.asked) == 1
    del small_hub.models["ada-token"]
    clock.now = hub.REMEMBER_SECONDS - 1
    assert await who.user_for_token("ada-token") is not None
    clock.now = hub.REMEMBER_SECONDS
    assert await who.user_for_token("ada-token") is None
    asked = len(small_hub.asked)
    assert await who.user_for_token("ada-token") is None
    assert len(small_hub.asked) == asked


async def test_a_changed_user_is_looked_up_again(small_hub: SmallHub, who: HubIdentity) -> None:
    await who.user_for_token("ada-token")
    small_hub.models["ada-token"]["groups"] = []
    who.forget("somebody-else")
    before = await who.user_for_token("ada-token")
    who.forget("ada")
    after = await who.user_for_token("ada-token")
    assert before is not None
    assert after is not None
    assert (sorted(before.projects), sorted(after.projects)) == (["vision"], [])


async def test_memory_is_bounded(who: HubIdentity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "REMEMBER_AT_MOST", 3)
    for number in range(10):
        await who.user_for_token(f"guess-{number}")
    assert len(who._known) == 3


@pytest.mark.parametrize("status", [500, 502, 429])
async def test_a_hub_that_fails_is_not_an_unknown_token(
    small_hub: SmallHub, who: HubIdentity, members: HubMembership, status: int
) -> None:
    small_hub.down = status
    with pytest.raises(IdentityUnavailable):
        await who.user_for_token("ada-token")
    with pytest.raises(IdentityUnavailable):
        await members.users("vision")
    small_hub.down = 0
    assert await who.user_for_token("ada-token") is not None


async def test_a_hub_that_is_not_there(clock: Ticks) -> None:
    gone = HubIdentity("http://127.0.0.1:9/hub/api", SERVICE, clock=clock)
    with pytest.raises(IdentityUnavailable):
        await gone.user_for_token("ada-token")
    await gone.close()


async def test_members_are_listed_added_and_removed(
    small_hub: SmallHub, members: HubMembership
) -> None:
    assert await members.users("vision") == ["ada", "bea"]
    assert await members.users("robots") == []
    await members.add("robots", "dora")
    assert small_hub.groups["project-robots"] == ["dora"]
    with pytest.raises(UnknownHubUser):
        await members.add("robots", "zoe")
    await members.remove("vision", "ada")
    await members.remove("vision", "zoe")
    await members.remove("nowhere", "ada")
    assert await members.users("vision") == ["bea"]


async def test_a_rush_of_starts_asks_for_members_once(
    small_hub: SmallHub, members: HubMembership, clock: Ticks
) -> None:
    asked = "GET /hub/api/groups/project-vision"
    found = await asyncio.gather(*(members.includes("vision", name) for name in ["ada", "bea"] * 9))
    assert all(found)
    assert small_hub.asked.count(asked) == 1
    clock.now += REMEMBER_SECONDS
    assert await members.includes("vision", "ada")
    assert small_hub.asked.count(asked) == 2


async def test_who_just_joined_is_a_member_and_who_was_removed_is_not(
    small_hub: SmallHub, members: HubMembership
) -> None:
    assert not await members.includes("vision", "dora")
    small_hub.groups["project-vision"].append("dora")
    assert await members.includes("vision", "dora")
    await members.remove("vision", "dora")
    assert not await members.includes("vision", "dora")


async def test_an_answer_from_before_a_removal_is_not_remembered(
    small_hub: SmallHub, members: HubMembership
) -> None:
    early = asyncio.create_task(members.includes("vision", "ada"))
    await asyncio.sleep(0)
    await members.remove("vision", "ada")
    await early
    assert not await members.includes("vision", "ada")


async def test_groups_are_made_and_removed_any_number_of_times(
    small_hub: SmallHub, members: HubMembership
) -> None:
    for _ in range(2):
        await members.create_group("robots")
    assert "project-robots" in small_hub.groups
    for _ in range(2):
        await members.delete_group("robots")
    assert "project-robots" not in small_hub.groups
