"""``carrel health``: the state of each part of the platform, and what to do about it."""

from typing import Annotated

import typer

from carrel.cli.common import NoHeaders, Output, OutputOption, connected, note, show

FAILED = 1


def health(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """Show what of the platform is well and what is not; exits with 1 where something failed."""
    with connected() as client:
        found = client.health()
    if as_json:
        output = Output.JSON
    rows = [[one.name, one.state, one.summary] for one in found.checks]
    headers = ["SUBJECT", "STATE", "SUMMARY"]
    content = found.checks if output is Output.CSV else found
    show(content, output, headers, rows, no_headers=no_headers)
    if output in (Output.TABLE, Output.WIDE):
        for one in found.checks:
            if one.action:
                note(f"{one.name}: {one.action}")
    if found.state == "failed":
        raise typer.Exit(FAILED)
