"""``carrel prices``: what GPUs, cores and memory cost by the hour."""

from carrel.cli.commands.admin.documents import FileOption, read_document
from carrel.cli.common import Output, OutputOption, connected, document, for_programs, say, table


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
