"""Shared by commands of administrators: the scope, and the file or the line that they read."""

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from carrel.errors import BadSetting

ScopeOption = Annotated[
    str,
    typer.Option(
        "--scope", metavar="SCOPE", help="platform, department/NAME, project/NAME or user/NAME."
    ),
]
AnyScopeOption = Annotated[
    str | None, typer.Option("--scope", metavar="SCOPE", help="Only those of this scope.")
]
OwnScopeOption = Annotated[
    str | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="platform, department/NAME or project/NAME; by default your own.",
    ),
]
FileOption = Annotated[
    str, typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON, - for standard input.")
]


def read_document(file: str) -> dict[str, Any]:
    """The mapping in a file. Raises ``BadSetting`` that names the file and what is wrong."""
    import yaml

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        found = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadSetting(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise BadSetting(f"{file} holds no mapping of fields to values.")
    return {str(name): value for name, value in found.items()}


def read_unseen(what: str) -> str:
    """Read a value without showing it; without a terminal it is a line of standard input."""
    if sys.stdin.isatty():
        return getpass.getpass(f"{what}: ")
    line = sys.stdin.readline()
    if not line:
        raise BadSetting(f"Standard input ended before: {what}.")
    return line.rstrip("\n")
