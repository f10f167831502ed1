"""Shared by all commands: the client, the project, and the forms of output.

On a terminal a table has colours; elsewhere it is plain text that stays byte for byte the same, so
that scripts and tests can read it. State colours are always next to the state's word.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TextIO

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carrel.client import Client


@dataclass(slots=True)
class Invocation:
    """An invocation of the tool. ``rest``: the words behind ``--``; ``None``: there is none."""

    rest: list[str] | None = field(default=None)


@contextmanager
def connected(timeout: float = 30.0) -> "Iterator[Client]":
    """A client, closed afterwards. Raises ``NotSignedIn``, ``BadSetting``."""
    from carrel.client import Client

    with Client(timeout=timeout, few_requests=True) as client:
        yield client


def project_of(client: "Client", named: str | None) -> str:
    """The named project, else the default one. Raises ``BadSetting`` without either."""
    from carrel.client.submit import default_project

    return named or default_project(client)


def now() -> float:
    """The time, in epoch seconds; ages are counted from here."""
    return time.time()


UNBOUND: Final = 10_000  # a row is never cut; terminals break what is too long for them
STYLES: Final = {
    "Pending": "yellow",
    "Preempted": "yellow",
    "Starting": "blue",
    "Running": "blue",
    "Preempting": "magenta",
    "Stopping": "bright_black",
    "Succeeded": "green",
    "Failed": "red",
    "Suspended": "bright_black",
    "TimedOut": "bright_black",
    "Idle": "bright_black",
}


class Output(StrEnum):
    """Forms of output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", help="How to show it; json, yaml and csv are for programs."),
]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Leave out the table's first lines.")]
ProjectOption = Annotated[
    str | None, typer.Option("--project", "-p", help="The project; see `carrel config project`.")
]


def say(text: str = "") -> None:
    """Print a line of the result."""
    typer.echo(text)


def note(text: str) -> None:
    """Print a line beside the result."""
    typer.echo(text, err=True)


def complain(text: str) -> None:
    """Print a sentence about what went wrong."""
    if coloured(sys.stderr):
        text = typer.style(text, fg="red")
    typer.echo(text, err=True)


def coloured(stream: TextIO) -> bool:
    """Whether a person looks and wants colours."""
    return stream.isatty() and "NO_COLOR" not in os.environ


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    no_headers: bool = False,
    right: Sequence[str] = (),
) -> None:
    """Show rows under headers; the columns named in ``right`` are aligned right."""
    if title and not no_headers:
        say(title)
    if coloured(sys.stdout):
        _for_people(headers, rows, no_headers=no_headers, right=right)
        return
    lines = [list(row) for row in rows] if no_headers else [list(headers), *map(list, rows)]
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(headers))]
    sides = [str.rjust if header in right else str.ljust for header in headers]
    columns = list(zip(sides, widths, strict=True))
    shown = [
        "  ".join([side(cell, width) for cell, (side, width) in zip(line, columns, strict=True)])
        for line in lines
    ]
    if shown:
        say("\n".join(line.rstrip() for line in shown))


def show(
    content: Any,
    output: Output,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    no_headers: bool = False,
    right: Sequence[str] = (),
) -> None:
    """Show ``content`` as JSON or YAML, or ``rows`` as a table."""
    if for_programs(output):
        document(content, output)
    else:
        table(headers, list(rows), title=title, no_headers=no_headers, right=right)


def _for_people(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    no_headers: bool,
    right: Sequence[str],
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows and not no_headers:
        say("Nothing to show.")
        return
    width = UNBOUND if no_headers else shutil.get_terminal_size((UNBOUND, 24)).columns
    kept = fitting(headers, rows, width)
    widths = [_narrowest(headers, rows, index) for index in kept]
    room = width - sum(one + GAP for one in widths[:-1])
    fits = room >= min(LEAST_TEXT, widths[-1])
    if fits:
        widths[-1] = min(widths[-1], room)
    spare = width - sum(
        max(one, len(headers[i])) + GAP for i, one in zip(kept, widths, strict=True)
    )
    shown = Table(box=None, pad_edge=False, show_header=not no_headers, header_style="bold")
    for index, one in zip(kept, widths, strict=True):
        side: Literal["right", "left"] = "right" if headers[index] in right else "left"
        whole = max(one, len(headers[index])) if spare >= 0 else one
        shown.add_column(Text(headers[index]), justify=side, width=whole)
    for row in rows:
        shown.add_row(*(Text(row[i], style=STYLES.get(row[i], "")) for i in kept))
    Console(width=max(width, sum(one + GAP for one in widths))).print(shown)


GAP: Final = 2
LEAST_TEXT: Final = 16
"""A last column of sentences is folded, but not narrower than this."""


def fitting(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns to show: where all do not fit, those are left out that say nothing in any row."""
    kept = list(range(len(headers)))
    for index in reversed(kept[1:]):
        if sum(_narrowest(headers, rows, one) + GAP for one in kept) <= width:
            break
        if all(row[index] in ("", "-") for row in rows):
            kept.remove(index)
    return kept


def _narrowest(headers: Sequence[str], rows: Sequence[Sequence[str]], index: int) -> int:
    """The width of a column whose header is folded between its words, and whose cells are not."""
    whole = [*headers[index].split(), *(row[index] for row in rows)]
    return max(map(len, whole), default=0)


def document(content: Any, output: Output) -> None:
    """Show structures as JSON or YAML."""
    import msgspec

    plain = msgspec.to_builtins(content)
    if output is Output.CSV:
        _write_csv(plain if isinstance(plain, list) else [plain])
        return
    if output is Output.JSON:
        say(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    import yaml

    say(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip())


def _write_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a line for each structure; what is inside of one is JSON."""
    import csv

    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_csv_cell(row.get(name)) for name in names])


def _csv_cell(value: Any) -> Any:
    from carrel_schema.text.csv_cells import csv_cell

    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else csv_cell(value)


def for_programs(output: Output) -> bool:
    """Whether JSON, YAML or CSV is wanted."""
    return output in (Output.JSON, Output.YAML, Output.CSV)


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Named facts, one a line, values aligned; empty ones are left out."""
    width = max((len(name) for name, value in pairs if value), default=0) + 1
    for name, value in pairs:
        if value:
            say(f"{name + ':':<{width}}  {value}")


def labels(texts: list[str] | None) -> dict[str, str]:
    """``K=V`` options as a mapping. Raises ``BadSetting``."""
    from carrel import options
    from carrel.options import Surface

    return dict(options.read({"label": texts}, Surface.CLI).fields.get("labels", {}))
