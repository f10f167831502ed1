"""The Hub's side of the queue for workspaces: join it, leave it.

A plain form posts here, so it works on every page of the Hub. Whoever may start a user's server may
queue for it.
"""

from typing import Any

from jupyterhub.handlers.base import BaseHandler
from jupyterhub.scopes import needs_scope
from tornado import web
from typing_extensions import override

from carrel_spawner.base import WorkspaceSpawner
from carrel_spawner.choices.option_checks import from_form

_ACTIONS = "join or leave"
_needs_scope: Any = needs_scope


class QueueHandler(BaseHandler):
    """``POST /hub/carrel/queue/:user[/:server]``: ``action`` and, to join, the form's fields."""

    @override
    async def post(self, user_name: str, server_name: str | None = None) -> None:
        """Join or leave, then show the home page, where the queue is seen."""
        await _for_starters(self, user_name, server_name or "")

    async def act_for(self, user_name: str, server_name: str) -> None:
        """Carry out what ``post`` requests, after the check of rights."""
        hub: Any = self
        user = hub.find_user(user_name)
        if user is None:
            raise web.HTTPError(404, f"There is no user {user_name}.")
        name = server_name
        if name:
            await hub._check_named_server_request(user, name, name)  # noqa: SLF001 - the Hub's rule
        spawner = user.get_or_create_spawner(name, name, replace_failed=True)
        if not isinstance(spawner, WorkspaceSpawner):
            raise web.HTTPError(404, "Workspaces of this Hub have no queue.")
        await self._act(spawner)
        hub.redirect(f"{hub.hub.base_url}home")

    async def _act(self, spawner: WorkspaceSpawner) -> None:
        action = self.get_body_argument("action", "")
        if action == "leave":
            await spawner.leave_queue()
        elif action == "join":
            if getattr(spawner, "active", False):
                raise web.HTTPError(409, "This workspace runs already.")
            await spawner.join_queue(from_form(self._fields()))
        else:
            raise web.HTTPError(400, f"action is {action!r}; it should be {_ACTIONS}.")

    def _fields(self) -> dict[str, list[str]]:
        return {name: self.get_body_arguments(name) for name in self.request.body_arguments}


# The Hub's own check: a signed-in user who may start servers of ``user_name``.
_for_starters: Any = web.authenticated(_needs_scope("servers")(QueueHandler.act_for))


def handlers() -> list[tuple[str, type[QueueHandler]]]:
    """``c.JupyterHub.extra_handlers``."""
    return [(r"/carrel/queue/(?P<user_name>[^/]+)(?:/(?P<server_name>[^/]+))?", QueueHandler)]
