"""The base of the fake scheduler's endpoints: the caller, and the caller's rights."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from carrel.testing.state import Refusal, SchedulerState

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Route = tuple[str, str, Handler]


class Routes:
    """Endpoints of one subject, over the state."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state

    def routes(self) -> list[Route]:
        """Method, path and handler of each endpoint."""
        raise NotImplementedError

    def _user(self, request: web.Request) -> str:
        _, _, token = request.headers.get("Authorization", "").partition(" ")
        if token not in self._state.tokens:
            raise Refusal(401, "unauthenticated", "The token is missing or unknown.")
        return self._state.tokens[token]

    def _visible(self, request: web.Request) -> list[str]:
        """The projects that the caller may see."""
        user, state = self._user(request), self._state
        return [
            name for name in state.projects if user in state.admins or user in state.members[name]
        ]

    def _admin(self, request: web.Request, permission: str = "") -> str:
        """The caller; refused unless they are an administrator."""
        user = self._user(request)
        if user in self._state.admins:
            return user
        if permission:
            raise Refusal(403, "missing_permission", f"This needs `{permission}`")
        raise Refusal(403, "forbidden", "Only an administrator may do this.")
