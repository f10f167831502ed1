"""Runs side by side: parameters, last metrics and curves of jobs and of trials of experiments.

``runs_of`` reads them; the notebook (``carrel.compare``) and the console show the same. An
experiment stands for its trials. A job's parameters are those of its trial or notebook, and what it
reported itself (``carrel.report(params={...})``), which counts more.
"""

import asyncio
import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from carrel.client import AsyncClient
from carrel.errors import ApiError, BadSetting
from carrel.models import Workload
from carrel_schema.answers import TrialOut
from carrel_schema.text.csv_cells import csv_cell

MOST_RUNS: Final = 500
MOST_CURVES: Final = 60
POINTS: Final = 400
_AT_ONCE: Final = 8
Curve = list[tuple[int, float, float]]


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job or trial.

    Attributes:
        label: its name, of a trial ``EXPERIMENT/NUMBER``.
        workload: the name of its workload; empty for a trial whose workload was removed.
        state: its phase, or the state of a trial.
        began: when it started, in epoch seconds.
        seconds: how long it ran, or has run; ``None`` before its start.
        curves: points (step, epoch seconds, value) by metric; only of the first runs.
    """

    label: str
    project: str
    workload: str = ""
    kind: str = "training"
    user: str = ""
    state: str = ""
    began: float | None = None
    seconds: float | None = None
    parameters: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    curves: dict[str, Curve] = {}


class RunTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table of runs: names of its columns, and one mapping for each run.

    ``varying`` are the parameters in which runs differ; they are the first of ``parameters``.
    """

    parameters: list[str]
    varying: list[str]
    metrics: list[str]
    rows: list[dict[str, Any]]

    def csv(self) -> str:
        """The table as CSV, with a line of names; texts that a spreadsheet would run are quoted."""
        written = io.StringIO()
        table = csv.writer(written)
        table.writerow(
            ["run", "project", "kind", "user", "state", "seconds", *self.parameters, *self.metrics]
        )
        for row in self.rows:
            known = [row[name] for name in ("run", "project", "kind", "user", "state", "seconds")]
            values = [row["parameters"].get(name) for name in self.parameters]
            figures = [row["metrics"].get(name) for name in self.metrics]
            table.writerow([_cell(value) for value in (*known, *values, *figures)])
        return written.getvalue()


def sheet_of(runs: Sequence[ComparedRun]) -> RunTable:
    """The table of these runs, in their order."""
    names = sorted({name for run in runs for name in run.parameters})
    varying = [name for name in names if len({repr(run.parameters.get(name)) for run in runs}) > 1]
    rows = [
        {
            "run": run.label,
            "project": run.project,
            "workload": run.workload,
            "kind": run.kind,
            "user": run.user,
            "state": run.state,
            "seconds": run.seconds,
            "parameters": run.parameters,
            "metrics": run.metrics,
        }
        for run in runs
    ]
    return RunTable(
        parameters=[*varying, *(name for name in names if name not in varying)],
        varying=varying,
        metrics=sorted({name for run in runs for name in run.metrics}),
        rows=rows,
    )


def split(reference: str, project: str | None) -> tuple[str, str]:
    """``PROJECT/NAME``, or ``NAME`` in ``project``, as both. Raises ``BadSetting``."""
    before, slash, name = reference.partition("/")
    if slash and before and name and "/" not in name:
        return before, name
    if slash or not reference or not project:
        raise BadSetting(f"{reference!r} is no run; write NAME or PROJECT/NAME.")
    return project, reference


async def runs_of(
    client: AsyncClient,
    references: Iterable[tuple[str, str]],
    now: float,
    *,
    curves: bool = True,
) -> list[ComparedRun]:
    """The runs of these jobs and experiments (project and name), each once, in this order.

    Raises ``ApiError`` for what is not there, ``BadSetting`` for more than ``MOST_RUNS``.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def read(project: str, name: str) -> list[ComparedRun]:
        async with gate:
            workload = await client.get_workload(project, name)
            if workload.spec.kind != "experiment":
                return [run_of(workload, now)]
            return [_trial(workload, row) for row in (await client.trials(project, name)).items]

    found = await asyncio.gather(*(read(*key) for key in dict.fromkeys(references)))
    runs = [run for several in found for run in several]
    if len(runs) > MOST_RUNS:
        raise BadSetting(f"{len(runs)} runs are too many to compare; choose {MOST_RUNS} at most.")
    if not curves:
        return runs

    async def with_curves(run: ComparedRun) -> ComparedRun:
        async with gate:
            return await _with_curves(client, run)

    shown = await asyncio.gather(*(with_curves(run) for run in runs[:MOST_CURVES]))
    return [*shown, *runs[MOST_CURVES:]]


def run_of(workload: Workload, now: float) -> ComparedRun:
    """A job as a run, without its curves."""
    spec, status = workload.spec, workload.status
    began = status.first_started_at or status.started_at
    return ComparedRun(
        label=workload.name,
        project=workload.project,
        workload=workload.name,
        kind=spec.kind,
        user=spec.user,
        state=status.phase,
        began=began,
        seconds=None if began is None else max((status.ended_at or now) - began, 0.0),
        parameters=parameters_of(workload),
        metrics=dict(status.metrics),
    )


def parameters_of(workload: Workload) -> dict[str, Any]:
    """The parameters that a job runs with: as a trial, as a notebook, and as it reported itself."""
    spec = workload.spec
    return {
        **(spec.notebook.parameters if spec.notebook is not None else {}),
        **(spec.trial.parameters if spec.trial is not None else {}),
        **workload.status.parameters,
    }


def _trial(owner: Workload, row: TrialOut) -> ComparedRun:
    return ComparedRun(
        label=f"{owner.name}/{row.number}",
        project=owner.project,
        workload=row.workload,
        kind="trial",
        user=owner.spec.user,
        state=row.state,
        seconds=row.seconds,
        parameters=dict(row.parameters),
        metrics={**row.metrics, **({} if row.value is None else {_metric(owner): row.value})},
        curves={_metric(owner): [(step, 0.0, value) for step, value in row.steps]},
    )


def _metric(owner: Workload) -> str:
    return owner.spec.experiment.metric if owner.spec.experiment is not None else "objective"


async def _with_curves(client: AsyncClient, run: ComparedRun) -> ComparedRun:
    """The run with its curves; a trial's own workload may have been removed meanwhile."""
    if not run.workload:
        return run
    try:
        found = await client.metrics(run.project, run.workload, max_points=POINTS)
    except ApiError as error:
        if error.status != 404:
            raise
        return run
    curves = {
        name: [(point.step, point.at, point.value) for point in points]
        for name, points in sorted(found.items())
    }
    last = {name: points[-1][2] for name, points in curves.items() if points}
    return msgspec.structs.replace(
        run, curves={**run.curves, **curves}, metrics={**last, **run.metrics}
    )


def drawable(runs: Iterable[ComparedRun]) -> list[dict[str, Any]]:
    """The curves of those runs that have some, as JSON for charts."""
    return [
        {"label": run.label, "project": run.project, "curves": msgspec.to_builtins(run.curves)}
        for run in runs
        if any(run.curves.values())
    ]


def _cell(value: Any) -> Any:
    if isinstance(value, Mapping | list):
        return repr(value)
    return "" if value is None else csv_cell(value)
