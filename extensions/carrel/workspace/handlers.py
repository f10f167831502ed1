"""The server's endpoints below ``{base}/carrel/``, for buttons, forms, views and the status bar.

They are behind Jupyter's sign-in and its protection against forged requests, speak to the scheduler
with the workspace's own token, and work while every kernel is busy or dead. None of them counts as
activity.
"""

import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import ensure_async, url_path_join
from tornado import web
from typing_extensions import override

from carrel import wording
from carrel.client import AsyncClient
from carrel.client.resources.endpoints import path_of, prefix_of
from carrel.client.resources.workloads import ACTIONS
from carrel.errors import ApiError, BadSetting, CarrelError, NotSignedIn, Unreachable
from carrel.models import Workload
from carrel.widgets import form_requests
from carrel.workspace import PACKAGE, gateway
from carrel.workspace.notifications import WorkFollower
from carrel.workspace.status import NotAWorkspace, WorkspaceStatus

TUTORIAL: Final = PACKAGE / "notebook" / "demo" / "carrel-tutorial.ipynb"
NAME: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


class CarrelHandler(APIHandler):
    """Shared by all handlers: the workspace, JSON, and errors as one sentence."""

    _track_activity = False

    @override
    def initialize(self, workspace: WorkspaceStatus, follower: WorkFollower) -> None:
        """Set the reader of this workspace and its owner's work."""
        self.workspace, self.follower = workspace, follower

    def answer(self, body: Any) -> None:
        """Send JSON."""
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(msgspec.to_builtins(body)))

    @override
    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Pass on sentences of the scheduler; leave all other errors to Jupyter."""
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
        """Leave refusals of the scheduler out of the log: they are answers, not errors here."""
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
        """Answer from the cache; the scheduler is asked only for what is old."""
        self.answer(await self.workspace.view())


class ExtendHandler(CarrelHandler):
    """POST: keep this workspace for the project's extension."""

    @override
    @web.authenticated
    async def post(self) -> None:
        """Apply the request, and answer with the new view."""
        await self.workspace.extend()
        self.answer(await self.workspace.view())


class JobsHandler(CarrelHandler):
    """GET: the caller's trainings, newest first; ``project`` narrows them down."""

    @override
    @web.authenticated
    async def get(self) -> None:
        """Answer ``{"items": [...]}``."""
        project = self.get_query_argument("project", "") or None
        items = await self.workspace.client.list_workloads(project=project, kind="training")
        self.answer({"items": items})


class WorkloadActionHandler(CarrelHandler):
    """POST: delete, suspend or resume a workload."""

    @override
    @web.authenticated
    async def post(self, project: str, name: str, action: str) -> None:
        """Answer with the workload afterwards."""
        result = await ACTIONS[action](self.workspace.client, project, name)
        self.answer(result if isinstance(result, Workload) else {})


class WorkHandler(CarrelHandler):
    """GET: the caller's work and notifications, since ``seen``."""

    @override
    @web.authenticated
    async def get(self) -> None:
        """Answer from memory; ``{"seen"}`` alone when nothing is new."""
        answer = await self.follower.view(self.get_query_argument("seen", ""))
        self.answer({**answer, "console_url": self.workspace.identity.console_url})


class FormHandler(CarrelHandler):
    """GET: the fields of a form. POST: submit it, or with ``dry_run`` forecast it."""

    @override
    @web.authenticated
    async def get(self, kind: str) -> None:
        """Answer ``{"fields", "project"}``."""
        self.answer({"fields": form_requests.fields_of(kind), "project": await self._project()})

    @override
    @web.authenticated
    async def post(self, kind: str) -> None:
        """Answer as ``form_requests.submit`` does."""
        given, below = _form_request(self.get_json_body())
        folder = str(Path(self.settings["server_root_dir"]).expanduser() / below)
        self.answer(
            await form_requests.submit(
                self.workspace.client,
                kind,
                given,
                project=await self._project(),
                folder=folder,
                dry_run=self.get_query_argument("dry_run", "") == "true",
            )
        )

    async def _project(self) -> str:
        """The default project of a form: this workspace's."""
        try:
            return (await self.workspace.workload()).project
        except NotAWorkspace:
            return (await self.workspace.client.whoami()).default_project or ""


def _form_request(body: Any) -> tuple[dict[str, Any], str]:
    """The values of a form, and the folder of its request. Raises ``BadSetting``."""
    fields = body if isinstance(body, dict) else {}
    given, folder = fields.get("given", {}), fields.get("folder", "")
    if not isinstance(given, dict) or not isinstance(folder, str):
        raise BadSetting('A form is sent as {"given": {...}, "folder": "..."}.')
    return given, folder


class TutorialHandler(CarrelHandler):
    """POST: put the tutorial into the server's folder, unless it is there."""

    @override
    @web.authenticated
    async def post(self) -> None:
        """Answer ``{"path"}`` of the notebook, which is the user's own from then on."""
        contents: Any = self.contents_manager
        if not await ensure_async(contents.file_exists(TUTORIAL.name)):
            content = json.loads(TUTORIAL.read_text(encoding="utf-8"))
            model = {"type": "notebook", "format": "json", "content": content}
            await ensure_async(contents.save(model, TUTORIAL.name))
        self.answer({"path": TUTORIAL.name})


class TensorBoardHandler(CarrelHandler):
    """POST: find or start a TensorBoard of a job. GET: its address once it runs."""

    @override
    @web.authenticated
    async def get(self, project: str, name: str) -> None:
        """Answer ``{"url", "over", "reason"}``."""
        self._answer_view(await find_tensorboard(self.workspace.client, project, name))

    @override
    @web.authenticated
    async def post(self, project: str, name: str) -> None:
        """The same."""
        self._answer_view(await find_or_start_tensorboard(self.workspace.client, project, name))

    def _answer_view(self, board: Any) -> None:
        prefix = prefix_of(self.workspace.client.settings.url)
        self.answer(tensorboard_view(board, prefix))


class BestHandler(CarrelHandler):
    """POST: make a training or an endpoint of an experiment's best trial, ``{"kind"}``."""

    @override
    @web.authenticated
    async def post(self, project: str, name: str) -> None:
        """Submit, and answer with ``{"workload"}``."""
        body = self.get_json_body()
        kind = body.get("kind") if isinstance(body, dict) else None
        if kind not in ("training", "inference"):
            raise BadSetting(f"The kind is {kind!r}; it should be training or inference.")
        made = await self.workspace.client.run_best(project, name, kind=kind)
        self.answer({"workload": form_requests.named(made)})


class TryHandler(CarrelHandler):
    """POST: one request to an endpoint, ``{"method", "path", "body"}``."""

    @override
    @web.authenticated
    async def post(self, project: str, name: str) -> None:
        """Answer ``{"status", "seconds", "body", "cut"}``."""
        settings = self.workspace.client.settings
        request = gateway.EndpointRequest.of(self.get_json_body())
        self.answer(await gateway.send(settings.url, settings.token, project, name, request))


def rules(
    base_url: str, workspace: WorkspaceStatus, follower: WorkFollower
) -> list[tuple[str, type[CarrelHandler], dict[str, Any]]]:
    """The endpoints for a server whose address begins with ``base_url``."""
    name = NAME.replace("(", "(?:")
    job, action = f"({name})/({name})", "|".join(map(re.escape, ACTIONS))
    table: dict[str, type[CarrelHandler]] = {
        "limits": LimitsHandler,
        "extend": ExtendHandler,
        "jobs": JobsHandler,
        f"jobs/{job}/({action})": WorkloadActionHandler,
        "work": WorkHandler,
        "tutorial": TutorialHandler,
        "forms/([a-z]+)": FormHandler,
        f"jobs/{job}/tensorboard": TensorBoardHandler,
        f"experiments/{job}/best": BestHandler,
        f"endpoints/{job}/try": TryHandler,
    }
    given = {"workspace": workspace, "follower": follower}
    return [
        (url_path_join(base_url, "carrel", path), handler, given) for path, handler in table.items()
    ]


async def find_tensorboard(client: AsyncClient, project: str, job: str) -> Workload | None:
    """A TensorBoard over just this job that has not ended. Raises ``CarrelError``."""
    boards = await client.list_workloads(project=project, kind="tensorboard")
    mine = [
        board
        for board in boards
        if not board.at_rest
        and not board.spec.delete
        and board.spec.tensorboard is not None
        and list(board.spec.tensorboard.jobs) == [job]
    ]
    return mine[0] if mine else None


async def find_or_start_tensorboard(client: AsyncClient, project: str, job: str) -> Workload:
    """Find a running TensorBoard, or submit one. Raises ``CarrelError``."""
    found = await find_tensorboard(client, project, job)
    return found or await client.create_workload(
        {
            "kind": "tensorboard",
            "project": project,
            "name_prefix": "tensorboard",
            "tensorboard": {"jobs": [job]},
        }
    )


def tensorboard_view(board: Workload | None, prefix: str) -> dict[str, Any]:
    """The state of the button: an address once TensorBoard runs, otherwise the reason why not.

    Args:
        board: the TensorBoard; ``None`` when it was removed.
        prefix: path of the gateway.
    """
    if board is None:
        return {"url": "", "over": True, "reason": "TensorBoard was stopped before it was ready."}
    running = board.status.phase == "running"
    return {
        "url": path_of(prefix, board.project, board.name) if running else "",
        "over": board.at_rest,
        "reason": wording.why(board),
    }
