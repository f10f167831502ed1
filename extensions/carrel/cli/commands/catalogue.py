"""``carrel catalogue``: models that can be served, and serving one."""

from collections.abc import Sequence
from typing import Annotated

import typer

from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    ProjectOption,
    connected,
    document,
    note,
    project_of,
    say,
    show,
)
from carrel.errors import BadSetting
from carrel_schema.governance.catalogue import CatalogueEntry

Name = Annotated[str, typer.Argument(metavar="NAME", help="The entry.")]
HEADERS = ("NAME", "MODEL", "GPUs", "GPU MEMORY", "RUNS HERE", "DESCRIPTION")


def list_entries(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List models that you can serve; `carrel catalogue serve NAME`."""
    with connected() as client:
        found = client.catalogue()
    rows = (
        [
            one.name,
            one.source,
            f"{one.gpus:g}",
            f"{one.gpu_memory_gib:g} GiB" if one.gpu_memory_gib else "-",
            "yes" if one.runs_here else "no",
            one.description,
        ]
        for one in found
    )
    show(found, output, HEADERS, rows, no_headers=no_headers, right=("GPUs", "GPU MEMORY"))


def describe(name: Name, *, output: OutputOption = Output.YAML) -> None:
    """Show an entry in full: its model, what it needs, the request that serves it."""
    with connected() as client:
        document(_entry(client.catalogue(), name), output)


def serve(
    name: Name,
    *,
    project: ProjectOption = None,
    called: Annotated[
        str | None, typer.Option("--as", help="The endpoint's name; by default the entry's.")
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option("--environment", "-e", help="K=V, or K=SECRET:NAME,KEY; repeatable."),
    ] = None,
) -> None:
    """Serve a model as an endpoint."""
    from carrel import options
    from carrel.options import Surface

    said = options.read({"environment": environment}, Surface.CLI, ("inference",)).fields
    with connected() as client:
        entry = _entry(client.catalogue(), name)
        if not entry.runs_here:
            note(f"It will wait: {entry.why_not}")
        body = {
            "kind": "inference",
            "template": entry.name,
            "project": project_of(client, project),
            "name": called or entry.name,
            "environment": said.get("environment", {}),
        }
        made = client.create_workload(body)
    say(f"Endpoint {made.name} submitted successfully.")
    say("You can check the status of the endpoint by running:")
    say(f"carrel describe job {made.name} -p {made.project}")


def _entry(entries: Sequence[CatalogueEntry], name: str) -> CatalogueEntry:
    for one in entries:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in entries)
    raise BadSetting(f"The catalogue has no `{name}`; it has {known or 'no entries'}.")
