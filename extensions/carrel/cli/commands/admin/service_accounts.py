"""``carrel service-account``: callers that are nobody, for pipelines and other programs."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from carrel.cli.common import NoHeaders, Output, OutputOption, connected, say, show

Name = Annotated[str, typer.Argument(metavar="NAME", help="The service account.")]


def list_accounts(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List service accounts of scopes that you administer, with their tokens."""
    with connected() as client:
        found = client.list_service_accounts()
    rows = (
        [one.name, one.scope, token.id, _day(token.expires_at), _day(token.used_at)]
        for one in found
        for token in one.tokens
    )
    bare = ([one.name, one.scope, "-", "-", "-"] for one in found if not one.tokens)
    headers = ["NAME", "SCOPE", "TOKEN", "EXPIRES", "USED"]
    show(found, output, headers, (*rows, *bare), no_headers=no_headers)


def create(
    name: Name,
    *,
    scope: Annotated[
        str,
        typer.Option("--scope", metavar="SCOPE", help="project/NAME, department/NAME or platform."),
    ],
    description: Annotated[str, typer.Option("--description", help="For people.")] = "",
) -> None:
    """Make a service account; `carrel access grant sa:NAME ROLE` says what it may do."""
    with connected() as client:
        made = client.put_service_account(name, scope, description)
    say(f"Service account {made.name} of {made.scope}; its work is that of {made.user}.")
    say(f"Give it a role: carrel access grant sa:{made.name} researcher --scope {made.scope}")


def token(
    name: Name,
    *,
    days: Annotated[int, typer.Option("--days", help="After so many it expires.")] = 90,
) -> None:
    """Make a token of a service account and print it, once."""
    with connected() as client:
        made = client.create_service_token(name, days)
    say(made.token)


def revoke(
    name: Name,
    token_id: Annotated[str, typer.Argument(metavar="TOKEN", help="Its id, as listed.")],
) -> None:
    """Make a token of a service account good for nothing."""
    with connected() as client:
        client.revoke_service_token(name, token_id)
    say(f"Token {token_id} of {name} is revoked.")


def delete(name: Name) -> None:
    """Remove a service account, its tokens and its roles; its work goes on."""
    with connected() as client:
        client.delete_service_account(name)
    say(f"Service account {name} is deleted.")


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%MZ") if at else "-"
