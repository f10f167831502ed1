"""``carrel history``: how the cluster, a node or a project was used over time."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from carrel import units
from carrel.cli.common import NoHeaders, Output, OutputOption, connected, show
from carrel_schema.samples import METRICS

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 40


def history(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="[SUBJECT]",
            help="cluster, node/NAME, node-group/NAME, department/NAME or project/NAME.",
        ),
    ] = "cluster",
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back, as 6h or 30d.")
    ] = "1d",
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show how something was used over time; `-o csv` and `-o json` have every value."""
    with connected() as client:
        found = client.samples(subject, since=time.time() - units.seconds(since, "--since"))
    spans = [
        {
            "at": datetime.fromtimestamp(at, UTC).isoformat(),
            **{name: found.values[name][number] for name in METRICS},
        }
        for number, at in enumerate(found.times)
    ]
    rows = [
        [text, *_figures(values), bars(values)]
        for name, text in METRICS.items()
        if any(values := list(found.values.get(name, ())))
    ]
    headers = ["METRIC", "LAST", "MEAN", "MOST", "OVER TIME"]
    show(spans, output, headers, rows, no_headers=no_headers)


def _figures(values: Sequence[float]) -> list[str]:
    """The last, the mean and the largest."""
    return [f"{values[-1]:g}", f"{sum(values) / len(values):.2f}", f"{max(values):g}"]


def bars(values: Sequence[float], width: int = WIDTH) -> str:
    """Values as a line of bars from 0 to the largest; each is the mean of its part."""
    most, count = max(values), min(width, len(values))
    parts = [
        values[len(values) * part // count : len(values) * (part + 1) // count]
        for part in range(count)
    ]
    means = [sum(one) / len(one) for one in parts]
    return "".join(BARS[min(int(one / most * len(BARS)), len(BARS) - 1)] for one in means)
