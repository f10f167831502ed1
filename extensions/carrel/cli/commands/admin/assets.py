"""``carrel asset``: environments, compute resources and data sources, kept under names."""

from typing import Annotated, Any

import typer

from carrel.cli.commands.admin.documents import (
    AnyScopeOption,
    FileOption,
    OwnScopeOption,
    read_document,
)
from carrel.cli.common import NoHeaders, Output, OutputOption, connected, document, say, show
from carrel_schema.governance.assets import AssetOut

Type = Annotated[str, typer.Argument(metavar="TYPE", help="environment, compute or data-source.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The asset.")]


def list_assets(
    *,
    scope: AnyScopeOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List the assets that you may use; `carrel submit --compute NAME --data NAME`."""
    with connected() as client:
        found = client.list_assets(scope)
    rows = ([one.type, one.name, one.scope, content_of(one), one.description] for one in found)
    headers = ["TYPE", "NAME", "SCOPE", "CONTENT", "DESCRIPTION"]
    show(found, output, headers, rows, no_headers=no_headers)


def describe(
    kind: Type, name: Name, *, scope: OwnScopeOption = None, output: OutputOption = Output.YAML
) -> None:
    """Show an asset in full."""
    with connected() as client:
        where = scope or f"user/{client.whoami().user}"
        document(client.get_asset(kind, name, where), output)


def apply(kind: Type, name: Name, *, file: FileOption, scope: OwnScopeOption = None) -> None:
    """Make an asset of a file, or replace it. The file holds `fields` of a request, or `data`."""
    with connected() as client:
        where = scope or f"user/{client.whoami().user}"
        made = client.put_asset(kind, name, where, read_document(file))
    say(f"Asset {kind}/{name} of {where} applied, version {made.version}.")


def delete(kind: Type, name: Name, *, scope: OwnScopeOption = None) -> None:
    """Remove an asset; work that was put together from it goes on."""
    with connected() as client:
        where = scope or f"user/{client.whoami().user}"
        client.delete_asset(kind, name, where)
    say(f"Asset {kind}/{name} of {where} deleted successfully.")


def content_of(asset: AssetOut) -> str:
    """The content of an asset, in one line."""
    if asset.data is not None:
        where = f" at {asset.data.destination}" if asset.data.destination else ""
        return f"{asset.data.kind} {asset.data.source}{where}"
    return ", ".join(f"{name}={_shown(value)}" for name, value in asset.fields.items())


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | dict) else str(value)
