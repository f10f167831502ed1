"""``carrel audit``: who changed what (administrators)."""

import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel import units
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    connected,
    document,
    fields,
    for_programs,
    note,
    now,
    say,
    show,
)
from carrel.errors import BadSetting

if TYPE_CHECKING:
    from carrel_schema.governance.audit import AuditEntry


class Format(StrEnum):
    """Forms of an export."""

    JSONL = "jsonl"
    SYSLOG = "syslog"
    CSV = "csv"


UserOption = Annotated[str, typer.Option("--user", help="Done by, or on behalf of.")]
KindOption = Annotated[str, typer.Option("--kind", help="Workload, Project, policy, User, ...")]
VerbOption = Annotated[str, typer.Option("--verb", help="create, update, delete, sign-in, ...")]
ProjectFilter = Annotated[str, typer.Option("--project", "-p", help="Changes in a project.")]
DepartmentFilter = Annotated[
    str, typer.Option("--department", help="Changes in a department and its projects.")
]
OutcomeOption = Annotated[str, typer.Option("--outcome", help="done or refused.")]
SinceOption = Annotated[str | None, typer.Option("--since", help="How far back: 12h, 7d.")]


def list_entries(
    *,
    user: UserOption = "",
    kind: KindOption = "",
    verb: VerbOption = "",
    project: ProjectFilter = "",
    department: DepartmentFilter = "",
    outcome: OutcomeOption = "",
    since: SinceOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 100,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the newest entries of the audit log: who changed what, when and from where."""
    wanted = _filters(user, kind, verb, project, department, outcome, since)
    with connected() as client:
        page = client.audit_entries(wanted, limit=limit)
    headers = ["NO", "AT", "WHO", "DID", "KIND", "WHERE", "NAME", "FROM", "BY", "CHANGED"]
    rows = [_row(one) for one in page.items]
    show(page.items, output, headers, rows, no_headers=no_headers, right=("NO",))
    if page.next:
        note("There are more; name filters, a larger --limit, or export them.")


def _filters(
    user: str, kind: str, verb: str, project: str, department: str, outcome: str, since: str | None
) -> dict[str, Any]:
    given = {
        "user": user,
        "kind": kind,
        "verb": verb,
        "project": project,
        "department": department,
        "outcome": outcome,
        "since": None if since is None else now() - units.seconds(since, "--since"),
    }
    return {name: value for name, value in given.items() if value not in ("", None)}


def _row(one: "AuditEntry") -> list[str]:
    return [
        str(one.seq),
        _time(one.at),
        who(one),
        one.verb if one.outcome == "done" else f"{one.verb} refused: {one.reason}",
        one.kind,
        one.scope,
        one.name,
        one.address,
        one.channel,
        _changed(one),
    ]


def who(one: "AuditEntry") -> str:
    """The person who made a change, and for whom it was made."""
    person = one.user or "nobody known"
    times = f" ({one.count} times)" if one.count > 1 else ""
    return (f"{person} for {one.on_behalf_of}" if one.on_behalf_of else person) + times


def _changed(one: "AuditEntry") -> str:
    if not one.before or not one.after:
        return ""
    paths = sorted({*one.before, *one.after})
    return "; ".join(f"{path}: {one.before.get(path)} → {one.after.get(path)}" for path in paths)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def verify(
    *,
    file: Annotated[
        Path | None, typer.Option("--file", help="An export of all entries (jsonl) instead.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check that no entry of the audit log was changed, removed or cut off."""
    if file is not None:
        _verify_file(file)
        return
    with connected(timeout=600.0) as client:
        found = client.verify_audit_log()
    if for_programs(output):
        document(found, output)
    else:
        fields(
            [
                ("Audit log", "whole" if found.ok else "NOT WHOLE"),
                ("Problem", found.problem),
                ("Checked", f"{found.entries:,} entries"),
                ("Newest", f"{found.head.seq} {found.head.hash}"),
            ]
        )
    if not found.ok:
        raise typer.Exit(1)


def _verify_file(file: Path) -> None:
    import msgspec

    from carrel_schema.governance.audit import AuditEntry, ChainCheck

    check: ChainCheck | None = None
    decoder = msgspec.json.Decoder(AuditEntry)
    try:
        with file.open("rb") as lines:
            for line in lines:
                entry = decoder.decode(line)
                check = check or ChainCheck(entry.seq - 1, entry.previous)
                check.take([entry])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadSetting(f"{file} is no export of the audit log ({error}).") from error
    if check is None:
        raise BadSetting(f"{file} has no entries.")
    if check.problem:
        raise BadSetting(f"{file}: {check.problem}.")
    say(f"{check.entries:,} entries follow each other; the newest is {check.seq} {check.hash}")
    note("Compare it with the same entry of the server: `carrel audit list -o json`.")


def export(
    *,
    form: Annotated[Format, typer.Option("--format", help="As what.")] = Format.JSONL,
    user: UserOption = "",
    kind: KindOption = "",
    verb: VerbOption = "",
    project: ProjectFilter = "",
    department: DepartmentFilter = "",
    outcome: OutcomeOption = "",
    since: SinceOption = None,
) -> None:
    """Write entries of the audit log, the oldest first: JSON lines, syslog or CSV."""
    import csv

    import msgspec

    from carrel_schema.text import syslog
    from carrel_schema.text.csv_cells import csv_cell

    wanted = _filters(user, kind, verb, project, department, outcome, since)
    table = csv.writer(sys.stdout)
    names = ["seq", "at", "user", "on_behalf_of", "verb", "kind", "scope", "name", "uid"]
    names += ["outcome", "reason", "address", "channel", "agent", "count", "hash"]
    with connected() as client:
        host = client.settings.url.partition("//")[2].partition("/")[0].partition(":")[0]
        if form is Format.CSV:
            table.writerow(names)
        for entry in client.all_audit_entries({"order": "oldest"} | wanted):
            if form is Format.JSONL:
                say(msgspec.json.encode(entry).decode())
            elif form is Format.SYSLOG:
                say(syslog.message(entry, host))
            else:
                table.writerow([csv_cell(getattr(entry, name)) for name in names])


def settings(
    *,
    retention_days: Annotated[
        str | None, typer.Option("--retention-days", help="Keep entries so long; none: for ever.")
    ] = None,
    syslog: Annotated[
        str | None,
        typer.Option("--syslog", help="Send entries to udp://HOST:PORT or tcp://HOST:PORT; none."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show or set how long entries of the audit log are kept, and where they are sent."""
    import msgspec

    with connected() as client:
        found = client.audit_settings()
        changes: dict[str, Any] = {}
        if retention_days is not None:
            changes["retention_days"] = _days(retention_days)
        if syslog is not None:
            changes["syslog"] = "" if syslog == "none" else syslog
        if changes:
            found = client.put_audit_settings(msgspec.to_builtins(found) | changes)
    if for_programs(output):
        document(found, output)
        return
    kept = "for ever" if found.retention_days is None else f"{found.retention_days} days"
    fields([("Kept", kept), ("Sent to", found.syslog or "nowhere")])


def _days(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise typer.BadParameter("--retention-days is a number of days, or none.")
    return int(text)
