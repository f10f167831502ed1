"""``carrel run-notebook``, ``schedule`` and ``tensorboard``: notebooks as work, curves of jobs."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from carrel import options
from carrel.cli.commands import submit
from carrel.cli.commands.submit import send
from carrel.cli.common import ProjectOption, connected, project_of, say
from carrel.cli.typer_options import with_rows
from carrel.options import EVERY, Surface

# Options that the command's words cover, or that have no meaning for a whole notebook.
SPOKEN: Final = frozenset({"notebook", "schedule", "runs", "tty", "rm", "file"})
NotebookPath = Annotated[str, typer.Argument(metavar="PATH", help="The notebook's file.")]


def _rows(kind: str) -> tuple[options.Option, ...]:
    return tuple(row for row in options.rows(Surface.CLI, [kind]) if row.flag not in SPOKEN)


@with_rows(_rows("notebook"))
def run_notebook(path: NotebookPath, **chosen: Any) -> None:
    """Run a notebook as a job: `carrel run-notebook report.ipynb --param year=2026`."""
    asked = options.read(chosen, Surface.CLI, ["notebook"])
    fields = _about(path, "notebook", asked.fields)
    if fields.keys().isdisjoint(("name", "name_prefix")):
        from carrel.client.notebooks import prefix_of

        fields["name_prefix"] = prefix_of(path, EVERY["notebook"].prefix)
    send({"kind": "notebook", **fields}, dry_run="dry-run" in asked.own)


@with_rows(tuple(row for row in _rows("schedule") if row.flag not in ("name", "name-prefix")))
def schedule(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the schedule.")],
    cron: Annotated[str, typer.Argument(metavar="CRON", help="Five fields, quoted.")],
    path: NotebookPath,
    **chosen: Any,
) -> None:
    """Run a notebook by the clock: `carrel schedule nightly '30 2 * * *' report.ipynb`."""
    asked = options.read(chosen, Surface.CLI, ["schedule"])
    fields = _about(path, "schedule", asked.fields)
    clock = {**fields.pop("schedule", {}), "cron": cron, "runs": "notebook"}
    body = {"kind": "schedule", "name": name, "schedule": clock, **fields}
    send(body, dry_run="dry-run" in asked.own)


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the job.")],
    *,
    to: Annotated[
        str | None, typer.Option("--to", "-o", metavar="FILE", help="Where it goes.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Save the executed notebook of a job of a cluster here."""
    from carrel.client import notebooks

    with connected() as client:
        path = notebooks.fetch(client, name, project=project_of(client, project), to=to)
    say(f"{path} is the executed notebook of {name}.")


def tensorboard(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Of one project.")],
    *,
    project: ProjectOption = None,
) -> None:
    """Show curves of jobs in TensorBoard; prints its address."""
    from carrel.cli import cells
    from carrel.client import notebooks

    with connected() as client:
        board = notebooks.tensorboard(client, jobs, project=project_of(client, project))
        hub = cells.hub_of(client.settings.url)
    say(f"TensorBoard {board.name}: {hub}/services/gateway/{board.project}/{board.name}/")
    say("It is there in some seconds, and stops when nobody has looked for half an hour.")


def _about(path: str, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The request's fields with the notebook sent along, or named by its path."""
    section = {**fields.get("notebook", {}), "path": str(Path(path))}
    return submit.with_notebook(kind, {**fields, "notebook": section})
