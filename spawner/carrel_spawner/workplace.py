"""One user's workspace (default or named) as the scheduler knows it: ask, queue, claim, stop.

Knows the REST API and nothing of the Hub. All methods raise ``CarrelError``.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from carrel.client import AsyncClient
from carrel.errors import ApiError, CarrelError
from carrel.models import Workload
from carrel_spawner import surroundings, watching
from carrel_spawner.names import workspace_name
from carrel_spawner.options import Choice

GRACE_SECONDS: Final = 10.0
CLEARING_SECONDS: Final = 30.0
PROFILE: Final = "carrel.dev/profile"
"""Label: the kind of workspace that was chosen, which is needed when its turn comes."""


class Running(Protocol):
    """How a workspace is run at the place that it gets."""

    def fields(self) -> dict[str, Any]:
        """What the scheduler is told of it, when it is asked for a place and at the claim."""
        ...


@dataclass(frozen=True, slots=True)
class Launch:
    """What is to run: the command, the environment in its two parts, and the port it listens on."""

    command: Sequence[str]
    environment: Mapping[str, str]
    secret_environment: Mapping[str, str]
    port: int

    def fields(self) -> dict[str, Any]:
        """See ``Running``."""
        return {
            "command": list(self.command),
            "environment": dict(self.environment),
            "secret_environment": dict(self.secret_environment),
            "port": self.port,
        }


@dataclass(frozen=True, slots=True)
class ByTheHub:
    """The Hub runs it itself, so the scheduler only needs to know the port."""

    port: int

    def fields(self) -> dict[str, Any]:
        """See ``Running``."""
        return {"external": True, "port": self.port}


@dataclass(frozen=True, slots=True)
class Workplace:
    """The workloads that are this user's workspace of this name, one at a time."""

    client: AsyncClient
    user: str
    server_name: str = ""
    grace_seconds: float = GRACE_SECONDS

    @property
    def name(self) -> str:
        """Name of the workload, the same in every project."""
        return workspace_name(self.user, self.server_name)

    async def all(self) -> list[Workload]:
        """Every workload of this workspace, in whatever project and state.

        Other interactive work of the user is of the same kind and has no server name either.
        """
        found = await self.client.list_workloads(user=self.user, kind="workspace")
        return [one for one in found if one.name == self.name]

    async def waiting(self) -> Workload | None:
        """The one in the queue: waiting for its turn, or holding a place that nobody claimed."""
        return next(filter(is_queued, await self.all()), None)

    async def claimable(self, choice: Choice) -> Workload | None:
        """The place that is to be claimed by this start; ``None`` when it is no longer ours."""
        if not choice.claim:
            return None
        try:
            workload = await self.client.get_workload(choice.project, choice.claim)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        ours = (workload.spec.user, workload.spec.server_name) == (self.user, self.server_name)
        return workload if ours and workload.holds_resources else None

    async def request(
        self, choice: Choice, running: Running, *, known: Sequence[Workload] | None = None
    ) -> Workload:
        """Ask for a place now. What is left of an earlier one is ended first.

        ``known`` is what ``all`` said a moment ago; without it, it is asked.
        """
        await self._clear(choice.project, await self.all() if known is None else known)
        return await self.client.create_workload(self._body(choice) | running.fields())

    async def enqueue(self, choice: Choice) -> Workload:
        """Wait in the queue for a place; the scheduler has the Hub start the workspace then."""
        await self._clear(choice.project, await self.all())
        return await self.client.create_workload(self._body(choice) | {"hold_for_claim": True})

    async def claim(self, queued: Workload, running: Running) -> Workload:
        """Use the place that the queue gave."""
        return await self.client.claim(queued.project, queued.name, **running.fields())

    async def withdraw(self, workload: Workload) -> None:
        """End and remove it; it is no error when it is gone."""
        try:
            await self.client.delete_workload(workload.project, workload.name)
        except ApiError as error:
            if error.status != 404:
                raise

    async def stop(self, project: str) -> None:
        """Stop it, keep its record, and wait until nothing of it runs."""
        try:
            stopped = await self.client.suspend(project, self.name)
        except ApiError as error:
            if error.status in (404, 409):  # gone, or ended by itself meanwhile
                return
            raise
        if not stopped.at_rest:
            seconds = self.grace_seconds + CLEARING_SECONDS
            await watching.wait_at_rest(self.client, project, self.name, seconds)

    async def log_tail(self, project: str, lines: int = 20) -> str:
        """The last lines of its log; empty when there are none to be had."""
        try:
            async with contextlib.aclosing(
                self.client.logs(project, self.name, tail=lines)
            ) as pieces:
                return "".join([piece async for piece in pieces])
        except ApiError:
            return ""

    def _body(self, choice: Choice) -> dict[str, Any]:
        return {
            "name": self.name,
            "project": choice.project,
            "kind": "workspace",
            "user": self.user,
            "server_name": self.server_name,
            "gpus": choice.gpus,
            "cpu_millicores": choice.cpu_millicores,
            "memory_bytes": choice.memory_bytes,
            "environment": surroundings.variables(choice.environment, choice.volumes),
            "volumes": [one.as_dict() for one in choice.volumes],
            "labels": {PROFILE: choice.profile} if choice.profile else {},
            "restart_policy": "never",
            "grace_seconds": self.grace_seconds,
        }

    async def _clear(self, project: str, known: Sequence[Workload]) -> None:
        """End what is left of earlier workspaces: stop others', remove ours to free the name."""
        for workload in known:
            if workload.project == project and workload.name == self.name:
                await self.withdraw(workload)
                await watching.wait_gone(
                    self.client, project, self.name, workload.spec.grace_seconds + CLEARING_SECONDS
                )
            elif not workload.at_rest:
                await self.withdraw(workload)


def is_gone(error: CarrelError) -> bool:
    """Whether the scheduler says that there is no such workload."""
    return isinstance(error, ApiError) and error.status == 404


def is_queued(workload: Workload) -> bool:
    """Whether it waits in the queue or holds a place that is to be claimed."""
    return workload.spec.hold_for_claim and not workload.at_rest and workload.spec.port is None
