"""Experiments: their trials, their study, and jobs made of the best trial."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from carrel.client.resources.workloads import WorkloadMethods
from carrel.client.transport import segment
from carrel.models import Workload
from carrel_schema.answers import Draft, TrialLog, Trials
from carrel_schema.history import StudyLog

LOG_PAGE: Final = 10_000


def experiment_path(project: str, name: str, part: str) -> str:
    """The path of a part of an experiment."""
    return f"/experiments/{segment(project)}/{segment(name)}/{part}"


class ExperimentMethods(WorkloadMethods):
    """Read experiments, and submit a workload with the best trial's parameters."""

    async def trials(self, project: str, name: str) -> Trials:
        """Read the trials of an experiment."""
        return await self._transport.ask("GET", experiment_path(project, name, "trials"), Trials)

    async def trial_log(self, project: str, name: str, trial: int) -> str:
        """The end of what a trial printed that a worker ran."""
        path, parameters = experiment_path(project, name, "trial-log"), {"trial": trial}
        answer = await self._transport.ask("GET", path, TrialLog, parameters=parameters)
        return answer.log

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
            "POST", experiment_path(project, name, "best"), Draft, body=body, repeatable=True
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
        environment = {**draft.workload["environment"], **more.get("environment", {})}
        body = {**draft.workload, **more, "environment": environment}
        return await self.create_workload(body)

    async def study_log(self, project: str, name: str, *, first: int = 0) -> list[dict[str, Any]]:
        """Entries of the study's log from a number on, in Optuna's journal format."""
        found: list[dict[str, Any]] = []
        while True:
            page = await self._transport.ask(
                "GET",
                experiment_path(project, name, "log"),
                StudyLog,
                parameters={"first": first + len(found), "limit": LOG_PAGE},
            )
            found += (msgspec.json.decode(entry) for entry in page.entries)
            if len(page.entries) < LOG_PAGE:
                return found
