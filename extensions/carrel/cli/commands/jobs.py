"""Commands about jobs: list, describe, logs, suspend, resume, delete."""

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel import units
from carrel.cli import cells
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    ProjectOption,
    complain,
    connected,
    document,
    for_programs,
    note,
    now,
    project_of,
    say,
    show,
)
from carrel.cli.completing import job_names
from carrel.errors import ApiError, BadSetting
from carrel_schema.kinds import COMPOSITES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from carrel.client import Client
    from carrel.models import Event, Workload

Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="The jobs.", autocompletion=job_names)
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The job.", autocompletion=job_names)]


USUAL_ROWS = 500
PAUSE_SECONDS = 1.0
CLEAR = "\x1b[2J\x1b[H"
"""Empties a terminal and goes to its first place."""


def list_jobs(
    *,
    project: ProjectOption = None,
    everywhere: Annotated[
        bool, typer.Option("--all-projects", "-A", help="Of all your projects.")
    ] = False,
    user: Annotated[str | None, typer.Option("--user", help="Of one user.")] = None,
    status: Annotated[
        list[str] | None, typer.Option("--status", help="pending, running, failed, ...")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="training, distributed, experiment, ...")
    ] = None,
    parts: Annotated[bool, typer.Option("--all", "-a", help="Also trials and replicas.")] = False,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="K=V.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="The newest only; 0: all. Tables show 500."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it again at each change, until Ctrl-C.")
    ] = False,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List jobs."""
    from carrel.cli.common import labels as read_labels
    from carrel.client.resources.workloads import PAGE

    labels = read_labels(label)
    phases = [word.lower() for word in status or []]
    with connected() as client:
        where = None if everywhere else project_of(client, project)

        def shown() -> int:
            most = limit if limit is not None else 0 if for_programs(output) else USUAL_ROWS
            if most:
                page = client.workload_page(
                    where, user, phases, kind, labels,
                    parts=parts, newest_first=True, limit=min(most, PAGE),
                )  # fmt: skip
                jobs = page.items[::-1]
                if page.next and limit is None:
                    note(f"These are the newest {len(jobs)}; `--limit 0` lists all.")
            else:
                jobs = client.list_workloads(where, user, phases, kind, labels, parts=parts)
            _show_jobs(jobs, client.settings.url, where, output, no_headers=no_headers)
            return max((job.resource_version for job in jobs), default=0)

        version = shown()
        if watch:
            _show_again(client.events(where), version, shown)


def _show_again(events: "Iterable[Event]", version: int, show_jobs: "Callable[[], int]") -> None:
    """Show the table again at each change, until Ctrl-C.

    Args:
        events: the changes.
        version: of the newest job on the screen.
        show_jobs: shows the table, and returns that version.
    """
    try:
        for event in events:
            old = event.workload.resource_version <= version and event.type != "deleted"
            if old or event.type == "report":
                continue
            time.sleep(PAUSE_SECONDS)  # what changes together is shown together
            if sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            version = show_jobs()
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _show_jobs(
    jobs: "Sequence[Workload]", service: str, where: str | None, output: Output, *, no_headers: bool
) -> None:
    from carrel.cli import cells

    wide = output is Output.WIDE
    rows = (
        cells.job_row(job, now(), service) + ([cells.why(job) or cells.NOTHING] if wide else [])
        for job in jobs
    )
    title = f"Showing jobs for project {where}" if where else "Showing jobs for all projects"
    headers = (*cells.JOB_COLUMNS, "REASON") if wide else cells.JOB_COLUMNS
    show(jobs, output, headers, rows, title=title, no_headers=no_headers)


def describe_job(
    name: Name, *, project: ProjectOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show a job: its request, status and reason, what would help it, its tasks and its history."""
    import msgspec

    from carrel import estimate, remedies
    from carrel.cli.commands import describe
    from carrel.cli.commands.describe import OWNER_LABEL, PARTS
    from carrel.estimate import UNTIL_STOPPED

    with connected() as client:
        where = project_of(client, project)
        job = client.get_workload(where, name)
        past, parts = client.history(where, name), []
        if not for_programs(output):
            submitted, waiting = client.children(job), client.dependents(job)
        if job.spec.kind in PARTS and not for_programs(output):
            parts = client.list_workloads(where, labels={OWNER_LABEL: name}, parts=True)
        helps = client.loop.run(remedies.read(client.aio, job))
        service, likely = client.settings.url, ""
        if not (for_programs(output) or job.at_rest or job.spec.kind in UNTIL_STOPPED):
            found = client.loop.run(estimate.read(client.aio, job, now()))
            likely = estimate.sentence(job, found, now())
    if for_programs(output):
        document(msgspec.to_builtins(job) | {"remedies": msgspec.to_builtins(helps)}, output)
        return
    describe.show_job(job, past, parts, now(), service, [one.sentence for one in helps])
    describe.show_list("It submitted:", submitted)
    describe.show_list("Wait for it:", waiting)
    if likely:
        say()
        say(likely)


def logs(
    name: Name,
    *,
    project: ProjectOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-t", min=0, help="Only the last lines.")
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only the last 45s, 5m, 2h.")] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Put the time before each line.")
    ] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=0, help="Of an earlier run, from 0.")
    ] = None,
    task: Annotated[
        str,
        typer.Option("--index", "--task", "--pod", help="Of one task, from 0, or all of a gang's."),
    ] = "all",
) -> None:
    """Show what a job printed."""
    from carrel.client.resources.workloads import all_or

    index = _index(task)
    options: dict[str, Any] = {
        "follow": follow,
        "tail": tail,
        "since": None if since is None else now() - units.seconds(since, "--since"),
        "timestamps": timestamps,
        "attempt": attempt,
    }
    with connected() as client:
        where = project_of(client, project)
        job = client.get_workload(where, name)
        which = all_or(None, job) if index is None else index
        every = follow and attempt is None and job.spec.kind not in COMPOSITES
        output = partial(_attempts, client) if every else client.logs
        try:
            for piece in output(where, name, index=which, **options):
                sys.stdout.write(piece)
                sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _attempts(client: "Client", project: str, name: str, **options: Any) -> "Iterator[str]":
    """The output of every attempt from the present one on, until the work is at rest."""
    from carrel.client.shared_events import until

    seen = -1
    while True:
        job = client.get_workload(project, name)
        if _last_run(job) > seen:
            if seen >= 0:
                note(f"Attempt {_last_run(job) + 1} of {name}:")
            seen = _last_run(job)
            yield from client.logs(project, name, **{**options, "attempt": seen})
            options |= {"tail": None, "since": None}
        elif job.at_rest:
            if seen < 0:
                yield from client.logs(project, name, **options)
            return
        else:
            if why := cells.why(job):
                note(why)
            newer = partial(_goes_on, seen)
            client.loop.run(until(newer, client.aio, project, name, None))


def _last_run(job: "Workload") -> int:
    """The latest attempt of which a task has started; -1: none."""
    return max((task.attempt for task in job.status.tasks if task.started_at), default=-1)


def _goes_on(seen: int, job: "Workload") -> bool:
    """Whether a later attempt has started, or none follows."""
    return job.at_rest or _last_run(job) > seen


def _index(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal():
        raise BadSetting(f"--index {text!r} is no task; write 0, 1, ... or all.")
    return int(text)


def suspend(names: Names, *, project: ProjectOption = None) -> None:
    """Stop jobs and keep them; `carrel resume` queues them again."""
    _each(names, project, "suspended", lambda client, where, name: client.suspend(where, name))


def resume(names: Names, *, project: ProjectOption = None) -> None:
    """Queue suspended jobs again."""
    _each(names, project, "resumed", lambda client, where, name: client.resume(where, name))


def delete_job(
    names: Names,
    *,
    project: ProjectOption = None,
    children: Annotated[
        bool, typer.Option("--children", help="Also the live jobs that they submitted themselves.")
    ] = False,
) -> None:
    """End jobs and remove them, with their artifacts and checkpoints."""
    _each(names, project, "deleted", partial(_delete, children=children))


def _delete(client: "Client", project: str, name: str, *, children: bool) -> None:
    """Delete a job; refuse one that is being deleted already."""
    if client.get_workload(project, name).spec.delete and not children:
        raise ApiError(409, detail=f"Job {name} is being deleted already.")
    client.delete_workload(project, name, children=children)


def _each(
    names: list[str],
    project: str | None,
    done: str,
    action: "Callable[[Client, str, str], object]",
) -> None:
    """Apply ``action`` to each job; a refusal is printed and the others are still handled."""
    refused = False
    with connected() as client:
        where = project_of(client, project)
        for name in names:
            try:
                action(client, where, name)
            except ApiError as error:
                complain(str(error))
                refused = True
            else:
                say(f"Job {name} {done} successfully.")
    if refused:
        raise typer.Exit(1)
