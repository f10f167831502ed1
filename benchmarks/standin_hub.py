"""The Hub's identity answers and nothing else, so that a scheduler runs without a Hub.

Only for tests and benchmarks: tokens are given beforehand, groups are kept in memory.
"""

from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

USE = "custom:carrel:use"
ADMIN = "custom:carrel:admin"
SPAWN = "custom:carrel:spawn"


@dataclass
class Account:
    """A user or service of the stand-in; a project is the group ``project-<name>``."""

    name: str
    scopes: tuple[str, ...] = (USE,)
    groups: set[str] = field(default_factory=set)


class StandInHub:
    """Serves ``/hub/api`` on loopback."""

    def __init__(self, accounts: dict[str, Account]) -> None:
        self.accounts = accounts
        self.started: list[tuple[str, dict[str, Any]]] = []
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        app = web.Application()
        app.router.add_get("/hub/api/user", self._user)
        app.router.add_get("/hub/api/users/{name}", self._named_user)
        app.router.add_get("/hub/api/groups/{group}", self._group)
        app.router.add_post("/hub/api/groups/{group}", self._make_group)
        app.router.add_post("/hub/api/groups/{group}/users", self._add)
        app.router.add_delete("/hub/api/groups/{group}/users", self._remove)
        app.router.add_post("/hub/api/users/{name}/server", self._start)
        app.router.add_post("/hub/api/users/{name}/servers/{server}", self._start)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/hub/api"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _caller(self, request: web.Request) -> Account | None:
        token = request.headers.get("Authorization", "").split(" ")[-1]
        return self.accounts.get(token)

    async def _user(self, request: web.Request) -> web.Response:
        account = self._caller(request)
        if account is None:
            return web.json_response({"status": 403, "message": "unknown token"}, status=403)
        return web.json_response(_model(account))

    async def _named_user(self, request: web.Request) -> web.Response:
        for account in self.accounts.values():
            if account.name == request.match_info["name"]:
                return web.json_response(_model(account))
        return web.json_response({"status": 404}, status=404)

    def _members(self, group: str) -> list[str]:
        return sorted(one.name for one in self.accounts.values() if group in one.groups)

    async def _group(self, request: web.Request) -> web.Response:
        group = request.match_info["group"]
        return web.json_response({"name": group, "users": self._members(group)})

    async def _make_group(self, request: web.Request) -> web.Response:
        return web.json_response({"name": request.match_info["group"]}, status=201)

    async def _add(self, request: web.Request) -> web.Response:
        names = (await request.json())["users"]
        for account in self.accounts.values():
            if account.name in names:
                account.groups.add(request.match_info["group"])
        return await self._group(request)

    async def _remove(self, request: web.Request) -> web.Response:
        names = (await request.json())["users"]
        for account in self.accounts.values():
            if account.name in names:
                account.groups.discard(request.match_info["group"])
        return await self._group(request)

    async def _start(self, request: web.Request) -> web.Response:
        self.started.append((request.match_info["name"], await request.json()))
        return web.json_response({}, status=201)


def _model(account: Account) -> dict[str, Any]:
    return {
        "kind": "user",
        "name": account.name,
        "admin": ADMIN in account.scopes,
        "groups": sorted(account.groups),
        "scopes": list(account.scopes),
    }
