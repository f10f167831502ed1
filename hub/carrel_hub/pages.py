"""State of workspaces for the Hub's templates: phase, place in the queue, and how they ended.

One object for each rendered page (``{{ carrel }}``); its coroutines are awaited by the template.
Trouble with the scheduler is a sentence on the page, never an error page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from carrel.errors import CarrelError
from carrel.models import Workload
from carrel_hub import navigation
from carrel_spawner import rendering
from carrel_spawner.base import WorkspaceSpawner
from carrel_spawner.choices.form import QueuePosition, place
from carrel_spawner.rendering import readable_by, said
from carrel_spawner.workspace import Ending, is_queued, workspace_name

# Phase -> (word, kind of state for colour and icon), the same as everywhere in Carrel.
STATES: dict[str, tuple[str, str]] = {
    "pending": ("pending", "waiting"),
    "starting": ("starting", "running"),
    "running": ("running", "running"),
    "preempting": ("preempting", "yielding"),
    "stopping": ("stopping", "stopped"),
    "succeeded": ("stopped", "stopped"),
    "failed": ("failed", "failed"),
    "stopped": ("stopped", "stopped"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A workspace on the home page.

    Attributes:
        name: the Hub's server name, empty for the default one.
        kind: of the state, for its colour and icon; ``state`` is the word.
        place: in the queue, ``None`` when it is not in it.
    """

    name: str
    title: str
    project: str
    size: str
    state: str
    kind: str
    sentence: str
    place: QueuePosition | None
    queue_url: str


@dataclass(frozen=True, slots=True)
class UserWorkspaces:
    """The workspaces of one user by server name, or why they cannot be shown."""

    rows: dict[str, Row]
    trouble: str = ""


class Pages:
    """The template variable ``carrel`` of one page. ``user`` is whoever looks; may be nobody."""

    console_url = "/services/console/"
    navigation = navigation

    def __init__(self, user: Any) -> None:
        self.user = user

    async def workspaces(self, user: Any) -> UserWorkspaces:
        """The user's workspaces that the scheduler knows."""
        spawner = user.spawner
        if not isinstance(spawner, WorkspaceSpawner):
            return UserWorkspaces({})
        try:
            found = await spawner.client.list_workloads(user=user.name, kind="workspace")
        except CarrelError as error:
            return UserWorkspaces(
                {}, f"The scheduler does not answer, so states may be out of date: {error}"
            )
        workspaces = [
            one for one in found if one.name == workspace_name(user.name, one.spec.server_name)
        ]
        allowed = [readable_by(one, spawner.projects) for one in _latest(workspaces)]
        return UserWorkspaces({one.spec.server_name: _row(user, one) for one in allowed})

    async def waiting(self, user: Any, server_name: str) -> Row | None:
        """The entry of a workspace in the queue."""
        row = (await self.workspaces(user)).rows.get(server_name)
        return row if row is not None and row.place is not None else None

    def said(self, sentence: str) -> Markup:
        """A sentence of the scheduler for a page."""
        return said(sentence)

    def ending(self, user: Any, server_name: str) -> Ending | None:
        """The end of a workspace that was not stopped by its owner, if there was one."""
        stored = user.orm_user.orm_spawners.get(server_name)
        return Ending.from_dict((stored.state or {}).get("ending")) if stored else None

    def queue_url(self, user: Any, server_name: str) -> str:
        """The path to which the queue's buttons post."""
        spawner = user.spawners[server_name]
        return spawner.queue_url if isinstance(spawner, WorkspaceSpawner) else ""


def _latest(workloads: Sequence[Workload]) -> list[Workload]:
    """The workload of each server name: the one not at rest, else the newest; oldest first."""
    chosen: dict[str, Workload] = {}
    for workload in sorted(workloads, key=lambda one: (not one.at_rest, one.created_at)):
        chosen[workload.spec.server_name] = workload
    return list(chosen.values())


def _row(user: Any, workload: Workload) -> Row:
    status, spec = workload.status, workload.spec
    queued = is_queued(workload)
    word, kind = STATES.get(status.phase, (status.phase, "waiting"))
    if queued and workload.holds_resources:
        word, kind = "your turn", "running"
    elif queued:
        word = "in the queue"
    gpu = spec.mig_profile or (rendering.gpus(spec.gpus) if spec.gpus else "")
    size = [gpu] if gpu else []
    size += [rendering.cores(spec.cpu_millicores), rendering.gib(spec.memory_bytes)]
    return Row(
        name=spec.server_name,
        title=spec.server_name or "workspace",
        project=workload.project,
        size=", ".join(size),
        state=word,
        kind=kind,
        sentence=status.reason.sentence if status.reason else "",
        place=place(workload) if queued else None,
        queue_url=user.spawners[spec.server_name].queue_url,
    )
