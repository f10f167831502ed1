"""``carrel retention``: how long what is kept is kept, and what keeping less would free."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carrel import units
from carrel.cli.common import NoHeaders, Output, OutputOption, connected, note, say, show
from carrel.errors import BadSetting
from carrel.wording import duration

if TYPE_CHECKING:
    from carrel_schema.governance.retention import Retained, RetentionReport


def show_retention(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """Show how long what is kept, how much there is, and what is removed next."""
    with connected() as client:
        found = client.retention()
    _show(found, output, no_headers=no_headers)


def set_retention(
    *,
    audit: Annotated[
        str | None,
        typer.Option("--audit-days", metavar="DAYS", help="Entries of the audit log; or none."),
    ] = None,
    decisions: Annotated[
        str | None,
        typer.Option("--decision-days", metavar="DAYS", help="Decisions in histories; or none."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--sample-days", help="Means of five minutes, 7 or more.")
    ] = None,
    hourly_samples: Annotated[
        int | None, typer.Option("--hourly-sample-days", help="Means of an hour, 31 or more.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what that would free.")
    ] = False,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Set how long the ledger keeps each kind of record; those not named stay, none is for ever."""
    import msgspec

    changes: dict[str, Any] = {}
    if audit is not None:
        changes["audit_days"] = _days(audit, "--audit-days")
    if decisions is not None:
        changes["decision_days"] = _days(decisions, "--decision-days")
    if samples is not None:
        changes["sample_days"] = samples
    if hourly_samples is not None:
        changes["hourly_sample_days"] = hourly_samples
    if not changes:
        raise BadSetting("Name what to change, such as --decision-days 90.", code="missing_field")
    with connected() as client:
        before = msgspec.to_builtins(client.retention().settings)
        found = client.put_retention(before | changes, dry_run=dry_run)
    _show(found, output, no_headers=no_headers)
    if output in (Output.TABLE, Output.WIDE):
        rows = sum(one.freed_rows for one in found.kinds)
        size = units.size(sum(one.freed_bytes for one in found.kinds))
        if dry_run:
            say(f"{rows:,} rows, {size}, would be removed. Nothing is changed.")
        else:
            note(f"{rows:,} rows, {size}, are removed within an hour.")


def _days(text: str, option: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise BadSetting(f"{option} {text}: a number of days, or none.", code="wrong_form")
    return int(text)


def _show(found: "RetentionReport", output: Output, *, no_headers: bool) -> None:
    now = time.time()
    rows = [_row(one, now) for one in found.kinds]
    headers = ["KIND", "KEPT", "SET BY", "ROWS", "SIZE", "OLDEST", "FREED ROWS", "FREED"]
    content = found.kinds if output is Output.CSV else found
    right = ("ROWS", "SIZE", "FREED ROWS", "FREED")
    show(content, output, headers, rows, no_headers=no_headers, right=right)


def _row(one: "Retained", now: float) -> list[str]:
    option = f"--{one.field.replace('_', '-')}" if one.field else one.option
    return [
        one.name,
        one.until if one.days is None else f"{one.days:g} days",
        option or "-",
        "-" if one.rows is None else f"{one.rows:,}",
        "-" if one.size_bytes is None else units.size(one.size_bytes),
        "-" if one.oldest_at is None else duration(now - one.oldest_at),
        f"{one.freed_rows:,}" if one.rows is not None else "-",
        units.size(one.freed_bytes) if one.rows is not None else "-",
    ]
