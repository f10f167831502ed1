"""``carrel prices`` and ``carrel budget``: what resources cost, and what a period may use."""

from typing import Annotated

import typer

from carrel.cli.commands.admin.documents import FileOption, read_document
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    connected,
    document,
    for_programs,
    say,
    show,
    table,
)
from carrel.errors import BadSetting
from carrel_schema.governance.costs import parts_of

Scope = Annotated[
    str, typer.Argument(metavar="SCOPE", help="project/NAME, department/NAME or user/NAME.")
]


def list_budgets(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List budgets of your projects, and what of them is used."""
    with connected() as client:
        found = client.list_budgets()
    rows = (
        [
            one.scope,
            f"{part.used:.1f}",
            f"{part.allowed:g} {part.unit}",
            f"{part.used / part.allowed:.0%}" if part.allowed else "-",
            one.period,
            one.at_end,
        ]
        for one in found
        for part in parts_of(one)
    )
    headers = ["SCOPE", "USED", "BUDGET", "SHARE", "PERIOD", "AT THE END"]
    show(found, output, headers, rows, no_headers=no_headers)


def set_budget(
    scope: Scope,
    *,
    gpu_hours: Annotated[
        float | None, typer.Option("--gpu-hours", min=0, help="That may be used in a period.")
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option("--cost", min=0, help="Money in a period, by the price list."),
    ] = None,
    period: Annotated[
        str, typer.Option("--period", help="week, month, quarter, year, total or sliding-week.")
    ] = "month",
    refuse: Annotated[
        bool, typer.Option("--refuse/--warn", help="Refuse new work when it is used up?")
    ] = False,
    lower_priority: Annotated[
        bool,
        typer.Option(
            "--lower-priority",
            help="Give new and waiting work the lowest priority when it is used up.",
        ),
    ] = False,
    description: Annotated[str, typer.Option("--description", help="For people.")] = "",
) -> None:
    """Give a scope a budget, or another one."""
    if gpu_hours is None and cost is None:
        raise BadSetting("A budget needs --gpu-hours, --cost or both.")
    if refuse and lower_priority:
        raise BadSetting("--refuse and --lower-priority: say one of both.")
    at_end = "lower-priority" if lower_priority else "refuse" if refuse else "warn"
    body = {"period": period, "description": description, "gpu_hours": gpu_hours, "cost": cost}
    with connected() as client:
        made = client.put_budget(scope, body | {"at_end": at_end})
    say(f"{scope} has used {' and '.join(map(str, parts_of(made)))} ({period}).")


def delete_budget(scope: Scope) -> None:
    """Take a budget away."""
    with connected() as client:
        client.delete_budget(scope)
    say(f"{scope} has no budget any more.")


def show_prices(*, output: OutputOption = Output.TABLE) -> None:
    """Show the prices that `carrel usage` counts with."""
    from datetime import UTC, datetime

    with connected() as client:
        found = client.prices()
    if for_programs(output):
        document(found, output)
        return
    if not found.periods:
        say("There are no prices; `carrel prices set -f FILE`.")
        return
    rows = [
        [
            datetime.fromtimestamp(one.since, UTC).strftime("%Y-%m-%d %H:%M") if one.since else "-",
            f"{one.gpu_hour:g}",
            f"{one.cpu_hour:g}",
            f"{one.memory_gib_hour:g}",
        ]
        for one in found.periods
    ]
    say(f"Currency: {found.currency}")
    table(["FROM (UTC)", "GPU-HOUR", "CPU-HOUR", "GIB-HOUR"], rows)


def set_prices(*, file: FileOption) -> None:
    """Replace the prices (administrators); costs of the past follow them.

    The file holds `currency` and `periods`, each with `since` (epoch seconds), `gpu_hour`,
    `cpu_hour` and `memory_gib_hour`.
    """
    with connected() as client:
        made = client.put_prices(read_document(file))
    say(f"{len(made.periods)} periods of prices in {made.currency} count from now on.")
