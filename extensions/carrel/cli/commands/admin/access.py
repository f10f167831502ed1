"""``carrel access`` and ``carrel role``: who may do what, where."""

from typing import Annotated

import typer

from carrel.cli.commands.admin.documents import AnyScopeOption
from carrel.cli.common import NoHeaders, Output, OutputOption, connected, say, show
from carrel.errors import BadSetting

Role = Annotated[str, typer.Argument(metavar="ROLE", help="As `carrel role list` names it.")]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="A user, group:NAME, or sa:NAME.")]
ScopeOption = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="platform, department/NAME or project/NAME.")
]
KINDS = {"user": "user", "group": "group", "sa": "service-account"}


def list_roles(*, output: OutputOption = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List the roles, and in which scopes they are given."""
    with connected() as client:
        found = client.list_roles()
    rows = ([one.name, ", ".join(one.scopes), one.description] for one in found)
    show(found, output, ["NAME", "SCOPES", "DESCRIPTION"], rows, no_headers=no_headers)


def describe_role(role: Role, *, output: OutputOption = Output.TABLE) -> None:
    """Show the permissions of a role."""
    with connected() as client:
        found = [one for one in client.list_roles() if one.name == role]
        known = ", ".join(one.name for one in client.list_roles())
    if not found:
        raise BadSetting(f"{role!r} should be a role: {known}.", code="unknown_value")
    rows = ([one] for one in found[0].permissions)
    show(found[0], output, ["PERMISSION"], rows)


def list_rules(
    *,
    scope: AnyScopeOption = None,
    output: OutputOption = Output.TABLE,
    no_headers: NoHeaders = False,
) -> None:
    """List your own access rules, and those of scopes that you administer."""
    with connected() as client:
        found = client.list_access_rules(scope)
    rows = ([one.subject_kind, one.subject, one.role, one.scope, one.created_by, one.id]
            for one in found)  # fmt: skip
    headers = ["KIND", "SUBJECT", "ROLE", "SCOPE", "GIVEN BY", "ID"]
    show(found, output, headers, rows, no_headers=no_headers)


def grant(subject: Subject, role: Role, *, scope: ScopeOption) -> None:
    """Give somebody a role, as `carrel access grant ada viewer --scope project/vision`."""
    kind, name = _subject(subject)
    with connected() as client:
        made = client.grant_role(name, role, scope, subject_kind=kind)
    say(f"{made.subject} is {made.role} in {made.scope} ({made.id}).")


def revoke(
    rule: Annotated[str, typer.Argument(metavar="SUBJECT|ID", help="Whose, or which rule.")],
    role: Annotated[str | None, typer.Argument(metavar="[ROLE]", help="Of the subject.")] = None,
    *,
    scope: AnyScopeOption = None,
) -> None:
    """Take a role away from somebody, or remove a rule by its id."""
    with connected() as client:
        if role is None:
            client.revoke_role(rule)
            say(f"Access rule {rule} is removed.")
            return
        kind, name = _subject(rule)
        found = [
            one
            for one in client.list_access_rules(scope)
            if (one.subject_kind, one.subject, one.role) == (kind, name, role)
        ]
        if len(found) != 1:
            places = ", ".join(one.scope for one in found)
            raise BadSetting(
                f"{name} has the role {role} in {places}; say which with --scope."
                if found
                else f"There is no rule that gives {name} the role {role} that you can see.",
                code="bad_value",
            )
        client.revoke_role(found[0].id)
    say(f"{name} is no {role} in {found[0].scope} any more.")


def can_i(
    permission: Annotated[
        str, typer.Argument(metavar="PERMISSION", help="As projects:create or workloads:manage.")
    ],
    *,
    scope: ScopeOption = "platform",
) -> None:
    """Say yes or no: whether you have a permission in a scope; ends with 1 for no."""
    with connected() as client:
        found = client.check_permission(permission, scope)
    if found.allowed:
        say("yes")
        return
    say(f"no: roles with {permission} are {', '.join(found.roles)}")
    raise typer.Exit(1)


def _subject(text: str) -> tuple[str, str]:
    """Kind and name; a name alone is a user's."""
    kind, colon, name = text.partition(":")
    if not colon:
        return "user", text
    if kind not in KINDS or not name:
        raise BadSetting(f"{text!r} should be USER, group:NAME or sa:NAME.", code="bad_value")
    return KINDS[kind], name
