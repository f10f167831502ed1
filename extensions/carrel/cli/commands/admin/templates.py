"""``carrel template``: values for submissions, kept under a name."""

from typing import Annotated, Any

import typer

from carrel.cli.commands.admin.documents import (
    AnyScopeOption,
    FileOption,
    OwnScopeOption,
    read_document,
)
from carrel.cli.common import (
    NoHeaders,
    Output,
    OutputOption,
    connected,
    document,
    fields,
    for_programs,
    say,
    show,
)

Name = Annotated[str, typer.Argument(metavar="TEMPLATE", help="The template.")]


def list_templates(
    *,
    scope: AnyScopeOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the templates that you may use; `carrel submit --template NAME`."""
    with connected() as client:
        found = client.list_templates(scope)
    rows = (
        [
            one.name,
            one.scope,
            ", ".join(one.kinds) or "all",
            "yes" if one.default else "",
            one.description,
        ]
        for one in found
    )
    headers = ["NAME", "SCOPE", "KINDS", "DEFAULT", "DESCRIPTION"]
    show(found, output, headers, rows, no_headers=no_headers)


def describe(
    name: Name, *, scope: OwnScopeOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show a template in full."""
    with connected() as client:
        one = client.get_template(name, scope or f"user/{client.whoami().user}")
    if for_programs(output):
        document(one, output)
        return
    facts = [
        ("Name", one.name),
        ("Scope", one.scope),
        ("Description", one.description),
        ("Kinds", ", ".join(one.kinds) or "all"),
        ("Version", f"{one.version}, by {one.changed_by}"),
    ]
    fields(facts)
    say()
    fields([(path, _shown(value)) for path, value in one.fields.items()])


def apply(name: Name, *, file: FileOption, scope: OwnScopeOption = None) -> None:
    """Make a template of a file, or replace it.

    The file holds `fields`, those of a request, and if wanted `kinds`, `description` and, for
    administrators, `default: true`.
    """
    with connected() as client:
        where = scope or f"user/{client.whoami().user}"
        made = client.put_template(name, where, read_document(file))
    say(f"Template {name} of {where} applied, version {made.version}.")


def delete(name: Name, *, scope: OwnScopeOption = None) -> None:
    """Remove a template."""
    with connected() as client:
        where = scope or f"user/{client.whoami().user}"
        client.delete_template(name, where)
    say(f"Template {name} of {where} deleted successfully.")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
