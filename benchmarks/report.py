"""Output of benchmarks: a table, and with ``--json`` a line for machines."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its goal; ``met`` is decided by the benchmark, which knows the direction.

    A figure without a goal of its own, which explains another, has ``-`` and counts as met.
    """

    figure: str
    value: float
    unit: str
    goal: str
    met: bool = True


def show(title: str, figures: Sequence[Figure], *, as_json: bool) -> None:
    """Print the table and, if asked, the JSON line after it."""
    table = Table(title=title, title_justify="left")
    for column in ("figure", "value", "unit", "goal", "met"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for one in figures:
        mark = "[green]yes[/]" if one.met else "[red]no[/]"
        mark = "" if one.goal == "-" else mark
        table.add_row(one.figure, f"{one.value:,.3f}", one.unit, one.goal, mark)
    Console().print(table)
    if as_json:
        print(json.dumps([asdict(one) for one in figures]))


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number the mean of the two."""
    ranked = sorted(values)
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2
