"""``carrel model``: versions of models, of the runs that made them."""

from pathlib import Path
from typing import Annotated

import typer

from carrel import units
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    ProjectOption,
    connected,
    fields,
    for_programs,
    project_of,
    say,
    show,
)
from carrel.cli.common import document as show_document
from carrel.errors import BadSetting

ModelName = Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]
ModelVersion = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="The model; by default its latest version.")
]


def version_of(text: str) -> tuple[str, int | None]:
    """Name and number of ``NAME@3``. Raises ``BadSetting``."""
    name, found, number = text.partition("@")
    if found and not number.isdecimal():
        raise BadSetting(f"{text!r} is no version of a model; write {name}@1.")
    return name, int(number) if found else None


def register(
    name: ModelName,
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="JOB[:PATH]", help="The run, and its artifact.")
    ],
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", help="A checkpoint of the run, in place of an artifact.")
    ] = "",
    description: Annotated[str, typer.Option("--description", help="What it is.")] = "",
    project: ProjectOption = None,
) -> None:
    """Make the next version of a model: `carrel model register digits --from train-7:model.pt`."""
    job, _, path = source.partition(":")
    with connected(timeout=600.0) as client:
        made = client.register_model(
            project_of(client, project),
            name,
            job,
            path,
            checkpoint=checkpoint,
            description=description,
        )
    say(f"Model {made.name}@{made.version} registered ({units.size(made.size)}).")


def list_models(
    *,
    project: ProjectOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the models of a project."""
    with connected() as client:
        found = client.models(project_of(client, project))
    rows = [
        (
            f"{one.name}@{one.version}",
            one.workload,
            one.user,
            units.size(one.size),
            units.stamp(one.created_at),
            one.description.partition("\n")[0],
        )
        for one in found
    ]
    headers = ("MODEL", "RUN", "USER", "SIZE", "REGISTERED", "DESCRIPTION")
    show(found, output, headers, rows, no_headers=no_headers, right=("SIZE",))


def describe(
    model: ModelVersion, *, project: ProjectOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show one version of a model."""
    name, version = version_of(model)
    with connected() as client:
        versions = client.model(project_of(client, project), name)
    wanted = [one for one in versions if version in (None, one.version)]
    if not wanted:
        known = ", ".join(str(one.version) for one in versions)
        raise BadSetting(f"There is no {model}; {name} has the versions {known}.")
    one = wanted[-1]
    if for_programs(output):
        show_document(one, output)
        return
    fields(
        [
            ("Model", f"{one.name}@{one.version}"),
            ("Project", one.project),
            ("Description", one.description),
            ("Run", one.workload),
            ("Of the run", one.path or "all artifacts"),
            ("Registered", f"{units.stamp(one.created_at)} by {one.user}"),
            ("Size", units.size(one.size)),
            ("Metrics", ", ".join(f"{key}={value:g}" for key, value in one.metrics.items())),
            ("Parameters", ", ".join(f"{key}={value}" for key, value in one.parameters.items())),
            ("Serve it", f"carrel submit --inference --model {one.name}@{one.version} ..."),
        ]
    )


def delete(model: ModelVersion, *, project: ProjectOption = None) -> None:
    """Delete a version of a model; its number is not given again."""
    name, version = version_of(model)
    if version is None:
        raise BadSetting(f"Which version? `carrel model delete {name}@1`.")
    with connected() as client:
        client.delete_model(project_of(client, project), name, version)
    say(f"Model {name}@{version} deleted.")


def download(
    model: ModelVersion,
    *,
    to: Annotated[Path, typer.Option("--to", help="The folder its files go to.")] = Path(),
    project: ProjectOption = None,
) -> None:
    """Copy the files of a version of a model here."""
    name, version = version_of(model)
    to.mkdir(parents=True, exist_ok=True)
    with connected() as client:
        written = client.download_model(project_of(client, project), name, version, to)
    say(f"{len(written)} {'file' if len(written) == 1 else 'files'} copied to {to}.")
