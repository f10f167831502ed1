"""The fake scheduler's departments."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from carrel.testing.world import NO_QUOTA, Json, Refusal, World, merged

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ONE = "/departments/{department}"
BASE: Json = {"description": "", "over_quota": True, "weight": None, "rank": 0}


class Departments:
    """Their endpoints; ``check_admin`` refuses everybody else."""

    def __init__(self, world: World, check_admin: Callable[[web.Request], None]) -> None:
        self._world, self._check_admin = world, check_admin

    def routes(self) -> list[tuple[str, str, Handler]]:
        """Method, path, handler."""
        return [
            ("GET", "/departments", self._list),
            ("PUT", ONE, self._put),
            ("DELETE", ONE, self._delete),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        self._check_admin(request)
        return web.json_response({"items": list(self._world.departments.values())})

    async def _put(self, request: web.Request) -> web.Response:
        self._check_admin(request)
        name = request.match_info["department"]
        usual = BASE | {"name": name, "quota": NO_QUOTA | {"gpus": 0}, "limit": NO_QUOTA}
        self._world.departments[name] = merged(usual, await request.json())
        return web.json_response(self._world.departments[name])

    async def _delete(self, request: web.Request) -> web.Response:
        self._check_admin(request)
        name = request.match_info["department"]
        if any(project["department"] == name for project in self._world.projects.values()):
            raise Refusal(409, "department_in_use", f"Projects belong to the department `{name}`.")
        self._world.departments.pop(name, None)
        return web.Response(status=204)
