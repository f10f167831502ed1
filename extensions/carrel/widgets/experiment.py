"""The live view of an experiment: its trials, the best so far, and what the parameters do."""

import html
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import traitlets
from typing_extensions import override

from carrel.client import AsyncClient, Client
from carrel.errors import ApiError
from carrel.models import Event, Workload
from carrel.notebook import words
from carrel.widgets import bundle, page, pictures
from carrel.widgets.feed import listening
from carrel.widgets.trials import Search, Trial, trial_of
from carrel.widgets.work import WorkView

MIME = "application/vnd.carrel.experiment+json"
TRIALS_A_SECOND = 400


class ExperimentView(WorkView):
    """State, counts, the best trial, the table of trials and pictures of them.

    Attributes:
        search: what is sought and how, the counts, the best trial, the parameters' importance.
        trials: one mapping for each trial, by number.
    """

    _esm = bundle.module(*bundle.WORK, "tensorboard.js", "charts.js", "trials.js", "experiment.js")
    _css = bundle.text("views.css")

    search = traitlets.Dict().tag(sync=True)
    trials: Any = traitlets.List().tag(sync=True)

    def __init__(self, client: Client, workload: Workload) -> None:
        self._search, self._complete = Search(workload), False
        super().__init__(client, **self._search.traits())

    @property
    @override
    def workload(self) -> Workload:
        return self._search.workload

    @property
    @override
    def settled(self) -> bool:
        return self._complete

    @override
    def present(self) -> Mapping[str, Any]:
        return self._search.traits()

    @override
    def pace(self) -> float:
        return max(self.pause, len(self._search.trials) / TRIALS_A_SECOND)

    @override
    async def follow(self) -> None:
        search, client = self._search, self._client.aio
        try:
            async with listening(client, search.workload.project) as events:
                async for event in events:
                    if event is None:
                        await self._ask(client)
                    else:
                        search.take(event)
                    self.touch()
                    if self._ended:
                        break
            if not search.gone:
                search.take_trials(await trials_of(client, search.workload))
        except ApiError as error:
            if error.status != 404:
                raise
            search.gone = True
        self._complete = self._ended

    async def _ask(self, client: AsyncClient) -> None:
        found = self._search.workload
        now = await client.get_workload(found.project, found.name)
        self._search.take_trials(await trials_of(client, now))
        self._search.take(Event(type="workload", workload=now))

    @property
    def _ended(self) -> bool:
        return self._search.phase in ("succeeded", "failed", "deleted")

    @override
    def fallback(self) -> dict[str, Any]:
        search, traits = self._search, self._search.traits()
        line = words.summary(search.workload, time.time())
        best = search.best()
        told = "" if best is None else f"; best {best.value:.4g} in trial {best.number}"
        body = page.job_card(traits["job"], ()) + pictures.history(search) + _table(search)
        return {
            "text/plain": line + told,
            "text/html": f"<div>{body}</div>",
            MIME: {
                "experiment": msgspec.to_builtins(search.workload),
                "trials": traits["trials"],
            },
        }


async def trials_of(client: AsyncClient, experiment: Workload) -> list[Trial]:
    """All trials of an experiment that are still listed. Raises ``CarrelError``."""
    metric = experiment.spec.experiment.metric if experiment.spec.experiment else ""
    parts = await client.list_workloads(project=experiment.project, kind="trial")
    found = (trial_of(part, metric) for part in parts if part.spec.owner == experiment.uid)
    return [trial for trial in found if trial is not None]


def _table(search: Search) -> str:
    """The trials as plain HTML."""
    trials = search.in_order()
    if not trials:
        return html.escape("No trial has begun yet.")
    names = list(dict.fromkeys(name for trial in trials for name in trial.parameters))
    rows = [
        [
            str(trial.number),
            page.escape(trial.state),
            "" if trial.value is None else f"{trial.value:.4g}",
            *(page.escape(trial.parameters.get(name, "")) for name in names),
        ]
        for trial in trials
    ]
    return page.table("Trials", ("Trial", "State", search.metric, *names), rows)
