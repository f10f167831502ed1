"""Artifacts and models of the fake scheduler, put there by the test."""

from aiohttp import web
from typing_extensions import override

from carrel.testing.routes import Route, Routes
from carrel.testing.state import Json, Refusal

WORKLOAD = "/workloads/{project}/{name}"


class ArtifactRoutes(Routes):
    """Answers with what ``state.artifacts`` and ``state.models`` have."""

    @override
    def routes(self) -> list[Route]:
        """Method, path and handler of each."""
        return [
            ("GET", WORKLOAD + "/artifacts", self._list),
            ("GET", WORKLOAD + "/artifacts/content", self._content),
            ("GET", WORKLOAD + "/checkpoints", self._checkpoints),
            ("GET", "/projects/{project}/models", self._models),
            ("GET", "/projects/{project}/models/{model}", self._models),
        ]

    def _files(self, request: web.Request) -> dict[str, bytes]:
        key = request.match_info["project"], request.match_info["name"]
        return self._state.artifacts.get(key, {})

    async def _list(self, request: web.Request) -> web.Response:
        found = self._files(request)
        items: list[Json] = [
            {"path": path, "size": len(content), "modified_at": 0.0}
            for path, content in sorted(found.items())
        ]
        size = sum(map(len, found.values()))
        return web.json_response({"items": items, "size": size, "expires_at": None})

    async def _content(self, request: web.Request) -> web.Response:
        content = self._files(request).get(request.query["path"])
        if content is None:
            raise Refusal(404, "no_such_file", "There is no such file")
        return web.Response(body=content)

    async def _models(self, request: web.Request) -> web.Response:
        name = request.match_info.get("model")
        found = self._state.models.get(request.match_info["project"], [])
        items = [one for one in found if name in (None, one["name"])]
        if name is not None and not items:
            raise Refusal(404, "not_found", "There is no such model")
        return web.json_response({"items": items})

    async def _checkpoints(self, _request: web.Request) -> web.Response:
        return web.json_response({"items": [], "size": 0, "expires_at": None})
