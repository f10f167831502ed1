"""The fake scheduler's projects, with their members and departments."""

from aiohttp import web
from typing_extensions import override

from carrel.testing.routes import Route, Routes
from carrel.testing.state import NO_QUOTA, Json, Refusal, merged

NEW_DEPARTMENT: Json = {"description": "", "over_quota": True, "weight": None, "rank": 0}
DEPARTMENT = "/departments/{department}"


class ProjectRoutes(Routes):
    """Projects that the caller may see; only administrators change them."""

    @override
    def routes(self) -> list[Route]:
        """The routes of this part of the API."""
        return [
            ("GET", "/projects", self._list_projects),
            ("POST", "/projects", self._create_project),
            ("GET", "/projects/{project}", self._get_project),
            ("PATCH", "/projects/{project}", self._update_project),
            ("POST", "/project-changes", self._update_projects),
            ("DELETE", "/projects/{project}", self._delete_project),
            ("GET", "/projects/{project}/members", self._list_members),
            ("PUT", "/projects/{project}/members/{user}", self._add_member),
            ("DELETE", "/projects/{project}/members/{user}", self._remove_member),
            ("GET", "/departments", self._list_departments),
            ("GET", "/quota-findings", self._list_quota_findings),
            ("PUT", DEPARTMENT, self._put_department),
            ("POST", f"{DEPARTMENT}/preview", self._preview_department),
            ("DELETE", DEPARTMENT, self._delete_department),
        ]

    async def _list_projects(self, request: web.Request) -> web.Response:
        items = [self._state.projects[name] for name in self._visible(request)]
        return web.json_response({"items": items})

    async def _create_project(self, request: web.Request) -> web.Response:
        self._admin(request)
        return web.json_response(self._state.add_project(await request.json(), []), status=201)

    async def _get_project(self, request: web.Request) -> web.Response:
        return web.json_response(self._state.projects[request.match_info["project"]])

    async def _update_project(self, request: web.Request) -> web.Response:
        self._admin(request)
        name, body = request.match_info["project"], await request.json()
        if request.query.get("dry_run") == "true":
            merged(self._state.projects[name], body)
            return web.json_response({"would_start": [], "would_give_way": []})
        return web.json_response(self._state.change_project(name, body))

    async def _update_projects(self, request: web.Request) -> web.Response:
        self._admin(request)
        asked = await request.json()
        names, changes = asked["projects"], asked["changes"]
        for name in names:
            merged(self._state.projects[name], changes)
        if request.query.get("dry_run") == "true":
            return web.json_response({"would_start": [], "would_give_way": []})
        items = [self._state.change_project(name, changes) for name in names]
        return web.json_response({"items": items})

    async def _delete_project(self, request: web.Request) -> web.Response:
        self._admin(request)
        name = request.match_info["project"]
        if any(project == name for project, _ in self._state.workloads):
            raise Refusal(409, "project_in_use", f"The project `{name}` still has jobs.")
        del self._state.projects[name]
        return web.Response(status=204)

    async def _list_members(self, request: web.Request) -> web.Response:
        return web.json_response({"users": self._state.members[request.match_info["project"]]})

    async def _add_member(self, request: web.Request) -> web.Response:
        self._admin(request)
        users = self._state.members[request.match_info["project"]]
        if request.match_info["user"] not in users:
            users.append(request.match_info["user"])
        return web.json_response({"users": users})

    async def _remove_member(self, request: web.Request) -> web.Response:
        self._admin(request)
        users = self._state.members[request.match_info["project"]]
        users[:] = [user for user in users if user != request.match_info["user"]]
        return web.json_response({"users": users})

    async def _list_quota_findings(self, request: web.Request) -> web.Response:
        self._admin(request)
        return web.json_response({"items": self._state.quota_findings})

    async def _list_departments(self, request: web.Request) -> web.Response:
        admin = self._user(request) in self._state.admins
        return web.json_response({"items": [*self._state.departments.values()] if admin else []})

    async def _preview_department(self, request: web.Request) -> web.Response:
        self._admin(request)
        weight = (await request.json()).get("weight")
        return web.json_response({"would_start": ["vision/a"] if weight else []})

    async def _put_department(self, request: web.Request) -> web.Response:
        self._admin(request)
        name = request.match_info["department"]
        usual = NEW_DEPARTMENT | {"name": name, "quota": NO_QUOTA | {"gpus": 0}, "limit": NO_QUOTA}
        self._state.departments[name] = merged(usual, await request.json())
        return web.json_response(self._state.departments[name])

    async def _delete_department(self, request: web.Request) -> web.Response:
        self._admin(request)
        name = request.match_info["department"]
        if any(project["department"] == name for project in self._state.projects.values()):
            raise Refusal(409, "department_in_use", f"Projects belong to the department `{name}`.")
        self._state.departments.pop(name, None)
        return web.Response(status=204)
