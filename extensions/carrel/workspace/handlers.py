"""The server's own endpoints below ``{base}/carrel/``, for buttons and the status bar.

They are behind Jupyter's sign-in and its protection against forged requests, speak to the scheduler
with the workspace's own token, and work while every kernel is busy or dead. None of them counts as
somebody's activity.
"""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web
from typing_extensions import override

from carrel.client import AsyncClient
from carrel.errors import ApiError, BadSetting, CarrelError, NotSignedIn, Unreachable
from carrel.models import Workload
from carrel.workspace.desk import Desk

NAME: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
ACTIONS: Final[dict[str, Callable[[AsyncClient, str, str], Awaitable[Any]]]] = {
    "delete": lambda client, project, name: client.delete_workload(project, name),
    "suspend": lambda client, project, name: client.suspend(project, name),
    "resume": lambda client, project, name: client.resume(project, name),
}


class CarrelHandler(APIHandler):
    """What all have in common: the desk, JSON, and errors as one sentence."""

    _track_activity = False

    @override
    def initialize(self, desk: Desk) -> None:
        """Take the server's desk."""
        self.desk = desk

    def answer(self, body: Any) -> None:
        """Send JSON."""
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(msgspec.to_builtins(body)))

    @override
    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """The scheduler's sentences pass through as they are, everything else as Jupyter has it."""
        _, error, _ = kwargs.get("exc_info", (None, None, None))
        if not isinstance(error, CarrelError):
            super().write_error(status_code, **kwargs)
            return
        self.set_status(_status(error))
        self.set_header("Content-Type", "application/json")
        code = error.code if isinstance(error, ApiError | BadSetting) else type(error).__name__
        self.finish(json.dumps({"message": str(error), "code": code}))

    @override
    def log_exception(self, *details: Any) -> None:
        """A refusal of the scheduler is an answer, not a mishap of this server."""
        if not isinstance(details[1], CarrelError):
            super().log_exception(*details)


def _status(error: CarrelError) -> int:
    if isinstance(error, ApiError):
        return error.status
    if isinstance(error, Unreachable):
        return 503
    if isinstance(error, BadSetting):
        return 422
    return 401 if isinstance(error, NotSignedIn) else 502


class LimitsHandler(CarrelHandler):
    """GET: when this workspace stops and why, and its project's quota line."""

    @override
    @web.authenticated
    async def get(self) -> None:
        """Answer from what is known; asks the scheduler only for what is old."""
        self.answer(await self.desk.view())


class ExtendHandler(CarrelHandler):
    """POST: keep this workspace for the project's extension."""

    @override
    @web.authenticated
    async def post(self) -> None:
        """Answer with the view after it."""
        await self.desk.extend()
        self.answer(await self.desk.view())


class JobsHandler(CarrelHandler):
    """GET: the caller's trainings, newest first; ``project`` narrows them down."""

    @override
    @web.authenticated
    async def get(self) -> None:
        """Answer ``{"items": [...]}``."""
        project = self.get_query_argument("project", "") or None
        items = await self.desk.client.list_workloads(project=project, kind="training")
        self.answer({"items": items})


class ActionHandler(CarrelHandler):
    """POST: delete, suspend or resume a workload."""

    @override
    @web.authenticated
    async def post(self, project: str, name: str, action: str) -> None:
        """Answer with the workload afterwards."""
        result = await ACTIONS[action](self.desk.client, project, name)
        self.answer(result if isinstance(result, Workload) else {})


def rules(base_url: str, desk: Desk) -> list[tuple[str, type[CarrelHandler], dict[str, Any]]]:
    """The endpoints for a server whose address begins with ``base_url``."""
    name = NAME.replace("(", "(?:")
    action = "|".join(map(re.escape, ACTIONS))
    table: dict[str, type[CarrelHandler]] = {
        "limits": LimitsHandler,
        "extend": ExtendHandler,
        "jobs": JobsHandler,
        f"jobs/({name})/({name})/({action})": ActionHandler,
    }
    return [
        (url_path_join(base_url, "carrel", path), handler, {"desk": desk})
        for path, handler in table.items()
    ]
