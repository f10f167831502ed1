"""Commands for jobs that are there: change them, wait for their end, run them again, clear up."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from carrel import options, units
from carrel.cli.commands.jobs import Name, Names
from carrel.cli.common import ProjectOption, complain, connected, now, project_of, say
from carrel.cli.typer_options import with_rows
from carrel.errors import ApiError, BadSetting
from carrel.options import Surface

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carrel.client import Client

ENDED: Final = ("succeeded", "failed", "stopped")
NOT_YET: Final = 124
"""The exit code when the time is over; that of `timeout`."""

FLAGS: Final = (
    *("priority", "preemptible", "time-limit", "idle-timeout", "restart-when-stalled"),
    *("stall-after", "min-workers", "label"),
)
ROWS: Final = tuple(row for row in options.rows(Surface.CLI, ["distributed"]) if row.flag in FLAGS)
LIFTED: Final = {
    "time-limit": "time_limit_seconds",
    "idle-timeout": "idle_timeout_seconds",
    "restart-when-stalled": "restart_when_stalled",
    "stall-after": "stall_after_seconds",
}
"""Fields that may have no value, by the flag that gives them one."""


def wait(
    names: Names,
    *,
    project: ProjectOption = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="At most 45s, 5m, 2h; then exit code 124.")
    ] = None,
) -> None:
    """Wait until jobs have ended; exit code 1 unless all succeeded."""
    seconds = None if timeout is None else units.seconds(timeout, "--timeout")
    from carrel.client.resources.waiting import GONE

    with connected() as client:
        where = project_of(client, project)
        for name in names:
            client.get_workload(where, name)
        found = client.wait([(where, name) for name in names], timeout=seconds)
    for job in found:
        why = job.status.reason.sentence if job.status.reason is not None else ""
        say(f"Job {job.name} {job.status.phase}. {why}".rstrip())
    if not all(job.at_rest or job.status.phase == GONE for job in found):
        complain("Not all have ended yet.")
        raise typer.Exit(NOT_YET)
    if not all(job.status.phase == "succeeded" for job in found):
        raise typer.Exit(1)


def rerun(
    name: Name,
    *,
    project: ProjectOption = None,
    new_name: Annotated[
        str | None, typer.Option("--as", help="Its name; without one it is numbered.")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option("--gpus", "-g", min=0, help="Other GPUs than before.")
    ] = None,
    priority: Annotated[str | None, typer.Option("--priority", help="Another priority.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen now and do nothing.")
    ] = False,
) -> None:
    """Submit a job's request again, with its files and secrets."""
    asked = {"name": new_name, "gpus": gpus, "priority": priority}
    changes = {field: value for field, value in asked.items() if value is not None}
    with connected() as client:
        where = project_of(client, project)
        if dry_run:
            answer = client.rerun(where, name, changes, dry_run=True)
            say(f"Nothing was submitted. {answer.forecast.sentence}".rstrip())
            return
        job = client.rerun(where, name, changes)
    say(f"Job {job.name} submitted successfully.")


def prune(
    *,
    project: ProjectOption = None,
    older_than: Annotated[
        str, typer.Option("--older-than", help="Ended longer ago than 12h, 7d, ...")
    ] = "7d",
    status: Annotated[
        list[str] | None, typer.Option("--status", help="succeeded, failed, stopped; all of them.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only name them, and what they would free.")
    ] = False,
) -> None:
    """Delete your ended jobs, with their artifacts and checkpoints; kept ones and models stay."""
    phases = [word.lower() for word in status or ENDED]
    wrong = [word for word in phases if word not in ENDED]
    if wrong:
        raise BadSetting(f"--status {wrong[0]!r} is no end; write {', '.join(ENDED)}.")
    before = now() - units.seconds(older_than, "--older-than")
    with connected() as client:
        where = project_of(client, project)
        old = _ended_jobs(client, where, phases, before)
        if not old:
            say(f"0 jobs of yours in {where} ended more than {older_than} ago.")
            return
        if dry_run or not yes:
            freed = sum(
                client.artifacts(where, name).size + client.checkpoints(where, name).size
                for name in old
            )
            if dry_run:
                say(
                    f"{len(old)} jobs of yours in {where} ended more than {older_than} ago: "
                    f"{', '.join(old)}. Deleting them frees {units.size(freed)}."
                )
                return
            asked = f"Delete {len(old)} jobs, which frees {units.size(freed)}: {', '.join(old)}?"
            typer.confirm(asked, abort=True)
        refused = _delete_all(client, where, old)
    say(f"{len(old) - refused} jobs deleted.")
    if refused:
        raise typer.Exit(1)


def _ended_jobs(client: "Client", where: str, phases: "Sequence[str]", before: float) -> list[str]:
    """Names of the user's own jobs in these phases that ended before a time."""
    return [
        job.name
        for job in client.list_workloads(where, client.whoami().user, phases)
        if job.spec.kind not in ("workspace", "schedule")
        and (job.status.ended_at or job.created_at) < before
    ]


def _delete_all(client: "Client", where: str, names: "Sequence[str]") -> int:
    """Delete these workloads; returns how many deletions were refused."""
    refused = 0
    for name in names:
        try:
            client.delete_workload(where, name)
        except ApiError as error:
            complain(str(error))
            refused += 1
    return refused


@with_rows(ROWS)
def update(
    name: Name,
    *,
    project: ProjectOption = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "--max-workers", min=1, help="So many workers.")
    ] = None,
    without_label: Annotated[
        list[str] | None, typer.Option("--without-label", help="Remove a label.")
    ] = None,
    no_limit: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            help="Lift time-limit or idle-timeout; leave restart-when-stalled or stall-after to "
            "the cluster.",
        ),
    ] = None,
    **chosen: Any,
) -> None:
    """Change a job: limits and labels at any time, its place in the queue while it waits."""
    most = workers if workers is not None else sys.maxsize
    changes = dict(
        options.read(chosen, Surface.CLI, ["distributed"], written={"tasks": most}).fields
    )
    if workers is None:
        del changes["tasks"]  # how many there are stays, and is the scheduler's to compare with
    if without_label:
        changes["labels"] = changes.get("labels", {}) | dict.fromkeys(without_label)
    for limit in no_limit or ():
        if limit not in LIFTED:
            *most_of, last = LIFTED
            right = f"{', '.join(most_of)} or {last}"
            raise BadSetting(f"--without {limit!r} cannot be left out; write {right}.")
        changes[LIFTED[limit]] = None
    if not changes:
        raise BadSetting("Say what to change, such as --time-limit 8h; see carrel update --help.")
    with connected() as client:
        client.update(project_of(client, project), name, changes)
    say(f"Job {name} updated successfully.")
