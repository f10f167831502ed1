"""``carrel workspace``: your workspaces on the Hub: made, listed, started, copied, removed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel.cli import addresses
from carrel.cli.context import connected
from carrel.cli.output import (
    NoHeaders,
    Output,
    OutputOption,
    document,
    fields,
    for_programs,
    say,
    show,
)
from carrel.cli.shared_options import sharing
from carrel.cli.workspace_options import FIELDS, WorkspaceOptions, written
from carrel.errors import BadSetting

if TYPE_CHECKING:
    from carrel.client.workspaces import Server, Workspaces

COLUMNS = ("NAME", "STATUS", "PROJECT", "GPU(s)", "CPU(s)", "MEMORY", "ENVIRONMENT", "URL")
NUMBERS = ("GPU(s)", "CPU(s)", "MEMORY")
DEFAULT = "(default)"
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="By default the default workspace.")]
Named = Annotated[str, typer.Argument(metavar="NAME", help="The workspace.")]


@contextmanager
def _workspaces() -> "Iterator[tuple[Workspaces, str]]":
    from carrel.client.workspaces import Workspaces

    with connected() as client, Workspaces(client) as found:
        yield found, addresses.hub_of(client.settings.url)


def list_workspaces(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List your workspaces, stopped ones too."""
    with _workspaces() as (workspaces, hub):
        found = workspaces.all()
    rows = (_row(one, hub) for one in found)
    show(found, output, COLUMNS, rows, no_headers=no_headers, right=NUMBERS)


def describe(name: Name = "", *, output: OutputOption = Output.TABLE) -> None:
    """Show a workspace in full; its YAML is what `create -f` takes."""
    with _workspaces() as (workspaces, hub):
        one = workspaces.get(name)
    known = one.user_options or {}
    chosen = {key: known[key] for key in FIELDS if key in known}
    if for_programs(output):
        document({"name": one.name} | chosen, output)
        return
    row = dict(zip(COLUMNS, _row(one, hub), strict=True))
    fields(
        [
            ("Name", row["NAME"]),
            ("Status", row["STATUS"]),
            ("Project", row["PROJECT"]),
            ("GPUs", row["GPU(s)"]),
            ("Processors", row["CPU(s)"]),
            ("Memory", row["MEMORY"]),
            ("Environment", row["ENVIRONMENT"]),
            ("Volumes", ", ".join(_spelt(volume) for volume in chosen.get("volumes", []))),
            ("URL", f"{hub}{one.url}"),
        ]
    )


@sharing(WorkspaceOptions)
def create(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Of the new workspace.")] = "",
    *,
    options: WorkspaceOptions,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="Read it from a YAML file; - for standard input."),
    ] = None,
) -> None:
    """Make a workspace and start it."""
    named, definition = written(file)
    if not (name or named):
        raise BadSetting("What is it to be called? `carrel workspace create NAME`.")
    with _workspaces() as (workspaces, hub):
        workspaces.create(name or named, definition | options.definition())
        _say_where(workspaces, name or named, hub)


@sharing(WorkspaceOptions)
def start(name: Name = "", *, options: WorkspaceOptions) -> None:
    """Start a workspace as it was last, or as these options say."""
    with _workspaces() as (workspaces, hub):
        workspaces.start(name, options.definition())
        _say_where(workspaces, name, hub)


def stop(name: Name = "") -> None:
    """Stop a workspace; its files and its definition stay."""
    with _workspaces() as (workspaces, _):
        workspaces.stop(name)
    say(f"Workspace {name or DEFAULT} is stopping.")


def clone(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The one to copy; '' is the default.")
    ],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="Of the copy.")],
) -> None:
    """Start a copy of a workspace's definition under a new name."""
    with _workspaces() as (workspaces, hub):
        workspaces.clone(name, new_name)
        _say_where(workspaces, new_name, hub)


def delete(name: Named) -> None:
    """Stop a named workspace and forget its definition; files stay."""
    with _workspaces() as (workspaces, _):
        workspaces.delete(name)
    say(f"Workspace {name} is being deleted; your files stay.")


def _say_where(workspaces: "Workspaces", name: str, hub: str) -> None:
    say(f"Workspace {name or DEFAULT} is starting: {hub}{workspaces.get(name).url}")


def _row(one: "Server", hub: str) -> list[str]:
    chosen = one.user_options or {}
    status = {"spawn": "Starting", "stop": "Stopping"}.get(one.pending or "")
    return [
        one.name or DEFAULT,
        status or ("Running" if one.ready else "Stopped"),
        str(chosen.get("project", "-")),
        f"{chosen.get('gpus', 0):g}",
        f"{chosen['cpu']:g}" if "cpu" in chosen else "-",
        f"{chosen['memory_gib']:g} GiB" if "memory_gib" in chosen else "-",
        chosen.get("environment") or chosen.get("profile") or "-",
        f"{hub}{one.url}" if one.ready else "-",
    ]


def _spelt(volume: Any) -> str:
    """As ``-v`` takes it; the Hub may have it as it was written."""
    if isinstance(volume, str):
        return volume
    from carrel.models import Volume

    return Volume(**volume).spelt
