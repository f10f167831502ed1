"""The Hub's spawner on one machine: the scheduler's engine runs the workspace as a process here."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jupyterhub.spawner import Spawner
from traitlets import Dict, List
from typing_extensions import override

from carrel import workspace as workspace_side
from carrel.models import Workload
from carrel_spawner.base import WorkspaceSpawner
from carrel_spawner.choices.option_checks import parse_environment, parse_folders
from carrel_spawner.connections import held_port, probing_session, wait_for_answer
from carrel_spawner.options import WorkspaceProfile
from carrel_spawner.rendering import join_url
from carrel_spawner.workspace import Launch, split_secrets


class CarrelSpawner(WorkspaceSpawner, Spawner):
    """Workspaces as processes of this machine."""

    ip: str
    get_args: Any
    takes_folders = True
    _task_host = ""

    profile_list = List(
        Dict(),
        help="Kinds of workspaces to choose from, as KubeSpawner's: `slug`, `display_name`, "
        "`description`, and on one machine `environment` (prefix of a Python environment; empty: "
        "Carrel's own) and `volumes` (`SOURCE[:DESTINATION][:ro]`). The first one is the usual.",
    ).tag(config=True)

    @property
    @override
    def profiles(self) -> Sequence[WorkspaceProfile]:
        """The kinds that the admin listed. Raises ``BadOption``, ``KeyError`` for unfit ones."""
        return [
            WorkspaceProfile(
                one["slug"],
                one.get("display_name", one["slug"]),
                one.get("description", ""),
                parse_environment(one.get("environment", "")),
                parse_folders(one.get("volumes")),
            )
            for one in self.profile_list
        ]

    @override
    def get_env(self) -> dict[str, Any]:
        """The Hub's variables and ours."""
        return super().get_env() | workspace_side.environment()

    @override
    def launch_spec(self, project: str) -> Launch:
        shown, hidden = split_secrets(self.get_env() | {"CARREL_PROJECT": project})
        command = [sys.executable, "-m", "carrel_spawner.launch"]
        command += ["--demo"] if self.demo else []
        command += ["--", *workspace_side.server_arguments(), *self.get_args()]
        return Launch(command, shown, hidden, self.port)

    @override
    @contextmanager
    def reserved_port(self) -> Iterator[None]:
        with held_port() as self.port:
            yield

    @override
    async def start_server(self, workload: Workload) -> str:
        self._task_host = next((one.address for one in workload.status.tasks if one.address), "")
        page_without_sign_in = join_url(self.known_url(), self.server.base_url, "api")
        await wait_for_answer(probing_session(), page_without_sign_in)
        return self.known_url()

    @override
    def known_url(self) -> str:
        return f"http://{self._task_host or self.ip}:{self.port}"
