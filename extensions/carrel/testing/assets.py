"""The fake scheduler's assets and service accounts: kept and shown, applied to nothing."""

from aiohttp import web
from typing_extensions import override

from carrel.testing.routes import Route, Routes
from carrel.testing.state import Json, Refusal

DAY_SECONDS = 86_400


class AssetRoutes(Routes):
    """Assets by type, scope and name; everybody writes their own, admins those of others."""

    @override
    def routes(self) -> list[Route]:
        """The routes of this part of the API."""
        return [
            ("GET", "/assets", self._list),
            ("GET", "/assets/{type}/{name}", self._read),
            ("PUT", "/assets/{type}/{name}", self._put),
            ("DELETE", "/assets/{type}/{name}", self._delete),
        ]

    def _key(self, request: web.Request) -> tuple[str, str, str]:
        return request.match_info["type"], request.query["scope"], request.match_info["name"]

    def _sees(self, user: str, scope: str) -> bool:
        if user in self._state.admins or scope in ("platform", f"user/{user}"):
            return True
        return user in self._state.members.get(scope.removeprefix("project/"), ())

    async def _list(self, request: web.Request) -> web.Response:
        user = self._user(request)
        found = [one for key, one in sorted(self._state.assets.items()) if self._sees(user, key[1])]
        return web.json_response({"items": found})

    async def _read(self, request: web.Request) -> web.Response:
        key = self._key(request)
        if key not in self._state.assets or not self._sees(self._user(request), key[1]):
            raise Refusal(404, "not_found", f"There is no asset `{key[2]}` that you can see")
        return web.json_response(self._state.assets[key])

    async def _put(self, request: web.Request) -> web.Response:
        key, body, user = self._key(request), await request.json(), self._user(request)
        if user not in self._state.admins and key[1] != f"user/{user}":
            raise Refusal(403, "missing_permission", "This needs `assets:manage`")
        if (key[0] == "data-source") != ("data" in body):
            raise Refusal(422, "missing_field", "data: expected of data sources alone", "data")
        version = self._state.assets.get(key, {"version": 0})["version"]
        if body.pop("expected_version", version) != version:
            raise Refusal(409, "conflict", "It was changed meanwhile")
        made: Json = body | {"type": key[0], "scope": key[1], "name": key[2]}
        made |= {"version": version + 1, "changed_by": user, "changed_at": self._state.now()}
        self._state.assets[key] = made
        return web.json_response(made)

    async def _delete(self, request: web.Request) -> web.Response:
        del self._state.assets[self._key(request)]
        return web.Response(status=204)


class ServiceAccountRoutes(Routes):
    """Service accounts and their tokens, for admins alone."""

    @override
    def routes(self) -> list[Route]:
        """The routes of this part of the API."""
        one = "/service-accounts/{name}"
        return [
            ("GET", "/service-accounts", self._list),
            ("PUT", one, self._put),
            ("DELETE", one, self._delete),
            ("POST", f"{one}/tokens", self._add_token),
            ("DELETE", f"{one}/tokens/{{token}}", self._revoke),
        ]

    def _one(self, request: web.Request) -> Json:
        self._admin(request, "service-accounts:update")
        name = request.match_info["name"]
        if name not in self._state.service_accounts:
            raise Refusal(404, "not_found", f"There is no service account `{name}`")
        return self._state.service_accounts[name]

    async def _list(self, request: web.Request) -> web.Response:
        seen = self._user(request) in self._state.admins
        found = list(self._state.service_accounts.values()) if seen else []
        return web.json_response({"items": found})

    async def _put(self, request: web.Request) -> web.Response:
        user, name = self._admin(request, "service-accounts:update"), request.match_info["name"]
        scope = request.query["scope"]
        if scope.startswith("user/"):
            raise Refusal(422, "wrong_form", "`platform`, `department/NAME`", "scope")
        known = self._state.service_accounts.get(name, {"tokens": []})
        made: Json = known | await request.json() | {"name": name, "scope": scope}
        made |= {"user": f"{name}@service-accounts", "changed_by": user}
        made["changed_at"] = self._state.now()
        self._state.service_accounts[name] = made
        return web.json_response(made)

    async def _delete(self, request: web.Request) -> web.Response:
        del self._state.service_accounts[self._one(request)["name"]]
        return web.Response(status=204)

    async def _add_token(self, request: web.Request) -> web.Response:
        account, days = self._one(request), (await request.json())["days"]
        if not 1 <= days <= 366:
            raise Refusal(422, "bad_range", "a whole number from 1 to 366", "days")
        now = self._state.now()
        token: Json = {
            "id": f"t{len(account['tokens']) + 1}",
            "created_at": now,
            "created_by": self._user(request),
            "expires_at": now + days * DAY_SECONDS,
        }
        account["tokens"].append(token)
        return web.json_response(token | {"token": f"once-{account['name']}"}, status=201)

    async def _revoke(self, request: web.Request) -> web.Response:
        account, gone = self._one(request), request.match_info["token"]
        account["tokens"] = [one for one in account["tokens"] if one["id"] != gone]
        return web.Response(status=204)
