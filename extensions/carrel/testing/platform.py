"""The fake scheduler's answers about the platform as a whole: what tests put into its state."""

from aiohttp import web
from typing_extensions import override

from carrel.testing.routes import Route, Routes
from carrel.testing.state import Refusal

LEAST_SAMPLE_DAYS = 7


class PlatformRoutes(Routes):
    """Health and retention, for administrators; and how people are told of their own work."""

    @override
    def routes(self) -> list[Route]:
        """The routes of this part of the API."""
        return [
            ("GET", "/health", self._health),
            ("GET", "/cluster-access", self._cluster_access),
            ("GET", "/retention", self._retention),
            ("PUT", "/retention", self._put_retention),
            ("GET", "/users/me/notifications", self._own),
            ("PUT", "/users/me/notifications", self._put_own),
            ("DELETE", "/users/me/notifications", self._delete_own),
            ("POST", "/users/me/notifications/test", self._test_own),
        ]

    async def _health(self, request: web.Request) -> web.Response:
        self._admin(request)
        return web.json_response(self._state.health)

    async def _cluster_access(self, request: web.Request) -> web.Response:
        self._user(request)
        if not self._state.cluster_access:
            raise Refusal(409, "no_cluster", "There is no API server for kubectl here")
        return web.json_response(self._state.cluster_access)

    async def _retention(self, request: web.Request) -> web.Response:
        self._admin(request)
        return web.json_response(self._state.retention)

    async def _put_retention(self, request: web.Request) -> web.Response:
        """A dry run frees ten rows of every kind; what is kept for too short a time is refused."""
        self._admin(request)
        body = await request.json()
        if body["sample_days"] < LEAST_SAMPLE_DAYS:
            raise Refusal(422, "too_small", "7 or more", "sample_days")
        freed = {"freed_rows": 10, "freed_bytes": 2048}
        kinds = [one | freed for one in self._state.retention["kinds"]]
        if request.query.get("dry_run") != "true":
            self._state.retention["settings"] = body
        return web.json_response({"settings": body, "kinds": kinds})

    async def _own(self, request: web.Request) -> web.Response:
        found = self._state.subscriptions.get(self._user(request), {})
        return web.json_response(found | {"mail_domains": ["example.org"]})

    async def _put_own(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["kind"] == "mail" and not body["address"].endswith("@example.org"):
            raise Refusal(422, "wrong_form", "an address at example.org", "address")
        self._state.subscriptions[self._user(request)] = body
        return web.json_response(body)

    async def _delete_own(self, request: web.Request) -> web.Response:
        self._state.subscriptions.pop(self._user(request), None)
        return web.Response(status=204)

    async def _test_own(self, request: web.Request) -> web.Response:
        found = self._state.subscriptions[self._user(request)]
        if "broken" in found["url"]:
            raise Refusal(409, "not_delivered", "Not sent: it answered 500")
        return web.json_response(found)
