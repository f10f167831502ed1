"""``carrel workspace``: your workspaces on the Hub, listed, started, stopped, copied, removed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel.cli import addresses
from carrel.cli.context import connected
from carrel.cli.output import NoHeaders, Output, OutputOption, say, show

if TYPE_CHECKING:
    from carrel.client.workspaces import Server, Workspaces

COLUMNS = ("NAME", "STATUS", "PROJECT", "GPU(s)", "CPU(s)", "MEMORY", "URL")
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


def start(
    name: Name = "",
    *,
    project: Annotated[str | None, typer.Option("--project", "-p", help="Its project.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", "-g", min=0, help="GPUs.")] = None,
    cpu: Annotated[float | None, typer.Option("--cpu", min=0.1, help="Processor cores.")] = None,
    memory: Annotated[
        float | None, typer.Option("--memory", min=0.25, help="Memory in GiB.")
    ] = None,
) -> None:
    """Start a workspace as it was last, or a new one as these options say."""
    asked = {"project": project, "gpus": gpus, "cpu": cpu, "memory_gib": memory}
    definition: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
    with _workspaces() as (workspaces, hub):
        workspaces.start(name, definition)
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
    chosen = one.user_options
    status = {"spawn": "Starting", "stop": "Stopping"}.get(one.pending or "")
    return [
        one.name or DEFAULT,
        status or ("Running" if one.ready else "Stopped"),
        str(chosen.get("project", "-")),
        f"{chosen.get('gpus', 0):g}",
        f"{chosen['cpu']:g}" if "cpu" in chosen else "-",
        f"{chosen['memory_gib']:g} GiB" if "memory_gib" in chosen else "-",
        f"{hub}{one.url}" if one.ready else "-",
    ]
