"""The fake scheduler's answers about the platform as a whole: what tests put into its state."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from carrel.testing.state import Refusal, SchedulerState

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PlatformRoutes:
    """Health, for administrators."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def routes(self) -> list[tuple[str, str, Handler]]:
        """What it answers."""
        return [("GET", "/health", self._health)]

    def _user(self, request: web.Request) -> str:
        _, _, token = request.headers.get("Authorization", "").partition(" ")
        return self._state.tokens[token]

    def _admin(self, request: web.Request) -> None:
        if self._user(request) not in self._state.admins:
            raise Refusal(403, "missing_permission", "Only administrators do this")

    async def _health(self, request: web.Request) -> web.Response:
        self._admin(request)
        return web.json_response(self._state.health)
