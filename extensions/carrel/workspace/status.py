"""The workspace of this server: its workload, its limits, its project.

Caches the scheduler's last answers for the front end, so that a status bar costs no request of its
own. The project is requested again when work of it has changed, else at most every few seconds.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from carrel.client import AsyncClient
from carrel.errors import ApiError, CarrelError
from carrel.models import Limits, Project, Workload
from carrel.workspace.activity import ActivityReading

PROJECT_AGE = 15.0
RETRY_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The user and the name of this server, from its environment."""

    user: str
    server_name: str
    console_url: str

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> "ServerIdentity":
        """Read the variables of JupyterHub and Carrel."""
        console = environment.get("CARREL_CONSOLE_URL") or environment.get("CARREL_PUBLIC_URL", "")
        return cls(
            user=environment.get("JUPYTERHUB_USER", ""),
            server_name=environment.get("JUPYTERHUB_SERVER_NAME", ""),
            console_url=console or "/services/carrel/",
        )


class NotAWorkspace(CarrelError):  # noqa: N818 - reads as the fact it states
    """The scheduler has no running workspace that is this server."""

    def __init__(self) -> None:
        super().__init__("The scheduler knows no running workspace that is this server.")


class WorkspaceStatus:
    """The scheduler's state of this workspace.

    Attributes:
        limits: the last known; ``None`` before the first answer.
        trouble: why the last heartbeat did not arrive, empty when it did.
    """

    def __init__(
        self, client: AsyncClient, identity: ServerIdentity, clock: Callable[[], float]
    ) -> None:
        self.client, self.identity = client, identity
        self.limits: Limits | None = None
        self.trouble = ""
        self._clock = clock
        self._workload: Workload | None = None
        self._project: Project | None = None
        self._project_trouble = ""
        self._ask_at = float("-inf")

    async def report(self, activity: ActivityReading) -> None:
        """Report activity and keep the limits that come back. Raises ``CarrelError``."""
        try:
            self.limits = await self.client.activity(
                self.identity.server_name, dataclasses.asdict(activity)
            )
        except CarrelError as error:
            self.trouble = str(error)
            if isinstance(error, ApiError) and error.status == 404:
                self._workload = None
            raise
        self.trouble = ""

    async def extend(self) -> Limits:
        """Keep this workspace for the project's extension. Raises ``CarrelError``."""
        workload = await self.workload()
        self.limits = await self.client.extend(workload.project, workload.name)
        return self.limits

    async def workload(self) -> Workload:
        """The workload of this server. Raises ``NotAWorkspace``, ``CarrelError``."""
        if self._workload is None:
            self._workload = await self._find()
        return self._workload

    def changed(self, project: str) -> None:
        """Work of a project has changed: its use is requested again when it is asked for."""
        if self._project is not None and self._project.name == project:
            self._ask_at = float("-inf")

    async def _ask_project(self) -> None:
        """Request the project if it is old; why it could not be had is kept for a few seconds."""
        now = self._clock()
        if now < self._ask_at:
            return
        self._ask_at = now + PROJECT_AGE
        try:
            workload = await self.workload()
            self._project = await self.client.get_project(workload.project)
        except CarrelError as error:
            self._project_trouble, self._ask_at = str(error), now + RETRY_SECONDS
        else:
            self._project_trouble = ""

    async def view(self) -> dict[str, Any]:
        """The facts that the front end shows, as JSON. Never raises for a scheduler away.

        While it is away the project is shown as last known, so that a warning can name it.
        """
        await self._ask_project()
        workload, project = self._workload, self._project
        return {
            "now": self._clock(),
            "name": "" if workload is None else workload.name,
            "trouble": self.trouble or self._project_trouble,
            "silent_since": self.client.silent_since,
            "console_url": self.identity.console_url,
            "limits": None if self.limits is None else msgspec.to_builtins(self.limits),
            "project": None if project is None else msgspec.to_builtins(project),
        }

    async def _find(self) -> Workload:
        found = await self.client.list_workloads(kind="workspace", user=self.identity.user or None)
        mine = [
            workload
            for workload in found
            if workload.spec.server_name == self.identity.server_name and workload.holds_resources
        ]
        if not mine:
            raise NotAWorkspace
        return mine[0]
