"""Endpoints below ``{base}/carrel/`` for work of every kind: news of it, forms, boards, trials.

Rules and errors are those of ``handlers``.
"""

import time
from pathlib import Path
from typing import Any, Final

from jupyter_server.utils import url_path_join
from tornado import web
from typing_extensions import override

from carrel.errors import BadSetting
from carrel.widgets import forms, sending
from carrel.workspace import boards, gateway
from carrel.workspace.desk import Desk, NotAWorkspace
from carrel.workspace.handlers import NAME, CarrelHandler
from carrel.workspace.watch import Watch

ANY_NAME: Final = NAME.replace("(", "(?:")


class WorkHandler(CarrelHandler):
    """GET: the caller's work and what is new of it, since ``seen``."""

    @override
    def initialize(self, desk: Desk, watch: Watch | None = None) -> None:
        """Take the server's desk and watch."""
        super().initialize(desk)
        self.watch = watch or Watch(desk.client, desk.surroundings.user, time.time)

    @override
    @web.authenticated
    async def get(self) -> None:
        """Answer from memory; ``{"seen"}`` alone when nothing is new."""
        answer = await self.watch.view(self.get_query_argument("seen", ""))
        self.answer({**answer, "console_url": self.desk.surroundings.console_url})


class FormHandler(CarrelHandler):
    """GET: what a form of a kind asks. POST: send it, or with ``dry_run`` ask what would happen."""

    @override
    @web.authenticated
    async def get(self, kind: str) -> None:
        """Answer ``{"fields", "project"}``."""
        self.answer({"fields": forms.fields_of(kind), "project": await self._project()})

    @override
    @web.authenticated
    async def post(self, kind: str) -> None:
        """Answer as ``sending`` says."""
        given, below = _asked(self.get_json_body())
        folder = str(Path(self.settings["server_root_dir"]).expanduser() / below)
        self.answer(
            await sending.sent(
                self.desk.client,
                kind,
                given,
                project=await self._project(),
                folder=folder,
                dry_run=self.get_query_argument("dry_run", "") == "true",
            )
        )

    async def _project(self) -> str:
        """Where work belongs when nobody says: to this workspace's project."""
        try:
            return (await self.desk.workload()).project
        except NotAWorkspace:
            return (await self.desk.client.whoami()).default_project or ""


def _asked(body: Any) -> tuple[dict[str, Any], str]:
    """What was filled in, and the folder that it is about. Raises ``BadSetting``."""
    told = body if isinstance(body, dict) else {}
    given, folder = told.get("given", {}), told.get("folder", "")
    if not isinstance(given, dict) or not isinstance(folder, str):
        raise BadSetting('A form is sent as {"given": {...}, "folder": "..."}.')
    return given, folder


class BoardHandler(CarrelHandler):
    """POST: start TensorBoard on a job, or find it. GET: whether it is up, and where."""

    @override
    @web.authenticated
    async def get(self, project: str, name: str) -> None:
        """Answer ``{"url", "over", "reason"}``."""
        self._tell(await boards.find(self.desk.client, project, name))

    @override
    @web.authenticated
    async def post(self, project: str, name: str) -> None:
        """The same."""
        self._tell(await boards.find_or_start(self.desk.client, project, name))

    def _tell(self, board: Any) -> None:
        prefix = gateway.prefix_of(self.desk.client.settings.url)
        self.answer(boards.shown(board, prefix))


class BestHandler(CarrelHandler):
    """POST: make a training or an endpoint of an experiment's best trial, ``{"kind"}``."""

    @override
    @web.authenticated
    async def post(self, project: str, name: str) -> None:
        """Answer ``{"workload"}``: what was submitted."""
        body = self.get_json_body()
        kind = body.get("kind") if isinstance(body, dict) else None
        if kind not in ("training", "inference"):
            raise BadSetting(f"The kind is {kind!r}; it should be training or inference.")
        made = await self.desk.client.run_best(project, name, kind=kind)
        self.answer({"workload": sending.named(made)})


class TryHandler(CarrelHandler):
    """POST: one request to an endpoint, ``{"method", "path", "body"}``."""

    @override
    @web.authenticated
    async def post(self, project: str, name: str) -> None:
        """Answer ``{"status", "seconds", "body", "cut"}``."""
        settings = self.desk.client.settings
        request = gateway.Try.of(self.get_json_body())
        self.answer(await gateway.send(settings.url, settings.token, project, name, request))


def rules(base_url: str, desk: Desk, watch: Watch) -> list[tuple[str, Any, dict[str, Any]]]:
    """The endpoints for a server whose address begins with ``base_url``."""
    job = f"({ANY_NAME})/({ANY_NAME})"
    table: dict[str, tuple[type[CarrelHandler], dict[str, Any]]] = {
        "work": (WorkHandler, {"desk": desk, "watch": watch}),
        "forms/([a-z]+)": (FormHandler, {"desk": desk}),
        f"jobs/{job}/tensorboard": (BoardHandler, {"desk": desk}),
        f"experiments/{job}/best": (BestHandler, {"desk": desk}),
        f"endpoints/{job}/try": (TryHandler, {"desk": desk}),
    }
    return [
        (url_path_join(base_url, "carrel", path), handler, given)
        for path, (handler, given) in table.items()
    ]
