"""The live view of an experiment: its trials, the best so far, and what the parameters do."""

import asyncio
import html
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import traitlets
from typing_extensions import override

from carrel import wording
from carrel.client import AsyncClient, Client
from carrel.client.shared_events import listening
from carrel.errors import ApiError
from carrel.models import Event, Workload
from carrel.widgets import bundle, static_html
from carrel.widgets.experiment_state import ExperimentState
from carrel.widgets.live import WorkView

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
        self._search, self._complete = ExperimentState(workload), False
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
        return max(super().pace(), len(self._search.trials) / TRIALS_A_SECOND)

    @override
    async def follow(self) -> None:
        search, client = self._search, self._client.aio
        stale = asyncio.Event()
        asking = asyncio.create_task(self._ask_again(client, stale))
        try:
            async with listening(client, search.workload.project) as events:
                async for event in events:
                    if asking.done():
                        asking.result()
                    if event is None:
                        await self._ask(client)
                    elif search.concerns(event):
                        if search.take(event):
                            stale.set()
                        self.touch()
                    if self._ended:
                        break
            if not search.gone:
                await self._ask(client)
        except ApiError as error:
            if error.status != 404:
                raise
            search.gone = True
        finally:
            asking.cancel()
        self._complete = self._ended

    async def _ask_again(self, client: AsyncClient, stale: asyncio.Event) -> None:
        """Request the table when it has changed, four times less often than the page is updated."""
        while True:
            await stale.wait()
            stale.clear()
            await self._ask(client)
            await asyncio.sleep(4 * self.pace())

    async def _ask(self, client: AsyncClient) -> None:
        found = self._search.workload
        table = await client.trials(found.project, found.name)
        now = await client.get_workload(found.project, found.name)
        self._search.take_trials(table.items)
        self._search.take(Event(type="workload", workload=now))
        self.touch()

    @property
    def _ended(self) -> bool:
        return self._search.phase in ("succeeded", "failed", "deleted")

    @override
    def fallback(self) -> dict[str, Any]:
        search, traits = self._search, self._search.traits()
        line = wording.summary(search.workload, time.time())
        best = search.best()
        best_text = "" if best is None else f"; best {best.value:.4g} in trial {best.number}"
        body = (
            static_html.job_card(traits["job"], ()) + static_html.history(search) + _table(search)
        )
        return {
            "text/plain": line + best_text,
            "text/html": f"<div>{body}</div>",
            MIME: {
                "experiment": msgspec.to_builtins(search.workload),
                "trials": traits["trials"],
            },
        }


def _table(search: ExperimentState) -> str:
    """The trials as plain HTML."""
    trials = search.in_order()
    if not trials:
        return html.escape("No trial has begun yet.")
    names = list(dict.fromkeys(name for trial in trials for name in trial.parameters))
    rows = [
        [
            str(trial.number),
            static_html.escape(trial.state),
            "" if trial.value is None else f"{trial.value:.4g}",
            *(static_html.escape(trial.parameters.get(name, "")) for name in names),
        ]
        for trial in trials
    ]
    return static_html.table("Trials", ("Trial", "State", search.metric, *names), rows)
