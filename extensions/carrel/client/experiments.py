"""The client's part for experiments: asynchronous, and the same for plain code."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from carrel.client.loop import BackgroundLoop
from carrel.client.transport import Transport, segment
from carrel.models import Workload
from carrel.models.experiments import Draft, StudyLog, Trials

if TYPE_CHECKING:
    from carrel.client.aio import AsyncClient

LOG_PAGE: Final = 10_000


def _path(project: str, name: str, part: str) -> str:
    return f"/experiments/{segment(project)}/{segment(name)}/{part}"


class Experiments:
    """Read experiments, and make something of their best trial."""

    _transport: Transport

    async def trials(self, project: str, name: str) -> Trials:
        """All trials of an experiment."""
        return await self._transport.ask("GET", _path(project, name, "trials"), Trials)

    async def draft_best(
        self,
        project: str,
        name: str,
        *,
        kind: str = "training",
        new_name: str | None = None,
        command: list[str] | None = None,
    ) -> Draft:
        """The body of a workload with the best trial's parameters; nothing is submitted.

        Args:
            project: the experiment's project.
            name: the experiment's name.
            kind: ``training`` or ``inference``.
            new_name: of the workload; the experiment's with ``-best`` by default.
            command: instead of the experiment's; ``{parameter}`` stands for a value.
        """
        body = {"kind": kind, "name": new_name, "command": command}
        return await self._transport.ask(
            "POST", _path(project, name, "best"), Draft, body=body, repeatable=True
        )

    async def run_best(
        self,
        project: str,
        name: str,
        *,
        kind: str = "training",
        new_name: str | None = None,
        command: list[str] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> Workload:
        """Submit a workload with the best trial's parameters; ``changes`` are fields of its body.

        Environments are put together, all else in ``changes`` replaces what the draft has.
        """
        draft = await self.draft_best(project, name, kind=kind, new_name=new_name, command=command)
        more = dict(changes or {})
        told = {**draft.workload["environment"], **more.get("environment", {})}
        body = {**draft.workload, **more, "environment": told}
        return await self._submit(body)

    async def _submit(self, body: Mapping[str, Any]) -> Workload:
        return await self._transport.ask("POST", "/workloads", Workload, body=body)

    async def study_log(self, project: str, name: str, *, first: int = 0) -> list[dict[str, Any]]:
        """Entries of the study's log from a number on, in Optuna's journal format."""
        found: list[dict[str, Any]] = []
        while True:
            page = await self._transport.ask(
                "GET",
                _path(project, name, "log"),
                StudyLog,
                parameters={"first": first + len(found), "limit": LOG_PAGE},
            )
            found += page.entries
            if len(page.entries) < LOG_PAGE:
                return found


class PlainExperiments:
    """``Experiments`` for plain code; see there."""

    aio: "AsyncClient"
    loop: BackgroundLoop

    def trials(self, project: str, name: str) -> Trials:
        """All trials of an experiment."""
        return self.loop.run(self.aio.trials(project, name))

    def draft_best(
        self,
        project: str,
        name: str,
        *,
        kind: str = "training",
        new_name: str | None = None,
        command: list[str] | None = None,
    ) -> Draft:
        """The body of a workload with the best trial's parameters."""
        return self.loop.run(
            self.aio.draft_best(project, name, kind=kind, new_name=new_name, command=command)
        )

    def run_best(
        self,
        project: str,
        name: str,
        *,
        kind: str = "training",
        new_name: str | None = None,
        command: list[str] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> Workload:
        """Submit a workload with the best trial's parameters."""
        return self.loop.run(
            self.aio.run_best(
                project, name, kind=kind, new_name=new_name, command=command, changes=changes
            )
        )

    def study_log(self, project: str, name: str, *, first: int = 0) -> list[dict[str, Any]]:
        """Entries of the study's log from a number on."""
        return self.loop.run(self.aio.study_log(project, name, first=first))
