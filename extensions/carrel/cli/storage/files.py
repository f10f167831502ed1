"""``carrel cp``, ``artifacts`` and ``checkpoints``: files of work, in both directions."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from carrel.cli.commands.jobs import Name
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    ProjectOption,
    connected,
    note,
    project_of,
    say,
    show,
)
from carrel.errors import BadSetting
from carrel.units import size, stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carrel_schema.files import CheckpointList, StoredCopy

_REMOTE: Final = re.compile(r"([a-z0-9][-a-z0-9]*):(.*)", re.DOTALL)


def _split(text: str) -> tuple[str, str] | None:
    """Job and path of ``JOB:PATH``; ``None`` for a path of this machine."""
    found = _REMOTE.fullmatch(text)
    return None if found is None else (found[1], found[2])


def cp(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="JOB:PATH, or a file here.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A place here, or JOB:PATH.")],
    *,
    project: ProjectOption = None,
    task: Annotated[int, typer.Option("--task", min=0, help="Of which task, from 0.")] = 0,
) -> None:
    """Copy files: `carrel cp train-7:out.csv .`, `carrel cp data.csv train-7:`.

    Of a job that runs, PATH is relative to the folder that it works in; of one that has ended, it
    is one of its artifacts.
    """
    remote, into = _split(source), _split(target)
    if (remote is None) == (into is None):
        raise BadSetting("One of the two is JOB:PATH, the other a file here (./a:b is one).")
    with connected() as client:
        where = project_of(client, project)
        if remote is not None:
            written = client.fetch(where, remote[0], remote[1], target, index=task)
            note(f"{len(written)} {'file' if len(written) == 1 else 'files'} copied.")
        elif into is not None:
            client.put(where, into[0], source, into[1], index=task)
            note(f"Copied to {target}.")


def port_forward(
    name: Name,
    ports: Annotated[
        str, typer.Argument(metavar="[LOCAL:]REMOTE", help="The port here; that of the task.")
    ],
    *,
    project: ProjectOption = None,
    task: Annotated[int, typer.Option("--task", min=0, help="Of which task, from 0.")] = 0,
) -> None:
    """Reach a port of a running job at a port of this machine: `carrel port-forward api 8080:80`.

    Only programs of this machine reach it (127.0.0.1); Ctrl-C ends it.
    """
    local, _, remote = ports.rpartition(":")
    numbers = [int(one) if one.isdecimal() else -1 for one in (local or remote, remote)]
    if not all(0 < number < 65_536 for number in numbers):
        raise BadSetting(f"{ports!r} is no [LOCAL:]REMOTE; write 8080:80 or 8080.")
    with connected() as client:
        where = project_of(client, project)
        try:
            client.forward(
                where,
                name,
                numbers[1],
                numbers[0],
                index=task,
                opened=lambda port: note(f"127.0.0.1:{port} leads to {name}:{numbers[1]}."),
            )
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def artifacts(
    name: Name,
    *,
    project: ProjectOption = None,
    download: Annotated[
        bool, typer.Option("--download", help="Copy all of them here, or to --to.")
    ] = False,
    to: Annotated[Path, typer.Option("--to", help="The folder they go to.")] = Path(),
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the files that a job keeps beyond its end."""
    with connected() as client:
        where = project_of(client, project)
        found = client.artifacts(where, name)
        rows = [(one.path, size(one.size), stamp(one.modified_at)) for one in found.items]
        headers = ("PATH", "SIZE", "CHANGED")
        show(found, output, headers, rows, no_headers=no_headers, right=("SIZE",))
        if found.expires_at is not None and output is Output.TABLE:
            note(f"Kept until {stamp(found.expires_at)}.")
        if download and found.items:
            to.mkdir(parents=True, exist_ok=True)
            written = client.fetch(where, name, "", to)
            note(f"{len(written)} copied to {to}.")


def checkpoints(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The job; without one: those kept.")
    ] = None,
    *,
    project: ProjectOption = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="CHECKPOINT", help="Keep it: name or step.")
    ] = None,
    as_name: Annotated[str | None, typer.Option("--as", help="The name to keep it under.")] = None,
    description: Annotated[str, typer.Option("--description", help="What it is.")] = "",
    delete: Annotated[
        str | None, typer.Option("--delete", metavar="KEPT", help="Keep it no longer.")
    ] = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the checkpoints of a job, or those that are kept; keep one beyond its job.

    Begin from one: `carrel submit --from-checkpoint JOB:CHECKPOINT -- python train.py`.
    """
    if keep is not None and name is None:
        raise BadSetting(f"Of which job? `carrel checkpoints JOB --keep {keep}`.")
    with connected() as client:
        where = project_of(client, project)
        if delete is not None:
            client.delete_kept_checkpoint(where, delete)
            say(f"Checkpoint {delete} deleted.")
        elif name is None:
            _show_kept(client.kept_checkpoints(where), output, no_headers=no_headers)
        elif keep is not None:
            made = client.keep_checkpoint(
                where, name, keep, as_name=as_name, description=description
            )
            say(f"Kept as {made.name} ({size(made.size)}).")
        else:
            _show_saved(client.checkpoints(where, name), output, no_headers=no_headers)


def _show_kept(kept: "Sequence[StoredCopy]", output: Output, *, no_headers: bool) -> None:
    """Show the checkpoints that are kept beyond their jobs."""
    rows = [
        (one.name, one.workload, one.user, size(one.size), stamp(one.created_at)) for one in kept
    ]
    headers = ("NAME", "JOB", "USER", "SIZE", "KEPT")
    show(kept, output, headers, rows, no_headers=no_headers, right=("SIZE",))


def _show_saved(found: "CheckpointList", output: Output, *, no_headers: bool) -> None:
    """Show the checkpoints that a job has saved."""
    listed = [
        (
            one.name,
            f"{one.step:,}",
            str(one.task),
            size(one.size),
            stamp(one.saved_at),
            one.kept_as or "-",
        )
        for one in found.items
    ]
    columns = ("NAME", "STEP", "TASK", "SIZE", "SAVED", "KEPT AS")
    show(found, output, columns, listed, no_headers=no_headers, right=("STEP", "TASK", "SIZE"))
    if found.expires_at is not None and output is Output.TABLE:
        note(f"Kept until {stamp(found.expires_at)}; --keep keeps one for longer.")
