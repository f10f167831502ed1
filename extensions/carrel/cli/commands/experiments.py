"""``carrel experiment``: searches for hyperparameters, their trials, the best of them."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from carrel import units
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    ProjectOption,
    connected,
    document,
    for_programs,
    project_of,
    say,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from carrel.models import Workload
    from carrel_schema.answers import TrialOut

NOTHING = "-"
COLUMNS = ("NAME", "STATUS", "PROJECT", "TRIALS", "PRUNED", "FAILED", "BEST", "IN TRIAL")
NUMBERS = ("TRIALS", "PRUNED", "FAILED", "BEST", "IN TRIAL")
TRIAL_COLUMNS = ("TRIAL", "STATE", "VALUE", "PARAMETERS", "STEPS", "TIME", "ATTEMPT", "ERROR")
TRIAL_NUMBERS = ("TRIAL", "VALUE", "STEPS", "ATTEMPT")
LONGEST_ERROR = 60
Name = Annotated[str, typer.Argument(metavar="NAME", help="The experiment.")]


class BestKind(StrEnum):
    """The kinds of work that can be made of the best trial."""

    TRAINING = "training"
    INFERENCE = "inference"


def list_experiments(
    *,
    project: ProjectOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List experiments with how far they are and their best values."""
    from carrel.cli import cells

    with connected() as client:
        found = client.list_workloads(project_of(client, project), kind="experiment")
    rows = ([one.name, cells.status_word(one), one.project, *_counts(one)] for one in found)
    show(found, output, COLUMNS, rows, no_headers=no_headers, right=NUMBERS)


def _counts(one: "Workload") -> list[str]:
    spec, now = one.spec.experiment, one.status.experiment
    wanted = 0 if spec is None else spec.completions
    if now is None:
        return [f"0/{wanted}", "0", "0", NOTHING, NOTHING]
    done = now.completed + now.pruned + now.failed
    return [
        f"{done}/{wanted}",
        str(now.pruned),
        str(now.failed),
        _value(now.best_value),
        NOTHING if now.best_trial is None else str(now.best_trial),
    ]


def trials(
    name: Name,
    *,
    project: ProjectOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the trials of an experiment: parameters, values, errors."""
    with connected() as client:
        found = client.trials(project_of(client, project), name)
    rows = (_row(one, best=one.number == found.best) for one in found.items)
    show(found, output, TRIAL_COLUMNS, rows, no_headers=no_headers, right=TRIAL_NUMBERS)


def log(
    name: Name,
    trial: Annotated[int, typer.Argument(metavar="TRIAL", min=0, help="Its number.")],
    *,
    project: ProjectOption = None,
) -> None:
    """Show the end of what a trial printed that a worker ran."""
    with connected() as client:
        text = client.trial_log(project_of(client, project), name, trial)
    say(text.rstrip("\n"))


def _row(trial: "TrialOut", *, best: bool) -> list[str]:
    last = trial.error.rstrip().rpartition("\n")[2]
    return [
        f"{trial.number}{'*' if best else ''}",
        trial.state,
        _value(trial.value),
        _parameters(trial.parameters) or NOTHING,
        str(len(trial.steps)),
        NOTHING if trial.seconds is None else units.duration(trial.seconds),
        str(trial.attempt),
        last if len(last) <= LONGEST_ERROR else f"{last[: LONGEST_ERROR - 1]}…",
    ]


def _parameters(values: "Mapping[str, Any]") -> str:
    return ", ".join(
        f"{name}={one:.4g}" if isinstance(one, float) else f"{name}={one}"
        for name, one in values.items()
    )


def _value(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.6g}"


def best(
    context: typer.Context,
    name: Name,
    *,
    project: ProjectOption = None,
    run: Annotated[
        bool, typer.Option("--run", help="Submit it; a command behind -- replaces its own.")
    ] = False,
    new_name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="What to call it.")
    ] = None,
    kind: Annotated[
        BestKind, typer.Option("--kind", help="Train it longer, or serve it.")
    ] = BestKind.TRAINING,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the best trial, or with --run submit a job with its parameters."""
    command = context.obj.rest
    with connected() as client:
        where = project_of(client, project)
        draft = client.draft_best(where, name, kind=kind.value, new_name=new_name, command=command)
        row = next(one for one in client.trials(where, name).items if one.number == draft.trial)
        if run:
            made = client.create_workload(draft.workload)
    if for_programs(output):
        document(made if run else draft, output)
        return
    say(f"Trial {row.number}: {_value(row.value)}")
    for parameter, value in row.parameters.items():
        say(f"  {parameter} = {json.dumps(value)}")
    if run:
        say(f"Job {made.name} submitted successfully with these parameters.")
        if draft.secrets:
            say(f"It has not the experiment's secrets: {', '.join(draft.secrets)}.")


def export(
    name: Name,
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as sqlite:///sweep.db.")],
    *,
    project: ProjectOption = None,
) -> None:
    """Copy an experiment's study into a database that Optuna's tools open by URL."""
    import optuna

    from carrel.study import optuna_storage

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with connected() as client:
        study = f"{project_of(client, project)}/{name}"
        optuna.copy_study(
            from_study_name=study, from_storage=optuna_storage(client), to_storage=url
        )
    say(f"Study {study} was copied to {url}.")
