"""``carrel budget``: GPU-hours that departments, projects and users may use in a period."""

from typing import Annotated

import typer

from carrel.cli.common import NoHeaders, Output, OutputOption, connected, say, show

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
            f"{one.used_gpu_hours:.1f}",
            f"{one.gpu_hours:g}",
            f"{one.used_gpu_hours / one.gpu_hours:.0%}" if one.gpu_hours else "-",
            one.period,
            one.at_end,
        ]
        for one in found
    )
    headers = ["SCOPE", "USED", "GPU-HOURS", "SHARE", "PERIOD", "AT THE END"]
    show(found, output, headers, rows, no_headers=no_headers)


def set_budget(
    scope: Scope,
    *,
    gpu_hours: Annotated[
        float, typer.Option("--gpu-hours", min=0, help="That may be used in a period.")
    ],
    period: Annotated[
        str, typer.Option("--period", help="week, month, quarter, year, total or sliding-week.")
    ] = "month",
    refuse: Annotated[
        bool, typer.Option("--refuse/--warn", help="Refuse new work when it is used up?")
    ] = False,
    description: Annotated[str, typer.Option("--description", help="For people.")] = "",
) -> None:
    """Give a scope a budget, or another one."""
    body = {"gpu_hours": gpu_hours, "period": period, "description": description}
    with connected() as client:
        made = client.put_budget(scope, body | {"at_end": "refuse" if refuse else "warn"})
    say(f"{scope} has used {made.used_gpu_hours:.1f} of {gpu_hours:g} GPU-hours ({period}).")


def delete_budget(scope: Scope) -> None:
    """Take a budget away."""
    with connected() as client:
        client.delete_budget(scope)
    say(f"{scope} has no budget any more.")
