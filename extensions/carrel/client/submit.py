"""Send a command away as a job from plain Python: ``carrel.submit``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carrel.client.sync import Client
from carrel.errors import BadSetting
from carrel.from_here import in_workspace, see
from carrel.models import Workload


def submit(
    command: Sequence[str],
    *,
    name: str | None = None,
    project: str | None = None,
    gpus: float = 0,
    kind: str = "training",
    client: Client | None = None,
    **fields: Any,
) -> Workload:
    """Submit a job and return it as it waits.

    Args:
        command: the program and its arguments.
        name: its name; by default the service numbers it (``job-1``).
        project: where it belongs; by default the configured one, or the only one.
        gpus: GPUs per task.
        kind: of work: ``distributed`` with ``tasks=4``, ``experiment`` with ``experiment={...}``,
            ``inference`` with ``inference={...}``, ...
        client: which client to use; by default one made from the environment.
        fields: further fields of the API's workload (docs/api.md), such as ``environment``.

    Raises:
        CarrelError: when refused or unreachable; ``BadSetting`` without a project.
    """
    used = client or Client()
    named: Mapping[str, str] = {"name": name} if name else {"name_prefix": "job"}
    body = {
        "kind": kind,
        "project": project or default_project(used),
        "command": list(command),
        "gpus": gpus,
        **named,
        **fields,
    }
    if in_workspace():
        see(body, Path.cwd())
    return used.create_workload(body)


def default_project(client: Client) -> str:
    """The configured project, else the only one there is. Raises ``BadSetting``."""
    if client.settings.project:
        return client.settings.project
    identity = client.whoami()
    if identity.default_project:
        return identity.default_project
    if len(identity.projects) == 1:
        return identity.projects[0]
    if not identity.projects:
        raise BadSetting("You are in no project yet: ask an administrator to add you to one.")
    raise BadSetting(
        f"Which project? You are in {', '.join(sorted(identity.projects))}: name one with "
        f"`-p PROJECT`, or set a default with `carrel config project PROJECT`."
    )
