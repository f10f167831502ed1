"""``carrel secret``: values that work gets by name; they never stand on a command line."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from carrel.cli.commands.admin.documents import AnyScopeOption, OwnScopeOption, read_unseen
from carrel.cli.common import NoHeaders, Output, OutputOption, connected, say, show
from carrel.errors import BadSetting

Name = Annotated[str, typer.Argument(metavar="SECRET", help="The secret.")]


def list_secrets(
    *,
    scope: AnyScopeOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the secrets that your work may use, without their values."""
    with connected() as client:
        found = client.list_secrets(scope)
    rows = ([one.name, one.scope, one.type, ", ".join(one.keys), one.changed_by] for one in found)
    headers = ["NAME", "SCOPE", "TYPE", "KEYS", "CHANGED BY"]
    show(found, output, headers, rows, no_headers=no_headers)


def create(
    name: Name,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY...]", help="Keys to type values for.")
    ] = None,
    *,
    scope: OwnScopeOption = None,
    from_file: Annotated[
        list[str] | None,
        typer.Option("--from-file", metavar="KEY=FILE", help="A value from a file, - for stdin."),
    ] = None,
    from_env: Annotated[
        list[str] | None,
        typer.Option("--from-env", metavar="KEY[=VARIABLE]", help="A value from a variable here."),
    ] = None,
    kind: Annotated[
        str,
        typer.Option("--type", help="generic, registry, access-key, password or ssh-key."),
    ] = "generic",
    description: Annotated[str, typer.Option("--description", help="For people.")] = "",
    keep_others: Annotated[
        bool, typer.Option("--keep-others", help="Keys that are not named keep their values.")
    ] = False,
) -> None:
    """Make a secret, or replace its values: `carrel secret create hub TOKEN`, then type it."""
    data = {
        **dict(_of_file(one) for one in from_file or []),
        **dict(_of_variable(one) for one in from_env or []),
        **{key: read_unseen(key) for key in keys or []},
    }
    if not data:
        raise BadSetting(f"Which keys? `carrel secret create {name} TOKEN`, or --from-file.")
    with connected() as client:
        where = scope or f"user/{client.whoami().user}"
        made = client.put_secret(
            name, where, data, type=kind, description=description, keep_others=keep_others
        )
    say(f"Secret {name} of {where} has the keys {', '.join(made.keys)}, version {made.version}.")
    say(f"Work gets a value with -e VARIABLE=SECRET:{name},{made.keys[0]}")


def delete(name: Name, *, scope: OwnScopeOption = None) -> None:
    """Remove a secret; work that names it starts no more."""
    with connected() as client:
        where = scope or f"user/{client.whoami().user}"
        client.delete_secret(name, where)
    say(f"Secret {name} of {where} deleted successfully.")


def _of_file(text: str) -> tuple[str, str]:
    key, equals, file = text.partition("=")
    if not (key and equals and file):
        raise BadSetting(f"--from-file is {text!r}; it should be KEY=FILE.")
    try:
        return key, sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{file} cannot be read: {error}") from error


def _of_variable(text: str) -> tuple[str, str]:
    key, _, name = text.partition("=")
    value = os.environ.get(name or key)
    if value is None:
        raise BadSetting(f"There is no variable {name or key} here.")
    return key, value
