"""The fake scheduler's people and groups of the directory: kept and shown, applied to nothing."""

from aiohttp import web
from typing_extensions import override

from carrel.testing.routes import Route, Routes
from carrel.testing.state import Json, Refusal


class PeopleRoutes(Routes):
    """Routes of people, for admins alone; the Hub reads the table of groups, too."""

    @override
    def routes(self) -> list[Route]:
        """The routes of this part of the API."""
        return [
            ("GET", "/users", self._list),
            ("GET", "/users/{user}", self._read),
            ("PUT", "/users/{user}/invitation", self._invite),
            ("POST", "/users/{user}/update", self._update),
            ("POST", "/users/{user}/actions", self._act),
            ("DELETE", "/users/{user}", self._delete),
            ("GET", "/users/{user}/projects", self._projects),
            ("GET", "/users/{user}/identity", self._known_identity),
            ("PUT", "/users/{user}/identity", self._identity),
            ("GET", "/directory-groups", self._groups),
            ("PUT", "/directory-groups", self._map),
            ("DELETE", "/directory-groups", self._unmap),
        ]

    def _one(self, request: web.Request) -> Json:
        name = request.match_info["user"]
        found = self._state.people.get(self._user(request) if name == "me" else name)
        if found is None:
            raise Refusal(404, "unknown_user", f"There is nobody called {name}")
        return found

    async def _list(self, request: web.Request) -> web.Response:
        self._admin(request, "users:read")
        query = request.query
        found = [
            one
            for name, one in sorted(self._state.people.items())
            if query.get("search", "") in name and query.get("state", one["state"]) == one["state"]
        ]
        first = int(query["first"])
        shown = found[first : first + int(query["limit"])]
        kind = shown[0]["sign_in"] if shown else "local"
        return web.json_response({"items": shown, "total": len(found), "sign_in": kind})

    async def _read(self, request: web.Request) -> web.Response:
        return web.json_response(self._one(request))

    async def _invite(self, request: web.Request) -> web.Response:
        self._admin(request, "users:update")
        name, body = request.match_info["user"], await request.json()
        if name != name.lower():
            raise Refusal(422, "cannot_change", f"`{name}` cannot be a user name", "user")
        until = self._state.now() + body["days"] * 86_400
        person: Json = {"name": name, "state": "invited", "sign_in": "local"}
        self._state.people.setdefault(name, person)["invited_until"] = until
        made = {"user": name, "path": f"hub/invitation?user={name}&token=once"}
        return web.json_response(made | {"expires_at": until})

    async def _update(self, request: web.Request) -> web.Response:
        self._admin(request, "users:update")
        found, body = self._one(request), await request.json()
        if "projects" in body:
            found["memberships"] = [{"project": one} for one in body["projects"]]
        if "admin" in body:
            found["admin"] = body["admin"]
        return web.json_response(found)

    async def _act(self, request: web.Request) -> web.Response:
        user, found = self._admin(request, "users:update"), self._one(request)
        action = (await request.json())["action"]
        if action == "disable" and found["name"] == user:
            raise Refusal(409, "conflict", "Let another administrator change your own account")
        if action in ("enable", "disable"):
            found["state"] = "active" if action == "enable" else "disabled"
        return web.Response(status=204)

    async def _delete(self, request: web.Request) -> web.Response:
        self._admin(request, "users:update")
        del self._state.people[self._one(request)["name"]]
        return web.Response(status=204)

    async def _projects(self, request: web.Request) -> web.Response:
        user = request.match_info["user"]
        given = {
            one["scope"]
            for one in self._state.access_rules
            if (one["subject"], one["role"]) == (user, "researcher")
        }
        found = [
            name
            for name in sorted(self._state.projects)
            if user in self._state.members[name] or given & {"platform", f"project/{name}"}
        ]
        return web.json_response({"items": found})

    async def _known_identity(self, request: web.Request) -> web.Response:
        found = self._state.identities.get(request.match_info["user"], {"uid": 0, "gid": 0})
        return web.json_response(found)

    async def _identity(self, request: web.Request) -> web.Response:
        body = await request.json()
        self._state.identities[request.match_info["user"]] = body
        return web.json_response(body)

    async def _groups(self, request: web.Request) -> web.Response:
        if self._state.directory_groups_away:
            raise Refusal(500, "broken", "The table cannot be read")
        source = request.query.get("source", "")
        groups = sorted(self._state.directory_groups.values(), key=lambda one: str(one["group"]))
        found = [one for one in groups if source in ("", one["source"])]
        return web.json_response({"items": found})

    async def _map(self, request: web.Request) -> web.Response:
        user, body = self._admin(request, "directory-groups:update"), await request.json()
        if body["role"] and not body["scope"]:
            raise Refusal(422, "missing_field", "scope: expected a scope", "scope")
        group = request.query["group"]
        made: Json = body | {"group": group, "source": "table", "version": 1}
        made |= {"changed_by": user, "changed_at": self._state.now()}
        self._state.directory_groups[group] = made
        return web.json_response(made)

    async def _unmap(self, request: web.Request) -> web.Response:
        self._admin(request, "directory-groups:update")
        del self._state.directory_groups[request.query["group"]]
        return web.Response(status=204)
