"""One user's workspace (default or named) as the scheduler knows it: ask, queue, claim, stop.

Knows the REST API and nothing of the Hub. All methods raise ``CarrelError``.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel.models import Workload
from carrel_spawner import watching
from carrel_spawner.names import workspace_name
from carrel_spawner.options import Choice

GRACE_SECONDS: Final = 10.0
CLEARING_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What is to run: the command, the environment in its two parts, and the port it listens on."""

    command: Sequence[str]
    environment: Mapping[str, str]
    secret_environment: Mapping[str, str]
    port: int


@dataclass(frozen=True, slots=True)
class Workplace:
    """The workloads that are this user's workspace of this name, one at a time."""

    client: AsyncClient
    user: str
    server_name: str = ""

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
        self, choice: Choice, launch: Launch, *, known: Sequence[Workload] | None = None
    ) -> Workload:
        """Ask for a place now. What is left of an earlier one is ended first.

        ``known`` is what ``all`` said a moment ago; without it, it is asked.
        """
        await self._clear(choice.project, await self.all() if known is None else known)
        body = self._body(choice) | {
            "command": list(launch.command),
            "environment": dict(launch.environment),
            "secret_environment": dict(launch.secret_environment),
            "port": launch.port,
        }
        return await self.client.create_workload(body)

    async def enqueue(self, choice: Choice) -> Workload:
        """Wait in the queue for a place; the scheduler has the Hub start the workspace then."""
        await self._clear(choice.project, await self.all())
        return await self.client.create_workload(self._body(choice) | {"hold_for_claim": True})

    async def claim(self, queued: Workload, launch: Launch) -> Workload:
        """Use the place that the queue gave."""
        return await self.client.claim(
            queued.project,
            queued.name,
            command=launch.command,
            environment=launch.environment,
            secret_environment=launch.secret_environment,
            port=launch.port,
        )

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
            seconds = GRACE_SECONDS + CLEARING_SECONDS
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
            "restart_policy": "never",
            "grace_seconds": GRACE_SECONDS,
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


def is_queued(workload: Workload) -> bool:
    """Whether it waits in the queue or holds a place that is to be claimed."""
    return workload.spec.hold_for_claim and not workload.at_rest and workload.spec.port is None
