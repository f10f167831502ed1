"""``carrel workspace``: your workspaces on the Hub: made, listed, started, copied, removed.

A workspace is described by options, or by a YAML file with the Hub's own fields; options win. What
an environment's name means is the Hub's: one that begins with a slash is a folder, any other one a
profile that the administrator offers.
"""

import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Option

from carrel.cli.commands.submit import documents
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    connected,
    document,
    fields,
    for_programs,
    say,
    show,
)
from carrel.cli.typer_options import with_record
from carrel.errors import BadSetting
from carrel.options import values

if TYPE_CHECKING:
    from carrel.client.workspaces import Workspaces, WorkspaceServer


FIELDS: Final = (
    *("project", "gpus", "gpu_memory_gib", "cpu", "memory_gib"),
    *("profile", "environment", "volumes"),
    *("environment_asset", "compute", "data"),
)
BYTES_PER_GIB: Final = 1024**3
Texts = list[str] | None
Text = str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceOptions:
    """Options of a workspace; ``None``: not given."""

    project: Annotated[Text, Option("--project", "-p", help="Its project.")] = None
    gpus: Annotated[
        Text,
        Option("--gpus", "-g", metavar=values.GPUS.shown, help="GPUs; 0.5: a part of one."),
    ] = None
    gpu_memory: Annotated[
        Text,
        Option(
            "--gpu-memory",
            metavar=values.GPU_MEMORY.shown,
            help="Memory of a GPU that it shares, in place of GPUs: 5G.",
        ),
    ] = None
    cpu: Annotated[float | None, Option("--cpu", min=0.1, help="Processor cores.")] = None
    memory: Annotated[float | None, Option("--memory", min=0.25, help="Memory in GiB.")] = None
    environment: Annotated[
        Text,
        Option(
            "--environment",
            "-e",
            metavar="NAME|FOLDER",
            help="Python of its notebooks: one that is offered, or the folder of your own.",
        ),
    ] = None
    volume: Annotated[
        Texts,
        Option(
            "--volume",
            "-v",
            metavar=values.VOLUME.shown,
            help="A folder to see in the home, and where; ro: only to read; may be repeated.",
        ),
    ] = None

    environment_asset: Annotated[
        Text,
        Option(
            "--environment-asset",
            metavar="NAME",
            help="An environment, by name: variables, and on a cluster the image.",
        ),
    ] = None
    compute: Annotated[
        Text,
        Option(
            "--compute",
            metavar="NAME",
            help="A compute resource, by name: GPUs, cores and memory.",
        ),
    ] = None
    data: Annotated[
        Texts,
        Option("--data", metavar="NAME", help="A data source, by name; may be repeated."),
    ] = None

    def definition(self) -> dict[str, Any]:
        """The Hub's fields of the options that were given. Raises ``BadSetting``."""
        asked = {
            "project": self.project,
            **_gpus(self.gpus, self.gpu_memory),
            "cpu": self.cpu,
            "memory_gib": self.memory,
            **_python(self.environment),
            "volumes": None if not self.volume else [_folder(one) for one in self.volume],
            "environment_asset": self.environment_asset,
            "compute": self.compute,
            "data": self.data or None,
        }
        return {key: value for key, value in asked.items() if value is not None}


def written(file: str | None) -> tuple[str, dict[str, Any]]:
    """The name (empty: none) and the definition in a file. Raises ``BadSetting``."""
    if file is None:
        return "", {}
    found = [one for one in documents(file) if one is not None]
    if len(found) != 1 or not isinstance(found[0], Mapping):
        raise BadSetting(f"{file} should hold one workspace, such as `project: vision`.")
    definition = dict(found[0])
    for field in definition:
        if field not in ("name", *FIELDS):
            close = difflib.get_close_matches(str(field), FIELDS, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(FIELDS)}."
            raise BadSetting(f"{file}: there is no field `{field}`; {hint}", code="unknown_field")
    return str(definition.pop("name", "")), definition


def _gpus(gpus: str | None, memory: str | None) -> dict[str, float]:
    """GPUs, or memory of one; what is asked for replaces the other."""
    asked: dict[str, float] = {}
    if memory is not None:
        size = values.GPU_MEMORY.read(memory)
        asked = {"gpus": 0, "gpu_memory_gib": size / BYTES_PER_GIB}
    if gpus is not None:
        asked = {"gpu_memory_gib": 0, **asked, "gpus": values.GPUS.read(gpus)}
    return asked


def _python(text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    own = text.startswith(("/", "~/"))
    return {"environment": text} if own else {"profile": text, "environment": ""}


def _folder(text: str) -> dict[str, Any]:
    """A volume as the Hub takes it: without a destination when it is the source."""
    volume: dict[str, Any] = values.VOLUME.read(text)
    if volume["destination"] == volume["source"]:
        del volume["destination"]
    return volume


COLUMNS = ("NAME", "STATUS", "PROJECT", "GPU(s)", "CPU(s)", "MEMORY", "ENVIRONMENT", "URL")
NUMBERS = ("GPU(s)", "CPU(s)", "MEMORY")
DEFAULT = "(default)"
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="By default the default workspace.")]
Named = Annotated[str, typer.Argument(metavar="NAME", help="The workspace.")]


@contextmanager
def _workspaces() -> "Iterator[tuple[Workspaces, str]]":
    from carrel.cli import cells
    from carrel.client.workspaces import Workspaces

    with connected() as client, Workspaces(client) as found:
        yield found, cells.hub_of(client.settings.url)


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
            ("Environment asset", chosen.get("environment_asset", "")),
            ("Compute resource", chosen.get("compute", "")),
            ("Data sources", ", ".join(chosen.get("data", []))),
            ("Environment", row["ENVIRONMENT"]),
            ("Volumes", ", ".join(_spelt(volume) for volume in chosen.get("volumes", []))),
            ("URL", one.address(hub)),
        ]
    )


@with_record(WorkspaceOptions)
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


@with_record(WorkspaceOptions)
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
    say(f"Workspace {name or DEFAULT} is starting: {workspaces.get(name).address(hub)}")


def _row(one: "WorkspaceServer", hub: str) -> list[str]:
    chosen = one.user_options or {}
    status = {"spawn": "Starting", "stop": "Stopping"}.get(one.pending or "")
    return [
        one.name or DEFAULT,
        status or ("Running" if one.ready else "Stopped"),
        str(chosen.get("project", "-")),
        _gpus_shown(chosen),
        f"{chosen['cpu']:g}" if "cpu" in chosen else "-",
        f"{chosen['memory_gib']:g} GiB" if "memory_gib" in chosen else "-",
        chosen.get("environment") or chosen.get("profile") or "-",
        one.address(hub) if one.ready else "-",
    ]


def _gpus_shown(chosen: Mapping[str, Any]) -> str:
    memory = chosen.get("gpu_memory_gib")
    if chosen.get("compute") and not memory and "gpus" not in chosen:
        return str(chosen["compute"])
    return f"{memory:g} GiB of one" if memory else f"{chosen.get('gpus', 0):g}"


def _spelt(volume: Any) -> str:
    """A volume as ``-v`` takes it; the Hub may keep it as text."""
    if isinstance(volume, str):
        return volume
    from carrel.models import Volume

    return Volume(**volume).spelt
